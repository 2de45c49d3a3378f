//! What the agent does next about one pod.

mod due;
mod stop;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::Value;

use super::record::Record;
use super::status;
use super::view::{self, At};
use crate::runtime::spec::PodState;

/// All that a decision may depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed<'a> {
    /// None: it is gone from the API.
    pub(super) pod: Option<&'a Pod>,
    /// None: nothing of it is on this machine.
    pub(super) record: Option<&'a Record>,
    /// What its shim knows; none without a shim.
    pub(super) state: Option<&'a PodState>,
    /// Whether its volumes are there.
    pub(super) prepared: bool,
    /// Images, by the container or the volume that needs them.
    pub(super) fetches: &'a BTreeMap<String, Fetch>,
    /// What failed, and when it is tried again.
    pub(super) troubles: &'a BTreeMap<Part, Trouble>,
    /// What probes found, for containers that have some.
    pub(super) health: &'a BTreeMap<String, Health>,
    /// What is the same for all pods.
    pub(super) place: &'a NodeFacts,
    pub(super) now: Timestamp,
}

/// What is the same for all pods of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeFacts {
    /// The node's addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// The runtime's name, for container ids.
    pub(super) runtime: String,
    /// The image that means this machine's own programs.
    pub(super) machine: String,
}

/// Where the fetching of an image is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fetch {
    Pulling,
    Held,
    Failed(Trouble),
}

/// What can fail.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Begin,
    Volumes,
    Sandbox,
    Container(String),
}

/// What failed, how often in a row, and when it is tried again.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Trouble {
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) times: u32,
    /// None: not before something else changes.
    pub(super) until: Option<Timestamp>,
}

/// What the probes of a container's running attempt found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    /// It has passed its startup probe, or has none.
    pub(super) started: bool,
    /// It passes its readiness probe, or has none.
    pub(super) ready: bool,
    /// It is to be ended, and why.
    pub(super) failed: Option<String>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Write down that it is here.
    Begin,
    /// Start fetching an image for a container or a volume.
    Fetch(String),
    PrepareVolumes,
    /// Shim and network, in place of lost ones if there were some.
    MakeSandbox,
    Start {
        container: String,
        attempt: u32,
    },
    /// Ask a container to end; `whole` if all of the pod ends.
    Stop {
        container: String,
        why: String,
        whole: bool,
    },
    /// End it.
    Kill {
        container: String,
        whole: bool,
    },
    /// End its sandbox, its network, its volumes.
    Release,
    /// Let go of the object.
    Delete,
    /// Remove logs, directory and record.
    Forget,
}

/// What to do now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// In this order; the first that fails ends it, and all is looked at again.
    pub(super) actions: Vec<Action>,
    /// The merge patch of its status, when nothing is to be done first.
    pub(super) status: Option<Value>,
    /// Something is under way that may be done in a moment: the status can wait for it a little.
    pub(super) busy: bool,
    /// Look again after this long.
    pub(super) wait: Option<Duration>,
}

impl Plan {
    fn only(action: Action) -> Self {
        Self { actions: vec![action], ..Self::default() }
    }

    fn wait(&mut self, after: Duration) {
        self.wait = Some(self.wait.map_or(after, |known| known.min(after)));
    }
}

/// Why a pod comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Deleted,
    /// Somebody has written that it is over.
    Terminal,
    /// All containers are done.
    Completed,
    /// An init container failed for good.
    InitFailed,
    /// Its time is over.
    Deadline,
    /// A container of it asks for devices that are not here.
    Rejected,
}

/// Why a container is not started whose devices cannot be had.
pub(super) const NO_DEVICES: &str = "UnexpectedAdmissionError";
/// How often they are asked for: a plugin that is being replaced is back within seconds. The scheduler saw them here, so that
/// nobody but the pod's owner can do anything about it: Kubernetes' node agent fails such a pod at once.
const DEVICE_TRIES: u32 = 5;

/// Which devices a container that never ran was refused, once and for all.
pub(super) fn rejected<'a>(observed: &Observed<'a>, record: &Record) -> Option<&'a str> {
    let for_good = |(part, trouble): (&Part, &'a Trouble)| match part {
        Part::Container(name) if !record.containers.contains_key(name) => {
            (trouble.reason == NO_DEVICES && trouble.times >= DEVICE_TRIES).then_some(trouble.message.as_str())
        }
        _ => None,
    };
    observed.troubles.iter().find_map(for_good)
}

/// # Guarantees
/// - A container is started only where none of its attempts runs.
/// - What has ended by its restart policy is not started again; a terminal phase never changes.
/// - The object of a deleted pod is let go only after its containers were seen ended and all else of it was released.
/// - Its last status is written before the sandbox that knows it is released.
pub(super) fn decide(observed: &Observed<'_>) -> Plan {
    let Some(pod) = observed.pod else { return gone(observed.record) };
    let Some(spec) = &pod.spec else { return Plan::default() };
    let Some(record) = observed.record else { return not_here(observed, pod) };
    if record.released {
        return let_go(pod);
    }
    match ending(observed, pod, spec, record) {
        Some(ending) => end(observed, pod, spec, record, ending),
        None => run(observed, pod, spec, record),
    }
}

fn gone(record: Option<&Record>) -> Plan {
    match record {
        None => Plan::default(),
        Some(record) if !record.released => Plan::only(Action::Release),
        Some(_) => Plan::only(Action::Forget),
    }
}

fn not_here(observed: &Observed<'_>, pod: &Pod) -> Plan {
    if pod.metadata.deletion_timestamp.is_some() {
        return let_go(pod);
    }
    if view::is_terminal(view::phase(pod)) {
        return Plan::default();
    }
    match observed.troubles.get(&Part::Begin) {
        None => Plan::only(Action::Begin),
        Some(trouble) => {
            let mut plan = Plan::default();
            match gate(Some(trouble), observed.now) {
                Gate::Open => plan.actions.push(Action::Begin),
                Gate::After(after) => plan.wait(after),
                Gate::Shut => {}
            }
            if plan.actions.is_empty() {
                let empty = Record::default();
                plan.status = status::patch(observed, pod, &empty, None);
            }
            plan
        }
    }
}

/// Nothing is left of it. With finalizers and no grace period left, the deletion was confirmed already.
fn let_go(pod: &Pod) -> Plan {
    let deleted = pod.metadata.deletion_timestamp.is_some();
    if deleted && pod.metadata.deletion_grace_period_seconds != Some(0) {
        Plan::only(Action::Delete)
    } else {
        Plan::default()
    }
}

/// Whether the pod ends, and why.
pub(super) fn ending(observed: &Observed<'_>, pod: &Pod, spec: &PodSpec, record: &Record) -> Option<Ending> {
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(Ending::Deleted);
    }
    if view::is_terminal(view::phase(pod)) {
        return Some(Ending::Terminal);
    }
    let over = |name: &str, ok: &dyn Fn(&super::record::End) -> bool| match view::at(record, observed.state, name) {
        At::Ended(end) => ok(end),
        _ => false,
    };
    let done = |container: &k8s_openapi::api::core::v1::Container| {
        over(&container.name, &|end| !view::restarts(spec, container, end))
    };
    if !spec.containers.is_empty() && spec.containers.iter().all(done) {
        return Some(Ending::Completed);
    }
    let failed = |container: &&k8s_openapi::api::core::v1::Container| {
        over(&container.name, &|end| end.exit_code != 0 && !view::restarts(spec, container, end))
    };
    if !record.initialized && view::init_containers(spec).any(|container| failed(&container)) {
        return Some(Ending::InitFailed);
    }
    if rejected(observed, record).is_some() {
        return Some(Ending::Rejected);
    }
    let seconds = spec.active_deadline_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let (seconds, started) = seconds.zip(started)?;
    let left = super::backoff::remaining(started.0, Duration::from_secs(seconds), observed.now);
    left.is_none().then_some(Ending::Deadline)
}

fn end(observed: &Observed<'_>, pod: &Pod, spec: &PodSpec, record: &Record, ending: Ending) -> Plan {
    let mut plan = stop::all(observed, pod, spec, record);
    if !plan.actions.is_empty() {
        return plan;
    }
    let alive = view::containers(spec).any(|one| view::at(record, observed.state, &one.name).is_alive());
    // A pod that was deleted before anything of it ran has nothing to tell.
    let told = ending == Ending::Deleted && record.containers.is_empty();
    if !told {
        plan.status = status::patch(observed, pod, record, Some(ending));
    }
    if !alive && plan.status.is_none() {
        plan.actions.push(Action::Release);
    }
    plan
}

fn run(observed: &Observed<'_>, pod: &Pod, spec: &PodSpec, record: &Record) -> Plan {
    let mut plan = stop::unhealthy(observed, pod, spec, record);
    let due = due::due(observed, spec, record);
    if let Some(after) = due.wait {
        plan.wait(after);
    }
    if !due.starts.is_empty() {
        start(observed, spec, record, &due.starts, &mut plan);
    }
    if let Some(seconds) = spec.active_deadline_seconds.and_then(|seconds| u64::try_from(seconds).ok())
        && let Some(started) = pod.status.as_ref().and_then(|status| status.start_time.as_ref())
        && let Some(left) = super::backoff::remaining(started.0, Duration::from_secs(seconds), observed.now)
    {
        plan.wait(left);
    }
    let created = |name: &str| view::at(record, observed.state, name) == At::Created;
    plan.busy |= view::containers(spec).any(|container| created(&container.name));
    if plan.actions.is_empty() {
        plan.status = status::patch(observed, pod, record, None);
    }
    plan
}

/// What has to be there before the containers that are due can be started, and then their start.
fn start(observed: &Observed<'_>, spec: &PodSpec, record: &Record, starts: &[(String, u32)], plan: &mut Plan) {
    let mut volumes_held = true;
    for volume in view::image_volumes(spec) {
        volumes_held &= fetch(observed, &view::volume_key(volume), plan);
    }
    let mut held = Vec::new();
    for (name, attempt) in starts {
        let image = view::containers(spec).find(|one| one.name == *name).and_then(|one| one.image.as_deref());
        if image == Some(observed.place.machine.as_str()) || fetch(observed, name, plan) {
            held.push((name, *attempt));
        }
    }
    let framed = record.sandbox && observed.state.is_some_and(|state| !state.lost) && record.addresses.is_some();
    if !observed.prepared && volumes_held && !pass(observed, &Part::Volumes, plan, Action::PrepareVolumes) {
        return;
    }
    if !framed && !pass(observed, &Part::Sandbox, plan, Action::MakeSandbox) {
        return;
    }
    if !framed || !observed.prepared {
        return;
    }
    for (name, attempt) in held {
        let action = Action::Start { container: name.clone(), attempt };
        pass(observed, &Part::Container(name.clone()), plan, action);
    }
}

/// Whether the image is there; sees to it otherwise.
fn fetch(observed: &Observed<'_>, key: &str, plan: &mut Plan) -> bool {
    match observed.fetches.get(key) {
        Some(Fetch::Held) => return true,
        Some(Fetch::Pulling) => plan.busy = true,
        None => plan.actions.push(Action::Fetch(key.to_owned())),
        Some(Fetch::Failed(trouble)) => match gate(Some(trouble), observed.now) {
            Gate::Open => plan.actions.push(Action::Fetch(key.to_owned())),
            Gate::After(after) => plan.wait(after),
            Gate::Shut => {}
        },
    }
    false
}

/// Plans an action unless it failed a moment ago.
fn pass(observed: &Observed<'_>, part: &Part, plan: &mut Plan, action: Action) -> bool {
    match gate(observed.troubles.get(part), observed.now) {
        Gate::Open => {
            plan.actions.push(action);
            return true;
        }
        Gate::After(after) => plan.wait(after),
        Gate::Shut => {}
    }
    false
}

enum Gate {
    Open,
    After(Duration),
    Shut,
}

fn gate(trouble: Option<&Trouble>, now: Timestamp) -> Gate {
    let Some(trouble) = trouble else { return Gate::Open };
    let Some(until) = trouble.until else { return Gate::Shut };
    match Duration::try_from(until.duration_since(now)) {
        Ok(left) if !left.is_zero() => Gate::After(left),
        _ => Gate::Open,
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
