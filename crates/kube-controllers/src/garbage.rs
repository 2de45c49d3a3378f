//! The garbage collector: what has lost its owners goes.
//!
//! ```text
//! discovery --> one watch per resource --> graph of owners and dependents --> queues
//!                                                                               |
//!                     delete, release, unblock, let go  <-- decide <-- ask the server about the owners
//! ```
//!
//! Watches: the metadata of every resource that can be listed, watched and deleted, custom ones too, events apart. Owns:
//! the finalizers `foregroundDeletion` and `orphan`, and references to owners that are gone. Emits: deletions, and the
//! event `OwnerRefInvalidNamespace`.
//!
//! Guarantees:
//! - Nothing is deleted on the graph's word: the server has said of each owner that it is not there, or goes.
//! - Of an owner whose kind is not served nothing is concluded.
//! - An object that orphans its dependents is let go only when every watch has shown all it has, and none refers to it.
//!
//! Absent on purpose: a look at discovery by the clock (definitions are watched), whole objects in memory, and collection
//! on a server without aggregated discovery (Kubernetes before 1.27).

mod absent;
mod act;
mod decide;
mod dot;
mod graph;
#[cfg(test)]
mod graph_tests;
mod observe;
mod pool;
mod requests;
mod served;
mod state;
mod watches;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use manager::context::{Chance, Context};
use manager::events::Recorder;
use manager::kit::is_healthy;
use manager::queue::Queue;
use manager::worker::{About, ObjectName, work};
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use graph::Uid;
use served::Served;
use state::State;

use crate::discovery::Discovery;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "garbage-collector-controller";
const DELETIONS: &str = "garbage_collector_attempt_to_delete";
const ORPHANS: &str = "garbage_collector_attempt_to_orphan";
/// As in Kubernetes: a resource that cannot be read does not keep the others from being collected.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The collector.
#[derive(Clone)]
pub struct GarbageCollector {
    client: Client,
    discovery: Arc<Discovery>,
    chance: Chance,
    recorder: Recorder,
    state: Arc<Mutex<State>>,
    deletions: Queue<Check>,
    orphans: Queue<Uid>,
    /// A definition has changed.
    definitions: Arc<Notify>,
    discovered: watch::Sender<Option<Arc<Served>>>,
    /// Every watch has shown all it has.
    synced: watch::Sender<bool>,
}

/// What a worker looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Check {
    /// Whether an object may stay.
    Item(Uid),
    /// Whether an owner that was not seen is there.
    Owner(Uid),
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(uid) => write!(f, "the object with uid {uid}"),
            Self::Owner(uid) => write!(f, "the owner with uid {uid}"),
        }
    }
}

impl About for Check {
    fn about(&self) -> ObjectName<'_> {
        match self {
            Self::Item(uid) | Self::Owner(uid) => uid.about(),
        }
    }
}

/// Why an object was not dealt with.
#[derive(Debug, thiserror::Error)]
pub enum GarbageError {
    /// The server did not do what it was asked.
    #[error("the server refused")]
    Refused(#[from] kube::Error),
    /// An owner is there, and no watch has shown it yet.
    #[error("the watch has not shown {0} yet")]
    NotSeen(String),
}

impl GarbageCollector {
    /// A collector; it has its own watches.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Self {
            client: context.client.clone(),
            discovery: Arc::new(Discovery::new(context.client.clone())),
            chance: context.chance.clone(),
            recorder: context.recorder.clone(),
            state: Arc::default(),
            deletions: context.queue(DELETIONS),
            orphans: context.queue(ORPHANS),
            definitions: Arc::default(),
            discovered: watch::Sender::new(None),
            synced: watch::Sender::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until the queues are closed.
    pub async fn run(&self, workers: usize) {
        let delete = async {
            self.ready().await;
            let check = |check: Check| {
                let collector = self.clone();
                async move { collector.check(&check).await }
            };
            work(NAME, &self.deletions, workers, check).await;
        };
        let orphan = work(NAME, &self.orphans, workers, |uid: Uid| {
            let collector = self.clone();
            async move { collector.orphan(&uid).await }
        });
        tokio::select! {
            biased;
            () = delete => {}
            () = orphan => {}
            () = self.discover() => {}
            () = self.observe() => {}
        }
    }

    /// Waits for the picture to be complete, but not for ever.
    async fn ready(&self) {
        let (mut discovered, mut synced) = (self.discovered.subscribe(), self.synced.subscribe());
        // The senders live as long as this collector.
        drop(discovered.wait_for(Option::is_some).await);
        tokio::select! {
            biased;
            _ = synced.wait_for(|synced| *synced) => {}
            () = sleep(LONGEST_WAIT) => tracing::warn!("cannot read some resources; the others are collected"),
        }
    }

    /// Whether no object has been worked on for too long.
    ///
    /// # Errors
    /// Says which has.
    pub fn health(&self) -> Result<(), String> {
        is_healthy(&self.deletions)?;
        is_healthy(&self.orphans)
    }

    /// What is shown under `/debug/controllers`: how many nodes there are, or `graph` for Graphviz.
    #[must_use]
    pub fn debug(&self, path: &str) -> Option<String> {
        match path.trim_matches('/') {
            "" => Some(format!("{} nodes\n", self.state().graph.len())),
            "graph" => Some(dot::dot(&self.state().graph)),
            _ => None,
        }
    }
}
