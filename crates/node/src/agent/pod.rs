//! One pod: observe, decide, act, until nothing is left to do.

mod act;
mod fetch;
mod files;
mod sources;
mod start;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt as _};
use manager::worker::{Next, found};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::decide::{Fetch, Health, Observed, Part, Plan, Trouble, decide};
use super::parts::{Failure, Held, PodShim};
use super::probes::{self, Probing, Subject};
use super::record::{self, Record};
use super::view::{self, At};
use super::volumes::All;
use super::{Shared, Which};
use crate::runtime::spec::PodState;
use act::Flow;
use fetch::Fetches;
use sources::Sources;

/// Between a conflict and the next look: what another has written is on its way to the cache.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// What is done within this time is told with what comes after it, in one write.
const QUICK: Duration = Duration::from_secs(1);
/// More rounds than a pod has parts mean that something goes in circles: the queue slows it down.
const MOST_ROUNDS: usize = 200;

/// Why a pod could not be worked on; tried again by the queue.
#[derive(Debug, thiserror::Error)]
pub(super) enum PodError {
    #[error("the API server refused")]
    Api(#[source] kube::Error),
    #[error("{what}")]
    Below {
        what: &'static str,
        #[source]
        source: Failure,
    },
    #[error("cannot write the pod's record")]
    Record(#[source] std::io::Error),
    #[error("the pod's state does not settle")]
    Restless,
}

/// What the agent has in memory about one pod.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) record: Option<Record>,
    shim: Option<Arc<dyn PodShim>>,
    follower: Option<Ends>,
    volumes: Option<All>,
    /// When to bring up to date what an earlier agent has made; none, if that has not been seen to yet.
    renewal: Option<Option<jiff::Timestamp>>,
    sources: Option<Sources>,
    fetches: Fetches,
    probes: BTreeMap<String, Probing>,
    troubles: BTreeMap<Part, Trouble>,
    /// Since when its status waits for what may be done in a moment.
    busy: Option<Instant>,
}

/// A task that ends with its owner.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Entry {
    /// What an earlier agent has written down.
    pub(super) fn of(record: Record) -> Self {
        Self { record: Some(record), ..Self::default() }
    }

    /// What its shim tells, if it has one.
    pub(super) fn states(&self) -> Option<watch::Receiver<PodState>> {
        self.shim.as_ref().map(|shim| shim.states())
    }

    fn held(&self, key: &str) -> Option<Held> {
        self.fetches.held(key)
    }
}

/// Takes a shim over, and wakes the pod whenever the shim has something to tell.
pub(super) fn follow(shared: &Arc<Shared>, which: &Which, entry: &mut Entry, shim: Arc<dyn PodShim>) {
    let (queue, key, mut states) = (shared.queue.clone(), which.clone(), shim.states());
    let task = tokio::spawn(async move {
        while states.changed().await.is_ok() {
            queue.add(key.clone());
        }
        queue.add(key);
    });
    entry.follower = Some(Ends(task.abort_handle()));
    entry.shim = Some(shim);
}

/// Brings one pod as far as it goes now.
pub(super) async fn reconcile(shared: &Arc<Shared>, which: &Which) -> Result<Next, PodError> {
    let pod = shared.pods.get(&which.key()).filter(|pod| pod.uid().as_deref() == Some(&which.uid));
    if let Some(pod) = &pod {
        found(&**pod);
        let writes = shared.writes.lock().unwrap_or_else(PoisonError::into_inner);
        if writes.is_behind(which, pod.resource_version().as_deref()) {
            return Ok(Next::After(LOOK_AGAIN));
        }
    }
    let entry = {
        let mut entries = shared.entries();
        if pod.is_none() && !entries.contains_key(which) {
            return Ok(Next::Wait);
        }
        // Another of its name is still here: whoever removes that one wakes this one.
        let twin = entries.keys().any(|one| one.key() == which.key() && one.uid != which.uid);
        if twin && !entries.contains_key(which) {
            return Ok(Next::Wait);
        }
        entries.entry(which.clone()).or_default().clone()
    };
    let mut entry = entry.lock().await;
    let worker = Worker { shared, which, pod: pod.as_deref() };
    let next = worker.work(&mut entry).await?;
    if entry.record.is_none() && pod.is_none() {
        forget(shared, which);
    }
    Ok(next)
}

/// Nothing of it is left; another of its name may come.
fn forget(shared: &Shared, which: &Which) {
    shared.entries().remove(which);
    shared.writes.lock().unwrap_or_else(PoisonError::into_inner).forget(which);
    if let Some(pod) = shared.pods.get(&which.key()) {
        shared.queue.add(Which::of(&pod));
    }
}

struct Worker<'a> {
    shared: &'a Arc<Shared>,
    which: &'a Which,
    pod: Option<&'a Pod>,
}

impl Worker<'_> {
    async fn work(&self, entry: &mut Entry) -> Result<Next, PodError> {
        for _ in 0..MOST_ROUNDS {
            let plan = self.plan(entry)?;
            if plan.actions.is_empty() {
                return self.rest(entry, plan).await;
            }
            for action in plan.actions {
                match self.act(entry, action).await? {
                    Flow::On => {}
                    Flow::Look => break,
                    Flow::Done => return Ok(Next::Wait),
                }
            }
        }
        Err(PodError::Restless)
    }

    fn now(&self) -> jiff::Timestamp {
        (self.shared.now)()
    }

    fn plan(&self, entry: &mut Entry) -> Result<Plan, PodError> {
        let now = self.now();
        let state = entry.shim.as_ref().map(|shim| shim.states().borrow().clone());
        let settled = entry.record.as_mut().is_some_and(|record| record.settle(state.as_ref(), now));
        if settled {
            self.write_down(entry)?;
        }
        let health = self.health(entry);
        let fetches: BTreeMap<String, Fetch> = entry.fetches.states();
        Ok(decide(&Observed {
            pod: self.pod,
            record: entry.record.as_ref(),
            state: state.as_ref(),
            prepared: entry.volumes.is_some(),
            fetches: &fetches,
            troubles: &entry.troubles,
            health: &health,
            place: &self.shared.place,
            now,
        }))
    }

    /// Nothing is to be done: tell how things are, and when to look again.
    async fn rest(&self, entry: &mut Entry, plan: Plan) -> Result<Next, PodError> {
        let mut next = plan.wait;
        let refresh = self.refresh(entry).await;
        next = [next, refresh].into_iter().flatten().min();
        let again = |next: Option<Duration>| next.map_or(Next::Wait, Next::After);
        let Some(patch) = plan.status else {
            entry.busy = None;
            return Ok(again(next));
        };
        if plan.busy {
            let left = QUICK.saturating_sub(entry.busy.get_or_insert_with(Instant::now).elapsed());
            if !left.is_zero() {
                return Ok(Next::After(next.map_or(left, |next| next.min(left))));
            }
        } else {
            entry.busy = None;
        }
        if self.write_status(&patch).await? { Ok(again(next)) } else { Ok(Next::After(LOOK_AGAIN)) }
    }

    /// Whether it was written; otherwise somebody was faster.
    async fn write_status(&self, status: &Value) -> Result<bool, PodError> {
        let Some(pod) = self.pod else { return Ok(true) };
        let api: Api<Pod> = Api::namespaced(self.shared.client.clone(), &self.which.namespace);
        let metadata = json!({ "uid": pod.uid(), "resourceVersion": pod.resource_version() });
        let patch = json!({ "metadata": metadata, "status": status });
        match api.patch_status(&self.which.name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(written) => {
                let mut writes = self.shared.writes.lock().unwrap_or_else(PoisonError::into_inner);
                writes.note(self.which.clone(), written.resource_version().as_deref());
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
            Err(error) => Err(PodError::Api(error)),
        }
    }

    fn write_down(&self, entry: &Entry) -> Result<(), PodError> {
        let Some(record) = &entry.record else { return Ok(()) };
        record::write(&self.shared.settings.root, record).map_err(PodError::Record)
    }

    /// Sees to it that whatever runs and has probes is probed, and gathers what they found.
    fn health(&self, entry: &mut Entry) -> BTreeMap<String, Health> {
        let (Some(pod), Some(record), Some(shim)) = (self.pod, &entry.record, &entry.shim) else {
            entry.probes.clear();
            return BTreeMap::new();
        };
        let state = shim.states().borrow().clone();
        let mut probes = BTreeMap::new();
        let containers = pod.spec.iter().flat_map(view::containers);
        for container in containers.filter(|container| probes::has_some(container)) {
            let At::Running { attempt, id, started_at } = view::at(record, Some(&state), &container.name) else {
                continue;
            };
            let known = entry.probes.remove(&container.name).filter(|probing| probing.attempt == attempt);
            let probing = known.unwrap_or_else(|| {
                let age = Duration::try_from(self.now().duration_since(started_at)).unwrap_or_default();
                let (queue, key) = (self.shared.queue.clone(), self.which.clone());
                let address = self.address(pod, record);
                let subject = Subject {
                    container: container.clone(),
                    address,
                    age,
                    before: before(pod, &container.name, id),
                    shim: shim.clone(),
                    recorder: self.shared.recorder.clone(),
                    about: pod.object_ref(&()),
                    wake: Box::new(move || queue.add(key.clone())),
                };
                Probing::begin(attempt, subject)
            });
            probes.insert(container.name.clone(), probing);
        }
        entry.probes = probes;
        entry.probes.iter().map(|(name, probing)| (name.clone(), probing.health())).collect()
    }

    fn address(&self, pod: &Pod, record: &Record) -> Option<std::net::IpAddr> {
        if pod.spec.as_ref().is_some_and(view::uses_host_network) {
            return self.shared.place.addresses.first().copied();
        }
        record.addresses.iter().flatten().next().copied()
    }
}

/// What an earlier agent has told of this very container: a new one does not take it back before it has probed itself.
fn before(pod: &Pod, name: &str, id: &str) -> Health {
    let status = pod.status.as_ref();
    let lists = [
        status.and_then(|status| status.container_statuses.as_ref()),
        status.and_then(|status| status.init_container_statuses.as_ref()),
    ];
    let mut all = lists.into_iter().flatten().flatten();
    let known = all.find(|one| {
        one.name == name && one.container_id.as_deref().is_some_and(|known| known.ends_with(&format!("://{id}")))
    });
    known.map_or_else(Health::default, |known| Health {
        started: known.started == Some(true),
        ready: known.ready,
        failed: None,
    })
}
