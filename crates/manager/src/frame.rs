//! A program of controllers, from its start to its end.
//!
//! ```text
//! events, checks ──▶ lead? ──▶ the token controller ──▶ the others, one after the other ──▶ watches ──▶ work
//!                      │
//!                      └─ with a migration: a second lease after the first, for the controllers that move
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::Shared;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::Instrument as _;

use crate::caches::Caches;
use crate::clients::{ClientError, Clients};
use crate::context::{Chance, Context, Now, Started};
use crate::descriptor::{Descriptor, Selection};
use crate::events::Recorder;
use crate::gates::Gates;
use crate::leader::{Durations, Election, LeaderError, Renewals};
use crate::migration::{Lock, Migration};
use crate::queue::QueueMetrics;
use crate::serving::Pages;
use crate::stopping::Stopping;

/// Controllers that are asked to end have this long; then they are dropped where they are.
const SLOWEST_END: Duration = Duration::from_secs(5);
/// A leader that could not renew its lease for this much longer than the lease lasts is not well.
const LATEST_RENEWAL: Duration = Duration::from_secs(20);
/// How much more than the interval there may be between the starts of two controllers.
const START_JITTER: f64 = 1.0;

/// A program: its controllers and all that they share.
pub struct Program<S: 'static> {
    /// Its name, such as `kube-controller-manager`.
    pub name: &'static str,
    /// All controllers that it has.
    pub descriptors: &'static [Descriptor<S>],
    /// What is set about them.
    pub settings: S,
    /// Which of them run.
    pub selection: Selection,
    /// Which features are on.
    pub gates: Gates,
    /// Makes their clients.
    pub clients: Clients,
    /// Caches that the programs of a process have in common; without them, it has its own. A watch runs in the program
    /// that was first to ask for it, and ends with that one: programs that share end together.
    pub caches: Option<Caches>,
    /// Whether to lead, and how; without it, they run at once.
    pub leading: Option<Leading>,
    /// Between the starts of two controllers, at least: their first lists do not come all at once.
    pub start_interval: Duration,
    /// What it shows of itself.
    pub pages: Pages,
    /// The time.
    pub now: Now,
    pub chance: Chance,
}

/// How the program is elected.
#[derive(Clone, Debug)]
pub struct Leading {
    /// Where the lease is.
    pub namespace: String,
    /// Its name.
    pub lease: String,
    /// Unlike that of any other process: `host_uuid`.
    pub identity: String,
    /// How long things take.
    pub durations: Durations,
    /// Controllers that move to or from another program.
    pub migration: Option<Migration>,
}

/// Why a program ended other than by being asked to.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A client could not be made.
    #[error("make the client {name}")]
    Client {
        /// Whose.
        name: String,
        source: ClientError,
    },
    /// A controller could not be started.
    #[error("start {name}")]
    Start { name: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
    /// A controller has ended, which none does by itself.
    #[error("{name} has ended")]
    Ended { name: &'static str },
    /// The lease was lost.
    #[error(transparent)]
    Lost(#[from] LeaderError),
}

/// What all controllers of the process share.
struct Common {
    caches: Caches,
    recorder: Recorder,
    queues: QueueMetrics,
}

type Stop = Shared<futures_util::future::BoxFuture<'static, ()>>;

impl<S: Send + Sync> Program<S> {
    /// Runs until `stop` resolves, then lets the controllers finish what they have and gives the lease back.
    ///
    /// # Errors
    /// When a controller cannot start or has ended, or the lease was lost: then the process must end at once.
    pub async fn run(&self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), FrameError> {
        // Several programs may be in one process: every line says which it is of.
        let span = tracing::info_span!("program", component = self.name);
        self.run_all(stop).instrument(span).await
    }

    async fn run_all(&self, stop: impl Future<Output = ()> + Send + 'static) -> Result<(), FrameError> {
        tracing::info!(version = env!("CARGO_PKG_VERSION"), "starting");
        let stop: Stop = stop.boxed().shared();
        let (recorder, writer) = Recorder::new(self.client("events")?, self.name, self.now.clone());
        let caches = match &self.caches {
            Some(shared) => shared.clone(),
            None => Caches::new(self.client("shared-caches")?, self.chance.clone()),
        };
        let common = Common { caches, recorder, queues: QueueMetrics::default() };
        self.pages.registry(|registry| {
            common.queues.register(registry);
            common.caches.register(registry);
            self.clients.requests().register(registry);
        });
        self.pages.set_ready(true);
        let run = async {
            match &self.leading {
                None => self.lead(&common, &self.clients, None, &stop, || {}).await,
                Some(leading) => self.elected(&common, leading, &stop).await,
            }
        };
        let result = tokio::select! {
            biased;
            // The recorder that is kept here keeps its writer.
            () = writer => Ok(()),
            result = run => result,
        };
        self.pages.set_ready(false);
        result
    }

    fn client(&self, name: &str) -> Result<kube::Client, FrameError> {
        self.clients.privileged(name).map_err(|source| FrameError::Client { name: name.to_owned(), source })
    }

    /// Runs under the program's own lease and, after that one was won, under the lease of those that move.
    async fn elected(&self, common: &Common, leading: &Leading, stop: &Stop) -> Result<(), FrameError> {
        let (started, mut main_started) = watch::channel(false);
        let main_lock = leading.migration.as_ref().map(|_| Lock::Main);
        let main = self.under_lease(common, leading, &leading.lease, main_lock, stop, || {
            started.send_replace(true);
        });
        let Some(migration) = &leading.migration else { return main.await };
        let moved = async {
            tokio::select! {
                biased;
                () = stop.clone() => return Ok(()),
                _ = main_started.wait_for(|started| *started) => {}
            }
            let (name, lock) = (&migration.leader_name, Some(Lock::Migration));
            self.under_lease(common, leading, name, lock, stop, || {}).await
        };
        // Whichever is lost, the process ends.
        futures_util::future::try_join(main, moved).await.map(|((), ())| ())
    }

    async fn under_lease(
        &self,
        common: &Common,
        leading: &Leading,
        lease: &str,
        lock: Option<Lock>,
        stop: &Stop,
        started: impl Fn() + Send,
    ) -> Result<(), FrameError> {
        let renewals = Renewals::default();
        let leases: Api<Lease> = Api::namespaced(self.client("leader-election")?, &leading.namespace);
        let (checked, duration) = (renewals.clone(), leading.durations.lease);
        let check = if lock == Some(Lock::Migration) { "leaderElection-migration" } else { "leaderElection" };
        self.pages.check(
            check,
            Arc::new(move || match checked.is_stuck(duration, LATEST_RENEWAL) {
                true => Err("the lease was not renewed in time, but the process is still running".to_owned()),
                false => Ok(()),
            }),
        );
        let name = lease.to_owned();
        let election = Election {
            leases,
            name: name.clone(),
            identity: leading.identity.clone(),
            durations: leading.durations,
            now: self.now.clone(),
            new_leader: Arc::new(move |identity| tracing::info!(lease = name, identity, "a new leader")),
        };
        let clients = self.clients.within(renewals.fence().clone());
        let lead = || async {
            self.pages.set_leading(true);
            let result = self.lead(common, &clients, lock, stop, &started).await;
            self.pages.set_leading(false);
            result
        };
        tokio::select! {
            biased;
            result = election.run(&renewals, lead) => result.map_err(FrameError::from).and_then(|led| led),
            // Only until it leads: whoever leads, or may, ends by itself and gives the lease back.
            () = async { stop.clone().await; renewals.never_led(SLOWEST_END).await } => Ok(()),
        }
    }

    /// Starts the controllers of a lock, or all, and runs them.
    async fn lead(
        &self,
        common: &Common,
        clients: &Clients,
        lock: Option<Lock>,
        stop: &Stop,
        started: impl Fn(),
    ) -> Result<(), FrameError> {
        let stopping = Stopping::default();
        let mut running = JoinSet::new();
        let start = async {
            let (first, rest): (Vec<_>, Vec<_>) =
                self.chosen(lock).into_iter().partition(|descriptor| descriptor.special_handling);
            for descriptor in first {
                // Before all others, and with all rights: it is what gives the others theirs.
                let client = clients.privileged(descriptor.name);
                self.start(descriptor, client, common, &stopping, &mut running)?;
            }
            started();
            for descriptor in rest {
                sleep(self.chance.jitter(self.start_interval, START_JITTER)).await;
                let client = clients.controller(descriptor.name, descriptor.account);
                self.start(descriptor, client, common, &stopping, &mut running)?;
            }
            Ok::<(), FrameError>(())
        };
        tokio::select! {
            biased;
            () = stop.clone() => return Ok(()),
            result = start => result?,
        }
        // Watches start after all controllers have said what they read.
        let watches = common.caches.run();
        tokio::select! {
            biased;
            () = stop.clone() => {}
            Some(ended) = running.join_next() => return Err(FrameError::Ended { name: ended.unwrap_or(PANICKED) }),
            () = async { watches.await; std::future::pending().await } => {}
        }
        tracing::info!("stopping");
        stopping.ask();
        let all_ended = async { while running.join_next().await.is_some() {} };
        if timeout(SLOWEST_END, all_ended).await.is_err() {
            tracing::warn!("some controllers did not end in time");
        }
        Ok(())
    }

    /// The controllers that run; what does not says why.
    fn chosen(&self, lock: Option<Lock>) -> Vec<&'static Descriptor<S>> {
        let allowed = |descriptor: &&'static Descriptor<S>| {
            if let (Some(lock), Some(migration)) = (lock, self.leading.as_ref().and_then(|one| one.migration.as_ref()))
                && migration.lock_of(descriptor, self.name) != lock
            {
                return false;
            }
            let allowed = self.selection.allows(descriptor, |gate| self.gates.is_on(gate));
            if let Err(off) = &allowed {
                tracing::info!(controller = descriptor.name, %off, "a controller is disabled");
            }
            allowed.is_ok()
        };
        self.descriptors.iter().filter(allowed).collect()
    }

    fn start(
        &self,
        descriptor: &'static Descriptor<S>,
        client: Result<kube::Client, ClientError>,
        common: &Common,
        stopping: &Stopping,
        running: &mut JoinSet<&'static str>,
    ) -> Result<(), FrameError> {
        let name = descriptor.name;
        let client = client.map_err(|source| FrameError::Client { name: name.to_owned(), source })?;
        let context = Context {
            client,
            caches: common.caches.clone(),
            recorder: common.recorder.of(name),
            now: self.now.clone(),
            queues: common.queues.clone(),
            chance: self.chance.clone(),
            stopping: stopping.clone(),
        };
        let started = (descriptor.start)(&context, &self.settings);
        let Started { run, debug, health } = started.map_err(|source| FrameError::Start { name, source })?;
        if let Some(debug) = debug {
            self.pages.debug(name, debug);
        }
        // One that cannot tell how it is, is well as long as it runs: when it ends, so does the process.
        self.pages.check(name, health.unwrap_or_else(|| Arc::new(|| Ok(()))));
        let run = async move {
            run.await;
            name
        };
        running.spawn(run.in_current_span());
        tracing::debug!(controller = name, "a controller has started");
        Ok(())
    }
}

/// Stands for the name of a controller that panicked: the panic's own message tells which.
const PANICKED: &str = "a controller, by a panic,";
