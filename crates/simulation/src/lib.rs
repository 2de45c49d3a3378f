//! A whole control plane in one thread, on a clock that only moves when everybody waits, with faults by seed.
//!
//! ```text
//! user ─────────────────────────┐
//! controller-manager ───────┐   ▼
//! scheduler ────────────────┼─ wire ──▶ API server (memory) ──▶ witness: what must hold, after every event
//! virt-controller ──────────┤   │
//! virt-handler, hollow nodes┘   └─ delays, refusals, lost requests and answers, cut watches, partitions, crashes
//!      └── simulated launchers ──▶ ledger: who may write, who could go on
//! ```
//! There are four scenes: deployments and what every cluster has, services and disruption budgets, virtual machines, and pools of
//! them. Which processes there are, what the user does and what must hold is a scene's own; all else is shared.
//!
//! Guarantees: the same seed gives the same requests in the same order, to the last byte of the log.
//! Absent on purpose: any knowledge of one controller's inside; what is checked is what a user could see.

mod chance;
mod kinds;
mod ledger;
mod log;
mod machines;
mod process;
mod progress;
mod rights;
mod scenario;
mod settled;
mod travels;
mod wire;
mod witness;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;

use kube_controllers::table::{DESCRIPTORS, Settings};
use manager::descriptor::Descriptor;
use manager::errors::chain;
use virt_handler::hollow::Twin;

pub use log::{About, Entry, Log};
pub use progress::Progress;
pub use rights::Right;

/// What is simulated.
#[derive(Clone)]
pub struct Options {
    /// All chance comes from it.
    pub seed: u64,
    /// The controllers; a test replaces one by a broken one.
    pub controllers: &'static [Descriptor<Settings>],
    /// What is set about them.
    pub settings: Settings,
    /// What the user works with.
    pub scene: Scene,
    /// Whether a fence holds back what a process sends that does not lead any more; a test goes without.
    pub fenced: bool,
    /// Whether to keep what controllers log, too: slower, for a seed that fails.
    pub trace: bool,
}

/// What the user works with, and so which processes there are.
#[derive(Clone, Copy)]
pub enum Scene {
    /// Deployments, families of objects, kinds of the user's own.
    Deployments,
    /// Services, replication controllers and disruption budgets.
    Services,
    /// Virtual machines and their instances.
    VirtualMachines(VirtualMachines),
    /// Pools of virtual machines, with these controllers; a test replaces one by a broken one.
    Pools(&'static [Descriptor<virt_controller::Settings>]),
}

impl Scene {
    /// What is set about guests, where there are any.
    fn guests(self) -> Option<VirtualMachines> {
        match self {
            Self::Deployments | Self::Services => None,
            Self::VirtualMachines(scene) => Some(scene),
            Self::Pools(controllers) => Some(VirtualMachines { controllers, by_force: false, handlers: Twin::None }),
        }
    }
}

/// The scene of virtual machines.
#[derive(Clone, Copy)]
pub struct VirtualMachines {
    /// Their controllers; a test replaces one by a broken one.
    pub controllers: &'static [Descriptor<virt_controller::Settings>],
    /// Whether the user takes pods away by force. Who does that says that their guests have ended, and nobody can tell: so it
    /// is not checked then that a disk has one writer.
    pub by_force: bool,
    /// The handlers; a test has broken ones.
    pub handlers: Twin,
}

impl Options {
    /// Deployments, with all controllers as they are.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let (controllers, settings) = (DESCRIPTORS, process::settings());
        Self { seed, controllers, settings, scene: Scene::Deployments, fenced: true, trace: false }
    }

    /// Services and budgets, with all controllers as they are.
    #[must_use]
    pub fn services(seed: u64) -> Self {
        Self { scene: Scene::Services, ..Self::seeded(seed) }
    }

    /// Virtual machines, with all controllers as they are.
    #[must_use]
    pub fn virtual_machines(seed: u64) -> Self {
        let scene =
            VirtualMachines { controllers: virt_controller::DESCRIPTORS, by_force: false, handlers: Twin::None };
        Self { scene: Scene::VirtualMachines(scene), ..Self::seeded(seed) }
    }

    /// Pools of virtual machines, with all controllers as they are.
    #[must_use]
    pub fn pools(seed: u64) -> Self {
        Self { scene: Scene::Pools(virt_controller::DESCRIPTORS), ..Self::seeded(seed) }
    }

    /// The test that runs the scene.
    fn test(&self) -> &'static str {
        match self.scene {
            Scene::Deployments => "seeds",
            Scene::Services => "services",
            Scene::VirtualMachines(_) => "virtual_machines",
            Scene::Pools(_) => "vm_pools",
        }
    }
}

/// What must hold and did not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("after {at} s: {what}")]
pub struct Violation {
    /// Seconds since the start.
    pub at: Seconds,
    /// What it was.
    pub what: String,
    /// Which object it is about, if it is about one.
    pub about: Option<About>,
}

/// Seconds of simulated time, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What did not hold, in the order in which it was found. In the middle of a run the first ends it.
    pub violations: Vec<Violation>,
    /// What came about.
    pub progress: Progress,
    /// All requests, in the order of their answers.
    pub log: Log,
    /// What the processes asked for, each thing once.
    pub rights: BTreeSet<Right>,
    /// How long it took by the simulated clock.
    pub lasted: Seconds,
}

/// Runs one seed.
///
/// # Errors
/// When the simulation itself cannot run: the runtime or the server does not start.
pub fn run(options: &Options) -> Result<Outcome, SimulationError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(SimulationError::Runtime)?;
    let world = Arc::new(world::World::new(options.seed, options.scene));
    let _collector = options.trace.then(|| log::collect(&world));
    let progress = runtime.block_on(scenario::play(options, &world))?;
    let lasted = runtime.block_on(async { world.now() });
    let (rights, log) = (world.take_rights(), world.take_log());
    Ok(Outcome { violations: world.violations(), progress, log, rights, lasted })
}

/// Why there is no outcome.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// No runtime.
    #[error("start the runtime")]
    Runtime(#[source] std::io::Error),
    /// No server.
    #[error("start the server")]
    Server(#[from] virt_server::StartError),
    /// No kinds of virtual machines.
    #[error("make the kinds of virtual machines")]
    Kinds(#[from] api::crd::CrdError),
    /// The user, who meets no faults, was refused.
    #[error("the user's request")]
    User(#[from] kube::Error),
}

/// Runs a seed.
///
/// # Errors
/// A text for people, with the trace and how to repeat it, when something did not hold.
pub fn check_once(options: &Options) -> Result<Outcome, String> {
    let outcome = run(options).map_err(|error| format!("seed {}: {}", options.seed, chain(&error)))?;
    match outcome.violations.first() {
        None => Ok(outcome),
        Some(violation) => Err(report(options, &outcome, violation)),
    }
}

/// Runs a seed twice and compares: the same seed must give the same requests.
///
/// # Errors
/// A text for people, with the trace and how to repeat it, when something did not hold.
pub fn check(options: &Options) -> Result<Outcome, String> {
    let first = check_once(options)?;
    let second = run(options).map_err(|error| format!("seed {}: {}", options.seed, chain(&error)))?;
    match first.log.first_difference(&second.log) {
        None => Ok(first),
        Some((index, one, other)) => {
            Err(format!("seed {} is not repeatable: request {index} was\n  {one}\nand then\n  {other}", options.seed))
        }
    }
}

/// Repeats the run with all that was logged, and tells the end of what has to do with the broken object.
fn report(options: &Options, outcome: &Outcome, violation: &Violation) -> String {
    let traced = Options { trace: true, ..options.clone() };
    let log = run(&traced).map(|outcome| outcome.log).unwrap_or_default();
    let lines = log.concerning(violation.about.as_ref());
    // The end tells the most; all of it would hide it.
    let shown = lines.get(lines.len().saturating_sub(MOST_LINES)..).unwrap_or_default();
    let left_out = log.len() - shown.len();
    let shown = shown.iter().fold(String::new(), |text, line| text + "  " + line + "\n");
    let about = violation.about.as_ref().map_or("leases and events apart".to_owned(), |about| format!("about {about}"));
    format!(
        "seed {seed}, {violation}\n{progress}\nrequests and decisions before that, {about} ({left_out} others left out):\n\
         {shown}repeat it with ORLOP_SIM_SEED={seed} .ci/suites {test}",
        seed = options.seed,
        progress = outcome.progress,
        test = options.test(),
    )
}

const MOST_LINES: usize = 300;
