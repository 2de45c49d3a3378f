//! Hollow handlers: real objects, the real virt-handler, simulated launchers.
//!
//! ```text
//! pods ──> machines: a simulated launcher for each pod that runs ──┐
//! instances ──> the same observe, decide and act as on a real node ┴──> one write per change of a phase
//! ```
//! Watches: VirtualMachineInstance, launcher Pod, Node. Owns: the status of instances from `Scheduled` on, labels, heartbeat
//! and devices of the given nodes. Emits: one write per change of a phase, one for the end of a launcher, and a heartbeat per
//! node and minute.
//!
//! Absent on purpose: instances before `Scheduled`, finalizers, nodes themselves: all that is virt-controller's and the node's.
//! Events: thousands of guests would only load the server with them.
//!
//! Two annotations on an instance tell what becomes of its guest, whatever the [`Behaviour`] says:
//! - `orlop.io/hollow-run-for`: how long it runs before it ends by itself, such as `5s`;
//! - `orlop.io/hollow-fate`: `succeed` (it powers off), `crash` (it runs, then fails), `fail-to-start` (it fails without ever
//!   running), `hang` (it does not react when it is to shut down, and is killed when its grace period is over).
//!
//! A guest that succeeds or crashes does so at once if nobody says how long it runs.

mod fate;
mod launcher;
mod ledger;
mod machines;
mod register;
mod status;
mod twins;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Index, Keeping, Key, controller_of};
use manager::context::{Chance, Context, Now};
use manager::queue::Queue;
use manager::worker::{About, Next, ObjectName, work};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::instances::{Instances, Nodes, Setup};
use crate::launchers::LauncherId;
use crate::node::Found;
use crate::records::Records;
use machines::HollowHost;

pub use ledger::{Ledger, Standing, Who};
pub use machines::Machines;
pub use twins::Twin;

/// How the guests behave.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// From `Scheduled` to `Running`.
    pub start_delay: Duration,
    /// How long a guest takes to shut down. One that takes longer than its grace period is killed then.
    pub stop_delay: Duration,
    /// How long a guest runs before it powers off by itself; for ever if unset.
    pub run_for: Option<Duration>,
    /// Of all guests, how many crash instead of powering off: between 0 and 1.
    pub crash_share: f64,
    /// Of all guests, how many fail to start: between 0 and 1.
    pub start_failure_share: f64,
}

/// The handlers of a set of nodes.
#[derive(Clone)]
pub struct HollowHandlers {
    client: Client,
    names: Arc<BTreeSet<String>>,
    machines: Machines,
    /// Whether the launchers are this process' own, and follow what it sees of pods.
    feeds: bool,
    instances: Arc<Instances>,
    vmis: Cache<VirtualMachineInstance>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    queue: Queue<Work>,
    now: Now,
    chance: Chance,
    /// When each node is to be told of next.
    told: Arc<Mutex<BTreeMap<String, Told>>>,
}

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// First: what does not come in time is a lost node.
    Node(Key),
    /// A launcher has ended in it.
    Pod(Key),
}

impl About for Work {
    fn about(&self) -> ObjectName<'_> {
        match self {
            Self::Node(key) | Self::Pod(key) => key.about(),
        }
    }
}

/// A node that was written, and until when that is enough.
#[derive(Clone, Debug)]
struct Told {
    uid: Option<String>,
    until: Instant,
}

/// What is looked at at the same time.
const WORKERS: usize = 16;
/// Launchers that are looked at at the same time: whoever starts a guest waits until it has started.
const LAUNCHERS_AT_ONCE: usize = 64;
/// Between a conflict and the next look: what another has written is on its way to the cache.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Launcher pods, by the label that they have.
const OUR_PODS: &str = "kubevirt.io=virt-launcher";
/// Pods by the UID of the instance that controls them.
const CONTROLLER: &str = "controller";

impl HollowHandlers {
    /// The handlers of nodes of these names; they read from the context's caches.
    #[must_use]
    pub fn new(context: &Context, names: impl IntoIterator<Item = String>, behaviour: Behaviour) -> Self {
        let machines = Machines::new(behaviour, context.chance.number(), None);
        Self { feeds: true, ..Self::over(context, names, machines, Twin::None) }
    }

    /// The same over launchers that somebody else keeps, and that outlive the handlers; as a broken twin, if a test wants one.
    #[must_use]
    pub fn over(context: &Context, names: impl IntoIterator<Item = String>, machines: Machines, twin: Twin) -> Self {
        let names: Arc<BTreeSet<String>> = Arc::new(names.into_iter().collect());
        let vmis: Cache<VirtualMachineInstance> = context.caches.kept("", Keeping::packed(), &[]);
        let indexes = [(CONTROLLER, controller_of as Index<Pod>)];
        let pods: Cache<Pod> = context.caches.kept(OUR_PODS, Keeping::slim_and_packed(), &indexes);
        let queue: Queue<Work> = context.queue("hollow-handlers");
        let of_launchers = pods.clone();
        let name_of = move |id: &LauncherId| {
            let same = |pod: &Arc<Pod>| pod.metadata.uid.as_ref() == Some(&id.pod);
            of_launchers.find(CONTROLLER, &id.uid).into_iter().find(same).map(|pod| Key::of(&*pod))
        };
        let host = HollowHost { machines: machines.clone(), queue: queue.clone(), name_of: Box::new(name_of) };
        let setup = Setup {
            nodes: Nodes::Many(names.clone()),
            vmis: vec![vmis.clone()],
            host: Arc::new(host),
            records: Records::Memory { all: machines.records(), nodes: names.clone() },
            recorder: None,
            found: watch::Sender::new(Found::NotYet).subscribe(),
            doubt: Box::new(|| {}),
            workers: LAUNCHERS_AT_ONCE,
            decide: twin.decide(),
        };
        Self {
            client: context.client.clone(),
            names,
            machines,
            feeds: false,
            instances: Arc::new(Instances::new(context, setup)),
            vmis,
            pods,
            nodes: context.caches.of(&[]),
            queue,
            now: context.now.clone(),
            chance: context.chance.clone(),
            told: Arc::default(),
        }
    }

    /// Runs until the queue is closed.
    pub async fn run(&self) {
        let work = work("hollow-handlers", &self.queue, WORKERS, |work: Work| {
            let handlers = self.clone();
            async move {
                match work {
                    Work::Node(key) => handlers.reconcile_node(&key).await,
                    Work::Pod(key) => handlers.reconcile_pod(&key).await,
                }
            }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.feed_nodes() => {}
            () = self.look_after_instances() => {}
        }
    }

    async fn look_after_instances(&self) {
        self.pods.synced().await;
        self.vmis.synced().await;
        // Whoever looks for a launcher finds it.
        for pod in self.pods.all() {
            self.see(&pod);
        }
        tokio::select! {
            biased;
            () = self.feed_pods() => {}
            () = self.instances.run() => {}
        }
    }

    async fn feed_nodes(&self) {
        let mut changes = self.nodes.subscribe();
        loop {
            let change = changes.next().await;
            if self.names.contains(&change.key.name) {
                self.queue.add(Work::Node(change.key));
            }
        }
    }

    async fn feed_pods(&self) {
        let mut changes = self.pods.subscribe();
        loop {
            let change = changes.next().await;
            let replaced = change.old.filter(|old| change.new.as_ref().is_none_or(|new| new.uid() != old.uid()));
            if let Some(old) = replaced.filter(|_| self.feeds) {
                self.machines.gone(&old);
            }
            let Some(pod) = change.new.filter(|pod| self.is_ours(pod)) else { continue };
            self.see(&pod);
            if self.machines.has_exited(&pod) {
                self.queue.add(Work::Pod(change.key));
            }
        }
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).is_some_and(|node| self.names.contains(node))
    }

    /// The launcher in a pod of ours is what the pod says, where nobody else sees to that.
    fn see(&self, pod: &Pod) {
        if self.feeds && self.is_ours(pod) {
            let vmi = self.instance_of(pod);
            self.machines.see_with(pod, vmi.as_deref(), (self.now)());
        }
    }

    fn instance_of(&self, pod: &Pod) -> Option<Arc<VirtualMachineInstance>> {
        let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true))?;
        let key = Key { namespace: pod.namespace().unwrap_or_default(), name: owner.name.clone() };
        self.vmis.get(&key).filter(|vmi| vmi.metadata.uid.as_ref() == Some(&owner.uid))
    }

    /// Says of a pod that it has ended with its launcher. An instance that is deleted takes its pod with it; any other leaves
    /// one that has ended.
    async fn reconcile_pod(&self, key: &Key) -> Result<Next, kube::Error> {
        let is_over = |pod: &Arc<Pod>| {
            !status::has_ended(pod) && pod.metadata.deletion_timestamp.is_none() && self.machines.has_exited(pod)
        };
        let Some(pod) = self.pods.get(key).filter(is_over) else { return Ok(Next::Wait) };
        let Some(vmi) = self.instance_of(&pod).filter(|vmi| !vmi.is_marked_for_deletion()) else {
            return Ok(Next::Wait);
        };
        let patch = status::ended(&pod, &vmi, (self.now)());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        // The other conditions are others'.
        settled(api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(&patch)).await)
    }

    /// Tells that the node can run guests, and when that was.
    async fn reconcile_node(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(node) = self.nodes.get(key) else {
            self.told(|told| told.remove(&key.name));
            return Ok(Next::Wait);
        };
        let known = self.told(|told| told.get(&key.name).filter(|told| told.uid == node.uid()).cloned());
        if let Some(left) = known.map(|told| told.until.saturating_duration_since(Instant::now()))
            && !left.is_zero()
        {
            return Ok(Next::After(left));
        }
        let api: Api<Node> = Api::all(self.client.clone());
        let written = write_node(&api, &key.name, &register::metadata((self.now)())).await?;
        let Some(node) = written else { return Ok(Next::Wait) };
        if let Some(devices) = register::missing_devices(&node) {
            let written = api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&devices)).await;
            settled(written)?;
        }
        let wait = self.chance.jitter(register::HEARTBEAT, register::JITTER);
        self.told(|told| told.insert(key.name.clone(), Told { uid: node.uid(), until: Instant::now() + wait }));
        Ok(Next::After(wait))
    }

    fn told<R>(&self, look: impl FnOnce(&mut BTreeMap<String, Told>) -> R) -> R {
        look(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The node as it is afterwards; none, if it is gone.
async fn write_node(api: &Api<Node>, name: &str, patch: &Value) -> Result<Option<Node>, kube::Error> {
    match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        written => written.map(Some),
    }
}

/// What is gone needs nothing more, and what another has written in between is looked at again.
fn settled<T>(result: Result<T, kube::Error>) -> Result<Next, kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Next::Wait),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Next::After(LOOK_AGAIN)),
        result => result.map(|_| Next::Wait),
    }
}
