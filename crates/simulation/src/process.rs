//! The processes of the control plane: they start, crash at any moment, and start again.

use std::sync::Arc;
use std::time::Duration;

use apiserver::ApiServer;
use kube_controllers::scheduler::run::{DEFAULT_SCHEDULER, Scheduler};
use kube_controllers::service_account_token::signer::{SignError, Signer};
use kube_controllers::table::Settings;
use manager::caches::Caches;
use manager::clients::Clients;
use manager::context::{Chance, Context, Now, Started};
use manager::descriptor::{Descriptor, Selection};
use manager::events::Recorder;
use manager::fence::Fence;
use manager::frame::{Leading, Program};
use manager::gates::Gates;
use manager::leader::Durations;
use manager::queue::QueueMetrics;
use manager::serving::Pages;
use manager::stopping::Stopping;
use node::hollow::{Behaviour, HollowNodes};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::world::World;
use crate::{Options, wire};

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    ControllerManager,
    Scheduler,
    Nodes,
}

/// All processes: two of each that is elected, and one that stands for all nodes.
pub(crate) const PROCESSES: [(&str, Role); 5] = [
    ("controllers-0", Role::ControllerManager),
    ("controllers-1", Role::ControllerManager),
    ("scheduler-0", Role::Scheduler),
    ("scheduler-1", Role::Scheduler),
    ("nodes", Role::Nodes),
];

/// The nodes' names.
pub(crate) const NODES: [&str; 3] = ["node-0", "node-1", "node-2"];

const SCHEDULERS: &[Descriptor<Settings>] = &[Descriptor::new("scheduler", &[], |context, _| {
    let (scheduler, stopping) = (Scheduler::new(context, DEFAULT_SCHEDULER), context.stopping.clone());
    Ok(Started::new(async move {
        tokio::select! {
            biased;
            () = stopping.asked() => {}
            () = scheduler.run() => {}
        }
    }))
})];

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
    pub(crate) fn new(name: &'static str, role: Role) -> Self {
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

    pub(crate) fn start(&mut self, options: &Options, server: &ApiServer, world: &Arc<World>) {
        self.starts += 1;
        let identity = self.identity();
        world.note(format!("{identity} starts"));
        let (world, server) = (world.clone(), server.clone());
        let seed = self.starts.wrapping_mul(31).wrapping_add(self.name.bytes().map(u64::from).sum());
        let chance = Chance::seeded(world.seed.wrapping_add(seed));
        let running = match self.role {
            Role::ControllerManager => {
                let (table, lease) = (options.controllers, "kube-controller-manager");
                elected(table, lease, options, &server, &world, identity, chance)
            }
            Role::Scheduler => elected(SCHEDULERS, "kube-scheduler", options, &server, &world, identity, chance),
            Role::Nodes => nodes(&server, &world, &identity, chance),
        };
        self.running = Some(running);
    }
}

fn elected(
    descriptors: &'static [Descriptor<Settings>],
    lease: &'static str,
    options: &Options,
    server: &ApiServer,
    world: &Arc<World>,
    identity: String,
    chance: Chance,
) -> JoinHandle<()> {
    let (server, settings) = (server.clone(), options.settings.clone());
    let clients = Clients::given({
        let (world, identity) = (world.clone(), identity.clone());
        move |name, fence| wire::client(&server, &world, &identity, name, Some(lease), fence)
    });
    let world = world.clone();
    let program = Program {
        name: lease,
        descriptors,
        settings,
        selection: Selection::all(),
        gates: Gates::default(),
        clients,
        leading: Some(Leading {
            namespace: "kube-system".to_owned(),
            lease: lease.to_owned(),
            identity: identity.clone(),
            durations: Durations::default(),
            migration: None,
        }),
        start_interval: Duration::from_millis(10),
        pages: Pages::new(lease),
        now: now(&world),
        chance,
    };
    tokio::spawn(async move {
        let result = program.run(std::future::pending()).await;
        world.note(format!("{identity} has ended: {result:?}"));
    })
}

fn now(world: &Arc<World>) -> Now {
    let world = world.clone();
    Arc::new(move || world.time())
}

fn nodes(server: &ApiServer, world: &Arc<World>, identity: &str, chance: Chance) -> JoinHandle<()> {
    let client = |name: &str| wire::client(server, world, identity, name, None, &Fence::default());
    let (recorder, writer) = Recorder::new(client("events"), "kubelet", now(world));
    let caches = Caches::new(client("shared-caches"), chance.clone());
    let context = Context {
        client: client("hollow"),
        caches: caches.clone(),
        recorder,
        now: now(world),
        queues: QueueMetrics::default(),
        chance,
        stopping: Stopping::default(),
    };
    let behaviour =
        Behaviour { start_delay: Duration::from_secs(1), stop_delay: Duration::from_secs(2), ..Behaviour::default() };
    let nodes = HollowNodes::new(&context, NODES.map(ToOwned::to_owned), behaviour);
    let world = world.clone();
    tokio::spawn(async move {
        // Its recorder keeps the writer of events.
        let _context = context;
        tokio::select! {
            biased;
            () = nodes.run() => world.note("the nodes have ended".to_owned()),
            () = caches.run() => {}
            () = writer => {}
        }
    })
}
