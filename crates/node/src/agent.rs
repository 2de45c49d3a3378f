//! The agent of a real node: what a kubelet does for pods.
//!
//! Watches: pods that are bound to its node, the Node. Owns: the Node and its lease, the status of its pods, everything below the
//! kubelet's root directory, sandboxes, their network. Emits: events as a kubelet, one status write per real change of a pod.
//!
//! ```text
//! pods of this node ─┐
//! shims' states ─────┼─▶ queue ─▶ one worker per pod: observe, decide (pure), act ─▶ runtime, images, network, API
//! probes, pulls ─────┘                                   │
//!                                                        └─ written down before it is done: pods/UID/orlop.json
//! ```
//!
//! # Guarantees
//! - The agent may be killed at any instruction: pods go on running, and the next agent adopts them.
//! - A pod that takes the name of another is not begun while anything of that other is left on this machine.
//! - See [`decide`] for what holds of one pod.

mod adopt;
mod backoff;
mod claims;
mod container;
mod decide;
mod devices;
mod dns;
pub mod logs;
mod machine;
mod node;
pub mod output;
pub mod parts;
mod pod;
mod probes;
mod pulls;
mod real;
mod record;
mod segment;
mod status;
mod view;
mod volumes;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::{Context, Now};
use manager::events::Recorder;
use manager::queue::Queue;
use manager::worker::{About, ObjectName, work};
use manager::writing::OwnWrites;
use storage::pull::Registries;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::sleep;

use crate::runtime::spec::{ContainerState, PodState};
use decide::NodeFacts;
use devices::Devices;
use machine::Users;
use parts::{Failure, Identities, ImageStore, PodNetwork, PodRuntime};
use pod::Entry;
use pulls::Pulls;

pub use dns::name_servers;
pub use machine::MachineImage;

/// Pods that are worked on at the same time. What takes long, such as a pull, is not waited for by a worker.
const WORKERS: usize = 32;
/// Between two attempts of what the agent cannot do without.
const PAUSE: Duration = Duration::from_secs(1);

/// How a node is run.
#[derive(Clone)]
pub struct Settings {
    /// The node's name.
    pub node: String,
    /// The kubelet's root directory.
    pub root: PathBuf,
    /// Where the logs of containers go: `NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log`.
    pub logs: PathBuf,
    pub runtime: Arc<dyn PodRuntime>,
    /// Keeps images.
    pub images: Arc<dyn ImageStore>,
    /// How registries are asked.
    pub registries: Registries,
    /// Connects pods; without one they have a loopback and nothing else.
    pub network: Option<Arc<dyn PodNetwork>>,
    /// Knows which pods come back to addresses; without it none does.
    pub identities: Option<Arc<dyn Identities>>,
    /// The machine's own programs.
    pub machine: MachineImage,
    /// The machine's resolver.
    pub resolv_conf: PathBuf,
    /// Bytes of the machine's memory that pods do not get.
    pub reserved_memory: u64,
    /// Nodes that share this machine: each offers its equal share.
    pub nodes: NonZeroU32,
    /// The node's addresses.
    pub addresses: Vec<IpAddr>,
    /// Where pods reach the API server; without it they are not told.
    pub api_server: Option<SocketAddr>,
    /// Further labels of the node.
    pub labels: BTreeMap<String, String>,
}

/// Makes volumes that are mounted while a pod runs seen by it, whatever the machine's own mounts are like. What it mounts is
/// at `pods` below the kubelet's root directory; whoever stops everything unmounts it.
///
/// # Errors
/// When the directory cannot be made or mounted.
pub fn share_pods(root: &std::path::Path) -> Result<(), Failure> {
    let folder = root.join("pods");
    let made = volumes::mounting::folder(&folder, 0o755).and_then(|()| volumes::mounting::share(&folder));
    made.map_err(|error| Failure::of(&error))
}

/// Unmounts what an agent and its pods have mounted below a directory, the innermost first, when all of them have ended.
///
/// # Errors
/// When a mount cannot be undone.
pub fn unmount_below(folder: &std::path::Path) -> Result<(), Failure> {
    volumes::mounting::unmount_below(folder).map_err(|error| Failure::of(&error))
}

/// A pod, and no other of its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Which {
    namespace: String,
    name: String,
    uid: String,
}

impl Which {
    fn of(pod: &Pod) -> Self {
        let namespace = pod.namespace().unwrap_or_default();
        Self { namespace, name: pod.name_any(), uid: pod.uid().unwrap_or_default() }
    }

    fn key(&self) -> Key {
        Key { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

impl About for Which {
    fn about(&self) -> ObjectName<'_> {
        ObjectName { namespace: &self.namespace, name: &self.name, uid: &self.uid }
    }
}

/// The agent of one node. Clones are the same agent.
#[derive(Clone)]
pub struct Agent {
    shared: Arc<Shared>,
}

/// What all of the agent has in common.
struct Shared {
    settings: Settings,
    client: Client,
    recorder: Recorder,
    now: Now,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    queue: Queue<Which>,
    place: NodeFacts,
    machine: node::Machine,
    users: Users,
    devices: Devices,
    pulls: Pulls,
    entries: Mutex<BTreeMap<Which, Arc<AsyncMutex<Entry>>>>,
    writes: Mutex<OwnWrites<Which>>,
}

impl Agent {
    /// An agent for the node that the settings name; it reads from the context's caches.
    #[must_use]
    pub fn new(context: &Context, settings: Settings) -> Self {
        let records = record::all(&settings.root).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the records of an earlier agent");
            Vec::new()
        });
        let taken = records.iter().filter_map(|record| Some((record.uid.clone(), record.user?))).collect();
        let place = NodeFacts {
            addresses: settings.addresses.clone(),
            runtime: settings.runtime.name(),
            machine: settings.machine.name.clone(),
        };
        let shared = Shared {
            client: context.client.clone(),
            recorder: context.recorder.of("kubelet"),
            now: context.now.clone(),
            pods: context.caches.with_fields(&format!("spec.nodeName={}", settings.node), &[]),
            nodes: context.caches.with_fields(&format!("metadata.name={}", settings.node), &[]),
            queue: context.queue("node-agent"),
            place,
            machine: node::Machine::read(&settings.root, settings.reserved_memory, settings.nodes),
            users: Users::new(settings.machine.users.clone(), taken),
            devices: Devices::new(&settings.root),
            pulls: Pulls::default(),
            entries: Mutex::default(),
            writes: Mutex::default(),
            settings,
        };
        let agent = Self { shared: Arc::new(shared) };
        for record in records {
            agent.shared.know(record);
        }
        agent
    }

    /// Runs until the queue is closed.
    pub async fn run(&self) {
        let shared = &self.shared;
        while let Err(error) = adopt::adopt(shared).await {
            tracing::warn!(%error, "cannot adopt the pods of an earlier agent");
            sleep(PAUSE).await;
        }
        shared.pods.synced().await;
        adopt::enqueue_all(shared);
        let feed = async {
            let mut changes = shared.pods.subscribe();
            loop {
                let change = changes.next().await;
                for pod in change.old.iter().chain(&change.new) {
                    shared.queue.add(Which::of(pod));
                }
            }
        };
        let work = work("node-agent", &shared.queue, WORKERS, |which: Which| {
            let shared = shared.clone();
            async move { pod::reconcile(&shared, &which).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = feed => {}
            () = claims::follow(shared) => {}
            () = node::keep(shared) => {}
            () = shared.devices.serve() => {}
            () = node::collect_images(shared) => {}
        }
    }

    /// A container's log, as `pods/NAME/log` has it. Following ends with the container.
    ///
    /// # Errors
    /// When there is no such log.
    pub async fn logs(
        &self,
        pod: &Pod,
        container: &str,
        options: &logs::Options,
    ) -> Result<logs::Lines, logs::LogError> {
        let which = Which::of(pod);
        let entry = self.shared.entries().get(&which).cloned();
        let states = match &entry {
            Some(entry) => entry.lock().await.states(),
            None => None,
        };
        let image = pod.spec.as_ref().and_then(|spec| output::image_of(spec, container)).unwrap_or_default();
        let (container, options) = output::read(container, image, options.clone());
        let name = container.to_owned();
        let ended = Box::pin(async move {
            let Some(mut states) = states else { return };
            let over = |state: &PodState| state.lost || state.containers.get(&name).is_none_or(ContainerState::is_over);
            // A shim that is gone has nothing more to tell, either.
            drop(states.wait_for(over).await);
        });
        let folder = self.shared.logs_of(&which).join(container);
        logs::read(&folder, &options, ended, (self.shared.now)())
    }
}

impl Shared {
    fn entries(&self) -> std::sync::MutexGuard<'_, BTreeMap<Which, Arc<AsyncMutex<Entry>>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn logs_of(&self, which: &Which) -> PathBuf {
        self.settings.logs.join(format!("{}_{}_{}", which.namespace, which.name, which.uid))
    }

    /// Takes in a record of an earlier agent.
    fn know(&self, record: record::Record) -> Which {
        let which = Which { namespace: record.namespace.clone(), name: record.name.clone(), uid: record.uid.clone() };
        self.entries().entry(which.clone()).or_insert_with(|| Arc::new(AsyncMutex::new(Entry::of(record))));
        which
    }
}
