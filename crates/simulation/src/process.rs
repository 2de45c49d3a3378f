//! The processes of the control plane: they start, crash at any moment, and start again.

use std::sync::Arc;
use std::time::Duration;

use apiserver::ApiServer;
use kube_controllers::table::Settings;
use manager::context::{Chance, Now};
use tokens::{SignError, Signer};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use virt_handler::hollow::Machines;

use crate::world::World;
use crate::{Options, Scene};

mod elected;
mod hollow;

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    ControllerManager,
    Scheduler,
    VirtController,
    /// All nodes.
    Nodes,
    /// The handlers of some nodes.
    Handlers(&'static [&'static str]),
}

/// The nodes' names.
pub(crate) const NODES: [&str; 3] = ["node-0", "node-1", "node-2"];

/// Two of each that is elected, and one that stands for all nodes.
const WITH_DEPLOYMENTS: [(&str, Role); 5] = [
    ("controllers-0", Role::ControllerManager),
    ("controllers-1", Role::ControllerManager),
    ("scheduler-0", Role::Scheduler),
    ("scheduler-1", Role::Scheduler),
    ("nodes", Role::Nodes),
];

/// Two of what the scene is about. The handlers of one node go without those of the others.
const WITH_VIRTUAL_MACHINES: [(&str, Role); 7] = [
    ("virt-controller-0", Role::VirtController),
    ("virt-controller-1", Role::VirtController),
    ("controllers-0", Role::ControllerManager),
    ("scheduler-0", Role::Scheduler),
    ("nodes", Role::Nodes),
    ("handlers-0", Role::Handlers(&["node-0"])),
    ("handlers-1", Role::Handlers(&["node-1", "node-2"])),
];

/// All processes of a scene.
pub(crate) fn of(scene: Scene) -> Vec<Process> {
    let all: &[(&'static str, Role)] = match scene {
        Scene::Deployments | Scene::Services => &WITH_DEPLOYMENTS,
        Scene::VirtualMachines(_) | Scene::Pools(_) => &WITH_VIRTUAL_MACHINES,
    };
    all.iter().map(|(name, role)| Process::new(name, *role)).collect()
}

/// The image of launchers, which nobody but virt-controller makes pods of.
pub(crate) const LAUNCHER: &str = "launcher:v1";

/// What every namespace is told to trust.
pub(crate) const ROOT_CA: &str = "the authority";

pub(crate) fn settings() -> Settings {
    Settings { root_ca: Some(ROOT_CA.to_owned()), signer: Some(Arc::new(Seal)), ..Settings::default() }
}

/// Signs without a key: a simulation needs none, and its tokens are the same each time.
#[derive(Debug)]
struct Seal;

impl Signer for Seal {
    fn algorithm(&self) -> &'static str {
        "none"
    }

    fn key_id(&self) -> &'static str {
        "seal"
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        Ok(message.len().to_be_bytes().to_vec())
    }
}

/// A process that runs, or crashed.
pub(crate) struct Process {
    pub(crate) name: &'static str,
    role: Role,
    /// How often it was started: each start is another process, with another identity and other chance.
    starts: u64,
    running: Option<JoinHandle<()>>,
    /// Until when nobody starts it again.
    down_until: Option<Instant>,
}

impl Process {
    fn new(name: &'static str, role: Role) -> Self {
        Self { name, role, starts: 0, running: None, down_until: None }
    }

    pub(crate) fn identity(&self) -> String {
        format!("{}-{}", self.name, self.starts)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.is_finished())
    }

    /// Whether somebody may start it now.
    pub(crate) fn may_start(&self) -> bool {
        !self.is_running() && self.down_until.is_none_or(|until| Instant::now() >= until)
    }

    /// It is gone, at whatever it was doing, and stays away for so long.
    pub(crate) fn crash(&mut self, world: &World, away: Duration) {
        self.down_until = Some(Instant::now() + away);
        if let Some(running) = self.running.take() {
            world.note(format!("{} crashes, and is away for {} s", self.name, away.as_secs()));
            running.abort();
        }
    }

    pub(crate) fn start(&mut self, options: &Options, server: &ApiServer, world: &Arc<World>, machines: &Machines) {
        self.starts += 1;
        let identity = self.identity();
        world.note(format!("{identity} starts"));
        let seed = self.starts.wrapping_mul(31).wrapping_add(self.name.bytes().map(u64::from).sum());
        let seed = world.seed.wrapping_add(seed);
        let start = Start { options, server, world, machines, identity, seed, chance: Chance::seeded(seed) };
        let running = match self.role {
            Role::ControllerManager => elected::controller_manager(start),
            Role::Scheduler => elected::scheduler(start),
            Role::VirtController => elected::virt_controller(start),
            Role::Nodes => hollow::nodes(start),
            Role::Handlers(nodes) => hollow::handlers(start, nodes),
        };
        self.running = Some(running);
    }
}

/// What a process starts from.
struct Start<'a> {
    options: &'a Options,
    server: &'a ApiServer,
    world: &'a Arc<World>,
    machines: &'a Machines,
    identity: String,
    /// Of this start alone.
    seed: u64,
    chance: Chance,
}

impl Start<'_> {
    fn now(&self) -> Now {
        let world = self.world.clone();
        Arc::new(move || world.time())
    }
}
