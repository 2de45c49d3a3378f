//! What a controller is started with, and what it gives back.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::caches::Caches;
use crate::events::Recorder;
use crate::queue::{Backoff, Queue, QueueMetrics};
use crate::stopping::Stopping;

/// Tells the time. A simulation passes its own.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What a controller is started with.
#[derive(Clone)]
pub struct Context {
    /// Its own client: its own name, its own rights where service accounts are on, the rate limit that all share.
    pub client: Client,
    /// The caches of the process. Whoever reads a kind asks for it at the start, before the watches run.
    pub caches: Caches,
    /// Writes events in the controller's name.
    pub recorder: Recorder,
    /// The time.
    pub now: Now,
    /// Where queues are counted.
    pub queues: QueueMetrics,
    pub chance: Chance,
    /// Tells when to end.
    pub stopping: Stopping,
}

impl Context {
    /// A queue, counted under its name, and closed at the end.
    #[must_use]
    pub fn queue<K: Ord + Clone + Debug + Send + 'static>(&self, name: &str) -> Queue<K> {
        let queue = Queue::new(name, Backoff::default(), &self.queues);
        self.stopping.closes(&queue);
        queue
    }
}

/// A controller that was started.
pub struct Started {
    /// Its work; ends only when it cannot go on.
    pub run: BoxFuture<'static, ()>,
    /// What it shows under `/debug/controllers/NAME`.
    pub debug: Option<Debugging>,
    /// Whether it is well, if it can tell; one that cannot is well as long as it runs.
    pub health: Option<HealthCheck>,
}

/// Answers what follows the controller's name in the path, or none.
pub type Debugging = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;
/// Tells what is wrong.
pub type HealthCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

impl Started {
    /// A controller that only works.
    pub fn new(run: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { run: Box::pin(run), debug: None, health: None }
    }

    /// A controller that is dropped wherever it is when the program is asked to end: it has nothing to finish.
    pub fn until_stopped(context: &Context, run: impl Future<Output = ()> + Send + 'static) -> Self {
        let stopping = context.stopping.clone();
        Self::new(async move {
            tokio::select! {
                biased;
                () = stopping.asked() => {}
                () = run => {}
            }
        })
    }

    /// Shows something.
    #[must_use]
    pub fn debug(self, debug: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { debug: Some(Arc::new(debug)), ..self }
    }

    /// Tells how it is.
    #[must_use]
    pub fn health(self, health: impl Fn() -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { health: Some(Arc::new(health)), ..self }
    }
}

/// A source of chance that repeats by its seed. Clones share it.
#[derive(Clone, Debug)]
pub struct Chance(Arc<Mutex<StdRng>>);

impl Chance {
    /// Repeats by the seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// As the machine gives it.
    #[must_use]
    pub fn of_the_machine() -> Self {
        Self(Arc::new(Mutex::new(rand::make_rng())))
    }

    /// At least the whole, and up to so much of it more: what is spread does not come all at once. Whole milliseconds, as
    /// timers have them: less would make two runs of one seed differ.
    #[must_use]
    pub fn jitter(&self, whole: Duration, more: f64) -> Duration {
        let random: f64 = self.0.lock().unwrap_or_else(PoisonError::into_inner).random();
        let millis = whole.mul_f64(random.mul_add(more.max(0.0), 1.0)).as_millis();
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    /// From 0 to below 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).random()
    }

    /// A number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).random()
    }
}
