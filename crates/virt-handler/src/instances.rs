//! The controller of instances on some nodes: what wakes it, and how one launcher is looked at.
//!
//! ```text
//! instances ──┐
//! launchers ──┼──> one launcher ──> its role ──> decide ──> act ──> the launcher that holds the guest: one write of the instance
//! records ────┘
//! ```
//! What is looked at is a launcher, not an instance: while a guest moves there are two, each with a record, a connection and efforts
//! of its own. How launchers are reached is the host's ([`crate::host`]); that of a hollow node is a simulation of it.

mod acting;
mod answers;
mod moving;
mod starting;
mod turns;
mod writing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::names::label;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use futures_util::future::join_all;
use jiff::Timestamp;
use kube::{Api, Client};
use launcher_api::rpc::{End, State};
use launcher_api::{Feature, Outcome};
use manager::cache::{Cache, Changed, Key};
use manager::context::{Context, Now};
use manager::events::{Kind, Recorder};
use manager::queue::Queue;
use manager::worker::{Next, found, work};
use manager::writing::OwnWrites;
use tokio::sync::watch;
use virt_rules::launchers::{self as rules, Role};

use crate::decide::{self, Action, Efforts, GRACE, Launcher, Observed, Way};
use crate::host::Host;
use crate::launchers::{LauncherId, Launchers, PATIENCE, Reach, View};
use crate::networks::Link;
use crate::node::Found;
use crate::records::{Record, RecordError, Records};

pub(crate) use starting::digest;
use turns::Turns;

/// What is done about a launcher: [`decide::decide`], or a broken twin of it.
pub(crate) type Decide = fn(&Observed<'_>, Timestamp) -> decide::Plan;

/// What a controller of instances is made of.
pub(crate) struct Setup {
    pub(crate) nodes: Nodes,
    /// All instances of these nodes are in one of them.
    pub(crate) vmis: Vec<Cache<VirtualMachineInstance>>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) records: Records,
    /// None where events would only be a load.
    pub(crate) recorder: Option<Recorder>,
    /// What QEMU offers, once it was asked.
    pub(crate) found: watch::Receiver<Found>,
    /// Called when a guest has shown that KVM does not work.
    pub(crate) doubt: Box<dyn Fn() + Send + Sync>,
    /// Launchers that are looked at at the same time.
    pub(crate) workers: usize,
    pub(crate) decide: Decide,
}

/// Whose launchers are looked after.
#[derive(Clone, Debug)]
pub(crate) enum Nodes {
    One(String),
    Many(Arc<BTreeSet<String>>),
}

impl Nodes {
    fn has(&self, node: &str) -> bool {
        match self {
            Self::One(name) => name == node,
            Self::Many(names) => names.contains(node),
        }
    }
}

/// The controller.
pub(crate) struct Instances {
    setup: Setup,
    client: Client,
    queue: Queue<LauncherId>,
    launchers: Launchers,
    turns: Turns,
    now: Now,
    notes: Mutex<BTreeMap<LauncherId, Notes>>,
    /// By the instance's UID.
    writes: Mutex<OwnWrites<String>>,
}

/// What this process knows of a launcher besides what it says itself.
#[derive(Clone, Debug, Default)]
struct Notes {
    efforts: Efforts,
    /// Its network, once it was made.
    links: Option<Vec<Link>>,
    /// What it was told last, in short.
    synced: Option<u64>,
    /// What its guest sees, as it told.
    guest: Option<String>,
    /// The end of its guest was held against KVM.
    has_spoken: bool,
}

/// Why a launcher was not looked at to the end; it is looked at again.
#[derive(Debug, thiserror::Error)]
enum InstanceError {
    #[error("talk to the API server")]
    Server(#[source] kube::Error),
    #[error("talk to the launcher")]
    Launcher(#[source] tonic::Status),
    #[error("{0}")]
    NotTaken(Outcome),
    #[error("unmount the container disks")]
    Unmount(#[source] std::io::Error),
    #[error("write the records of this node")]
    Record(#[from] RecordError),
}

/// Until what was written should have come back. It comes by itself, unless the watch is silent.
const OWN_WRITE: Duration = Duration::from_secs(1);
/// Until somebody else may have ended a step of a migration that took long.
const NEXT_TURN: Duration = Duration::from_secs(1);
/// Between a conflict and the next look: what another has written is on its way to the cache.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Instances {
    pub(crate) fn new(context: &Context, setup: Setup) -> Self {
        let queue: Queue<LauncherId> = context.queue("virt-handler");
        let told = queue.clone();
        Self {
            client: context.client.clone(),
            launchers: Launchers::new(setup.host.clone(), move |id: &LauncherId| told.add(id.clone())),
            queue,
            turns: Turns::among(setup.workers),
            now: context.now.clone(),
            notes: Mutex::default(),
            writes: Mutex::default(),
            setup,
        }
    }

    /// Looks at launchers until the queue is closed.
    pub(crate) async fn run(self: &Arc<Self>) {
        for vmis in &self.setup.vmis {
            vmis.synced().await;
        }
        for record in self.setup.records.all() {
            self.queue.add(record.id());
        }
        let work = work("virt-handler", &self.queue, self.setup.workers, |id: LauncherId| {
            let instances = self.clone();
            async move { instances.reconcile(&id).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            _ = join_all(self.setup.vmis.iter().map(|vmis| self.feed(vmis))) => {}
        }
    }

    async fn feed(&self, vmis: &Cache<VirtualMachineInstance>) {
        let mut changes = vmis.subscribe();
        loop {
            let change = changes.next().await;
            for id in self.concerned(&change) {
                self.queue.add(id);
            }
        }
    }

    /// The launchers that a change of an instance is news for: those that it lists here, and those that are known.
    fn concerned(&self, change: &Changed<VirtualMachineInstance>) -> BTreeSet<LauncherId> {
        let mut all = BTreeSet::new();
        for vmi in change.old.iter().chain(&change.new) {
            let Some(uid) = vmi.metadata.uid.as_ref() else { continue };
            all.extend(self.known(uid));
            let listed = vmi.status.as_ref().and_then(|status| status.active_pods.as_ref());
            for (pod, node) in listed.into_iter().flatten().filter(|(_, node)| self.setup.nodes.has(node)) {
                let (uid, pod, node) = (uid.clone(), pod.clone(), node.clone());
                all.insert(LauncherId { uid, pod, node, key: change.key.clone() });
            }
        }
        all
    }

    /// The launchers of an instance that this process has looked at.
    fn known(&self, uid: &str) -> Vec<LauncherId> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let key = Key { namespace: String::new(), name: String::new() };
        let first = LauncherId { uid: uid.to_owned(), pod: String::new(), node: String::new(), key };
        notes.range(first..).map(|(id, _)| id).take_while(|id| id.uid == uid).cloned().collect()
    }

    /// The launcher in a pod, if this process has looked at it.
    fn with_pod(&self, pod: &str) -> Option<LauncherId> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.keys().find(|id| id.pod == pod).cloned()
    }

    /// The instance of a launcher, as the caches have it: of two, the later.
    fn cached(&self, id: &LauncherId) -> Option<Arc<VirtualMachineInstance>> {
        let all = self.setup.vmis.iter().filter_map(|vmis| vmis.get(&id.key));
        let same = all.filter(|vmi| vmi.metadata.uid.as_ref() == Some(&id.uid));
        same.max_by_key(|vmi| vmi.metadata.resource_version.as_ref().and_then(|version| version.parse::<u64>().ok()))
    }

    async fn reconcile(&self, id: &LauncherId) -> Result<Next, InstanceError> {
        let Some(vmi) = self.cached(id) else { return self.reconcile_missing(id).await };
        found(&*vmi);
        if self.writes(|writes| writes.is_behind(&id.uid, vmi.metadata.resource_version.as_deref())) {
            return Ok(Next::After(OWN_WRITE));
        }
        let role = self.role(id, &vmi);
        self.approach(id, &vmi, role)?;
        self.hold_against_kvm(id);
        let mut plan = self.decide(id, Some(&vmi), role, GRACE);
        let turn = self.turns.take(plan.action);
        if turn.is_none() {
            plan = decide::Plan { action: Action::Nothing, again: Some(NEXT_TURN), ..plan };
        }
        self.act(id, Some(&vmi), plan.action).await?;
        drop(turn);
        // What the action has brought about is told with it.
        let plan = if plan.action == Action::Nothing { plan } else { self.decide(id, Some(&vmi), role, GRACE) };
        // Whoever does not hold the guest has nothing to say of its instance but how far its migration is: no phase is decided for it.
        if (role.holds() || plan.phase.is_some() || plan.milestone.is_some())
            && let Some(next) = self.write_status(id, &vmi, &plan).await?
        {
            return Ok(next);
        }
        Ok(plan.again.map_or(Next::Wait, Next::After))
    }

    /// A launcher whose instance the caches do not have. They have only those of these nodes: whether it is gone, the server
    /// knows.
    async fn reconcile_missing(&self, id: &LauncherId) -> Result<Next, InstanceError> {
        let record = self.setup.records.get(id);
        if record.is_none() && self.launchers.view(id).is_none() {
            self.forget(id);
            return Ok(Next::Wait);
        }
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &id.key.namespace);
        let found = api.get_opt(&id.key.name).await.map_err(InstanceError::Server)?;
        let found = found.filter(|vmi| vmi.metadata.uid.as_ref() == Some(&id.uid));
        if let Some(vmi) = found.as_ref().filter(|vmi| self.role(id, vmi) != Role::Orphan) {
            // Another node's by now, or the cache is late; then it will tell.
            let late = decide::is_of(vmi, &id.node) || comes_to(vmi, &id.node);
            return Ok(if late { Next::After(OWN_WRITE) } else { Next::Wait });
        }
        if record.is_some() {
            self.launchers.follow(id, Duration::ZERO);
        }
        if found.is_none() {
            let now = (self.now)();
            self.note(id, |notes| notes.efforts.gone_since.get_or_insert(now).to_owned());
        }
        let grace = record.map_or(GRACE, |record| record.grace());
        let plan = self.decide(id, found.as_ref(), Role::Orphan, grace);
        self.act(id, found.as_ref(), plan.action).await?;
        Ok(plan.again.map_or(Next::Wait, Next::After))
    }

    /// What a launcher is to its instance.
    fn role(&self, id: &LauncherId, vmi: &VirtualMachineInstance) -> Role {
        let launcher = rules::Launcher { instance: &id.uid, uid: &id.pod, node: &id.node, pod: None };
        rules::role(&launcher, vmi)
    }

    /// Makes sure that a launcher is spoken to, and that this is on record.
    fn approach(&self, id: &LauncherId, vmi: &VirtualMachineInstance, role: Role) -> Result<(), InstanceError> {
        let is_done = self.note(id, |notes| notes.efforts.done);
        let phase = vmi.phase();
        let is_live = matches!(phase, Phase::Scheduled | Phase::Running);
        let is_ours = match role {
            Role::Sole | Role::Source => decide::is_of(vmi, &id.node),
            Role::Target => true,
            Role::Orphan => self.setup.records.get(id).is_some(),
        };
        if is_done || !is_ours || !(is_live || phase.is_final()) {
            return Ok(());
        }
        if is_live && role != Role::Orphan {
            self.setup.records.put(&Record {
                namespace: id.key.namespace.clone(),
                name: id.key.name.clone(),
                uid: id.uid.clone(),
                pod_uid: id.pod.clone(),
                node: id.node.clone(),
                grace_seconds: decide::grace_of(vmi).as_secs(),
            })?;
        }
        // The socket of one that ran was there already.
        let is_new = match role {
            Role::Target => is_live,
            Role::Sole | Role::Source | Role::Orphan => phase.is_scheduled(),
        };
        let patience = if is_new && !vmi.is_marked_for_deletion() { PATIENCE } else { Duration::ZERO };
        self.launchers.follow(id, patience);
        Ok(())
    }

    /// A guest that KVM could not run speaks against KVM, once.
    fn hold_against_kvm(&self, id: &LauncherId) {
        let end = self.launchers.view(id).and_then(|view| view.domain).map(|domain| domain.end());
        let is_news =
            end == Some(End::KvmFailed) && !self.note(id, |notes| std::mem::replace(&mut notes.has_spoken, true));
        if is_news {
            tracing::warn!(instance = ?id.key, "KVM failed to run this guest; testing it again");
            (self.setup.doubt)();
        }
    }

    fn decide(
        &self,
        id: &LauncherId,
        vmi: Option<&VirtualMachineInstance>,
        role: Role,
        grace: Duration,
    ) -> decide::Plan {
        let (efforts, synced) = self.note(id, |notes| (notes.efforts.clone(), notes.synced));
        let view = self.launchers.view(id);
        let launcher = launcher(view.as_ref());
        // A launcher of the first release takes an instance once.
        let takes = self.launchers.greeting(id).is_some_and(|greeting| greeting.has(Feature::Outcomes));
        // What another process of ours has told it, the launcher knows.
        let domain = view.and_then(|view| view.domain);
        let way = Way::of(domain.as_ref(), vmi);
        let synced = synced.or_else(|| domain.map(|domain| domain.mark));
        let is_synced = !takes || vmi.is_none_or(|vmi| synced == Some(digest(vmi)));
        let seen = Observed { node: &id.node, role, vmi, launcher, efforts: &efforts, grace, is_synced, way: &way };
        (self.setup.decide)(&seen, (self.now)())
    }

    fn note<R>(&self, id: &LauncherId, look: impl FnOnce(&mut Notes) -> R) -> R {
        let mut all = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notes) = all.get_mut(id) {
            return look(notes);
        }
        look(all.entry(id.clone()).or_default())
    }

    fn writes<R>(&self, look: impl FnOnce(&mut OwnWrites<String>) -> R) -> R {
        look(&mut self.writes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn record_event(&self, vmi: &VirtualMachineInstance, kind: Kind, reason: &str, message: impl Into<String>) {
        if let Some(recorder) = &self.setup.recorder {
            recorder.record(vmi, kind, reason, message);
        }
    }

    /// Nothing is left of a launcher, here or there.
    fn forget(&self, id: &LauncherId) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if self.known(&id.uid).is_empty() {
            self.writes(|writes| writes.forget(&id.uid));
        }
    }
}

/// Whether the guest of an instance is to come to a node.
fn comes_to(vmi: &VirtualMachineInstance, node: &str) -> bool {
    let labels = vmi.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(label::MIGRATION_TARGET_NODE_NAME)).is_some_and(|name| name == node)
}

/// A launcher as the decision sees it.
fn launcher(view: Option<&View>) -> Launcher {
    let Some(view) = view else { return Launcher::None };
    let domain = view.domain.as_ref();
    match (&view.reach, domain) {
        (Reach::Gone { .. }, domain) => {
            let end = domain.filter(|domain| domain.state() == State::Ended).map(launcher_api::rpc::Domain::end);
            Launcher::Gone { end }
        }
        (Reach::Connected, Some(domain)) => Launcher::Connected { state: domain.state(), end: domain.end() },
        (Reach::Connected | Reach::Connecting, _) => Launcher::Connecting,
    }
}

#[cfg(test)]
mod tests {
    use launcher_api::rpc::Domain;

    use super::*;

    #[test]
    fn how_a_guest_ended_is_known_after_its_launcher_is_gone() {
        let ended = Domain { state: State::Ended.into(), end: End::PoweredOff.into(), ..Domain::default() };
        let running = Domain { state: State::Running.into(), ..Domain::default() };
        let gone = |domain| View { reach: Reach::Gone { why: String::new() }, domain, guest: None };
        assert_eq!(launcher(Some(&gone(Some(ended)))), Launcher::Gone { end: Some(End::PoweredOff) });
        assert_eq!(launcher(Some(&gone(Some(running)))), Launcher::Gone { end: None });
        assert_eq!(launcher(Some(&gone(None))), Launcher::Gone { end: None });
        assert_eq!(launcher(None), Launcher::None);
    }
}
