//! A world for controllers: the embedded API server in memory, under a paused clock, and what controllers are given.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::{ApiServer, Clock, Identity, InProcess, Place};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Client};
use manager::caches::Caches;
use manager::context::{Chance, Context, Now};
use manager::events::Recorder;
use manager::queue::QueueMetrics;
use manager::stopping::Stopping;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tower::util::MapRequest;

/// Between two turns while time passes.
const STEP: Duration = Duration::from_millis(10);

/// An API server and its time, which begins with 1970.
#[derive(Clone)]
pub struct World {
    server: ApiServer,
    /// Tells the time.
    pub now: Now,
}

impl World {
    /// Begins, now.
    ///
    /// # Panics
    /// When the server does not start.
    pub async fn start() -> Self {
        let started = Instant::now();
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let server = ApiServer::builder(Place::Memory).clock(clock).seed(1).start().await.unwrap();
        Self { server, now: Arc::new(move || Timestamp::UNIX_EPOCH + started.elapsed()) }
    }

    /// The server as its admin sees it.
    #[must_use]
    pub fn service(&self) -> InProcess {
        self.server.for_identity(Identity::admin())
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.service(), "default")
    }

    /// A client with all rights whose requests are noted.
    #[must_use]
    pub fn noted(&self) -> (Client, Notes) {
        let notes = Notes::default();
        let noting = notes.clone();
        let service = MapRequest::new(self.service(), move |request: http::Request<kube::client::Body>| {
            let line = format!("{} {}", request.method(), request.uri().path());
            noting.0.lock().unwrap().push(line);
            request
        });
        (Client::new(service, "default"), notes)
    }

    /// Defines the kinds of virtual machines that are named, or all.
    ///
    /// # Panics
    /// When the server refuses one.
    pub async fn define(&self, kinds: &[&str]) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client());
        for definition in api::crd::all().unwrap() {
            if kinds.is_empty() || kinds.contains(&definition.spec.names.kind.as_str()) {
                definitions.create(&PostParams::default(), &definition).await.unwrap();
            }
        }
    }

    /// What a controller is given, with this client.
    #[must_use]
    pub fn context(&self, client: Client) -> Context {
        context(client, self.now.clone(), "test").0
    }
}

/// A world, and what a controller is given in it: all rights.
pub async fn start() -> Context {
    start_with(|server| Client::new(server, "default")).await
}

/// The same, with a client that the test makes: to count requests, or to lose some.
pub async fn start_with(client: impl FnOnce(InProcess) -> Client) -> Context {
    let world = World::start().await;
    world.context(client(world.service()))
}

/// What a controller of this name is given; its events are written as long as the task runs.
#[must_use]
pub fn context(client: Client, now: Now, name: &str) -> (Context, JoinHandle<()>) {
    let (recorder, writer) = Recorder::new(client.clone(), name, now.clone());
    let chance = Chance::seeded(1);
    let caches = Caches::new(client.clone(), chance.clone());
    let (queues, stopping) = (QueueMetrics::default(), Stopping::default());
    (Context { client, caches, recorder, now, queues, chance, stopping }, tokio::spawn(writer))
}

/// Starts the watches, after all controllers have said what they read.
pub fn watch(context: &Context) -> JoinHandle<()> {
    let caches = context.caches.clone();
    tokio::spawn(async move { caches.run().await })
}

/// Requests, as `METHOD path`.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// The writes since the last time, events apart.
    ///
    /// # Panics
    /// When a thread has that noted some.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        let all = std::mem::take(&mut *self.0.lock().unwrap());
        all.into_iter().filter(|request| !request.starts_with("GET ") && !request.ends_with("/events")).collect()
    }
}

/// Lets time pass. Not at one go: whoever waits for a socket, which knows no paused clock, gets its turn all the while,
/// so that what takes an instant takes no more than that.
pub async fn seconds(count: u64) {
    let end = Instant::now() + Duration::from_secs(count);
    while Instant::now() < end {
        sleep(STEP).await;
    }
}

/// Looks again and again, while time passes, until there is something to see.
///
/// # Panics
/// When there is nothing after an hour.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(3600);
    while Instant::now() < end {
        if let Some(found) = look().await {
            return found;
        }
        sleep(STEP).await;
    }
    panic!("it does not come: {what}")
}
