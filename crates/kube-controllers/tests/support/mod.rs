//! What the tests of all controllers start from: the embedded API server under a paused clock.

use apiserver::{ApiServer, Clock, Identity, InProcess, Place};
use jiff::Timestamp;
use kube::Client;
use manager::caches::Caches;
use manager::context::{Chance, Context};
use manager::events::Recorder;
use manager::queue::QueueMetrics;
use manager::stopping::Stopping;
use std::sync::Arc;
use tokio::time::Instant;

/// A server, and a context with all rights on it. Events are written at once.
pub(crate) async fn context() -> Context {
    context_of(|server| Client::new(server, "default")).await
}

/// The same, with a client that the test makes: to count requests, or to lose some.
pub(crate) async fn context_of(client: impl FnOnce(InProcess) -> Client) -> Context {
    let started = Instant::now();
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    let server = ApiServer::builder(Place::Memory).clock(clock).seed(1).start().await.unwrap();
    let client = client(server.for_identity(Identity::admin()));
    let now: manager::context::Now = Arc::new(move || Timestamp::UNIX_EPOCH + started.elapsed());
    let (recorder, writer) = Recorder::new(client.clone(), "test", now.clone());
    tokio::spawn(writer);
    let chance = Chance::seeded(1);
    let caches = Caches::new(client.clone(), chance.clone());
    Context { client, caches, recorder, now, queues: QueueMetrics::default(), chance, stopping: Stopping::default() }
}

/// Starts the watches, after all controllers have said what they read.
pub(crate) fn watch(context: &Context) {
    let caches = context.caches.clone();
    tokio::spawn(async move { caches.run().await });
}
