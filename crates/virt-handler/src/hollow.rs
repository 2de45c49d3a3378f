//! Hollow handlers: real objects, simulated domains.
//!
//! Watches: VirtualMachineInstance, launcher Pod, Node. Owns: the status of instances from `Scheduled` on, labels, heartbeat
//! and devices of the given nodes. Emits: one write per change of a phase, one for the end of a launcher, and a heartbeat per
//! node and minute.
//!
//! Absent on purpose: instances before `Scheduled`, finalizers, nodes themselves; a pod that is gone. All that is
//! virt-controller's and the node's.
//!
//! Two annotations on an instance tell what becomes of its guest, whatever the [`Behaviour`] says:
//! - `orlop.io/hollow-run-for`: how long it runs before it ends by itself, such as `5s`;
//! - `orlop.io/hollow-fate`: `succeed` (it powers off), `crash` (it runs, then fails), `fail-to-start` (it fails without ever
//!   running), `hang` (it does not react when it is to shut down, and is killed when its grace period is over).
//!
//! A guest that succeeds or crashes does so at once if nobody says how long it runs.

mod decide;
mod fate;
mod register;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::names::annotation;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key, controller_of};
use manager::context::{Chance, Context, Now};
use manager::queue::Queue;
use manager::worker::{About, Next, ObjectName, work};
use serde_json::Value;
use tokio::time::Instant;

use decide::{Plan, Seen, decide};
use fate::Life;

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
    behaviour: Arc<Behaviour>,
    vmis: Cache<VirtualMachineInstance>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    queue: Queue<Work>,
    now: Now,
    chance: Chance,
    /// Which guests have which luck.
    luck: u64,
    /// When each node is to be told of next.
    told: Arc<Mutex<BTreeMap<String, Told>>>,
}

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// First: what does not come in time is a lost node.
    Node(Key),
    Instance(Key),
}

impl About for Work {
    fn about(&self) -> ObjectName<'_> {
        match self {
            Self::Node(key) | Self::Instance(key) => key.about(),
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
/// Between a conflict and the next look: what another has written is on its way to the cache.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Launcher pods, by the label that they have.
const LAUNCHERS: &str = "kubevirt.io=virt-launcher";
/// Pods by the UID of the instance that controls them.
const CONTROLLER: &str = "controller";

impl HollowHandlers {
    /// The handlers of nodes of these names; they read from the context's caches.
    #[must_use]
    pub fn new(context: &Context, names: impl IntoIterator<Item = String>, behaviour: Behaviour) -> Self {
        Self {
            client: context.client.clone(),
            names: Arc::new(names.into_iter().collect()),
            behaviour: Arc::new(behaviour),
            vmis: context.caches.of(&[]),
            pods: context.caches.selected(LAUNCHERS, &[(CONTROLLER, controller_of)]),
            nodes: context.caches.of(&[]),
            queue: context.queue("hollow-handlers"),
            now: context.now.clone(),
            chance: context.chance.clone(),
            luck: context.chance.number(),
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
                    Work::Instance(key) => handlers.reconcile(&key).await,
                }
            }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.feed_nodes() => {}
            () = self.feed_instances() => {}
            () = self.feed_pods() => {}
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

    async fn feed_instances(&self) {
        let mut changes = self.vmis.subscribe();
        loop {
            let change = changes.next().await;
            if change.new.is_some_and(|vmi| self.is_ours(&vmi)) {
                self.queue.add(Work::Instance(change.key));
            }
        }
    }

    async fn feed_pods(&self) {
        let mut changes = self.pods.subscribe();
        loop {
            // A pod that is gone is no news for a node.
            let Some(pod) = changes.next().await.new else { continue };
            let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
            if let Some(owner) = owner.filter(|owner| owner.kind == "VirtualMachineInstance") {
                let namespace = pod.namespace().unwrap_or_default();
                self.queue.add(Work::Instance(Key { namespace, name: owner.name.clone() }));
            }
        }
    }

    fn is_ours(&self, vmi: &VirtualMachineInstance) -> bool {
        let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
        node.is_some_and(|node| self.names.contains(node))
    }

    /// The pod of an instance on its node; one that still runs before one that has ended.
    fn launcher(&self, vmi: &VirtualMachineInstance) -> Option<Arc<Pod>> {
        let node = vmi.status.as_ref().and_then(|status| status.node_name.as_ref());
        let mut pods = self.pods.find(CONTROLLER, vmi.metadata.uid.as_deref().unwrap_or_default());
        pods.retain(|pod| {
            let bound = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            bound == node && !pod.annotations().contains_key(annotation::EPHEMERAL_PROVISIONING)
        });
        pods.into_iter().min_by_key(|pod| status::has_ended(pod))
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(vmi) = self.vmis.get(key).filter(|vmi| self.is_ours(vmi)) else { return Ok(Next::Wait) };
        let pod = self.launcher(&vmi);
        let life = Life::of(&vmi, &self.behaviour, self.luck);
        let seen = Seen { vmi: &vmi, pod: pod.as_deref(), life, behaviour: &self.behaviour };
        let now = (self.now)();
        match decide(&seen, now) {
            Plan::Nothing => Ok(Next::Wait),
            Plan::Later(after) => Ok(Next::After(after)),
            Plan::Enter(phase) => {
                let patch = status::enter(&vmi, pod.as_deref(), &phase, now);
                let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &key.namespace);
                settled(api.patch(&key.name, &PatchParams::default(), &Patch::Merge(&patch)).await)
            }
            Plan::EndPod => {
                let Some(pod) = pod else { return Ok(Next::Wait) };
                let patch = status::ended(&pod, &vmi, now);
                let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
                // The other conditions are others'.
                settled(api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&patch)).await)
            }
        }
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
