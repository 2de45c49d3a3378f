//! A world for controllers: the embedded API server in memory, under a paused clock, and what controllers are given.
//!
//! The server admits virtual machines and knows the roles of our programs, as everywhere else. A program that asks for what its
//! role does not allow fails the test: the next request of the test itself panics, and says what was missing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::{ApiServer, Attributes, Clock, Decision, Identity, InProcess, Place};
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
use virt_server::{Component, Settings};

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
        let lacking = Lacking::default();
        let builder = ApiServer::builder(Place::Memory).clock(clock).seed(1);
        let builder = builder.on_decision(move |who, what, decision| lacking.heed(who, what, decision));
        let settings = Settings { kinds: Vec::new(), chance: Chance::seeded(1), machine_image: None, guests: None };
        let server = virt_server::start(builder, settings).await.unwrap();
        Self { server, now: Arc::new(move || Timestamp::UNIX_EPOCH + started.elapsed()) }
    }

    /// The server as its admin sees it.
    #[must_use]
    pub fn service(&self) -> InProcess {
        self.server.for_identity(Identity::admin())
    }

    /// The server as somebody sees it.
    #[must_use]
    pub fn service_as(&self, identity: Identity) -> InProcess {
        self.server.for_identity(identity)
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.service(), "default")
    }

    /// A client with the rights of a program.
    #[must_use]
    pub fn client_of(&self, component: &Component) -> Client {
        Client::new(self.service_as(component.identity()), "default")
    }

    /// A client with the rights of a program whose requests are noted.
    #[must_use]
    pub fn noted(&self, component: &Component) -> (Client, Notes) {
        let notes = Notes::default();
        let noting = notes.clone();
        let service = MapRequest::new(
            self.service_as(component.identity()),
            move |request: http::Request<kube::client::Body>| {
                let line = format!("{} {}", request.method(), request.uri().path());
                noting.0.lock().unwrap().push(line);
                request
            },
        );
        (Client::new(service, "default"), notes)
    }

    /// Defines the kinds of virtual machines and of storage that are named, or all of virtual machines.
    ///
    /// # Panics
    /// When the server refuses one.
    pub async fn define(&self, kinds: &[&str]) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client());
        let storage = api::crd::storage().unwrap().into_iter().filter(|_| !kinds.is_empty());
        for definition in api::crd::all().unwrap().into_iter().chain(storage) {
            if kinds.is_empty() || kinds.contains(&definition.spec.names.kind.as_str()) {
                definitions.create(&PostParams::default(), &definition).await.unwrap();
            }
        }
    }

    /// What a program is given.
    #[must_use]
    pub fn program(&self, component: &Component) -> Context {
        self.context(self.client_of(component))
    }

    /// What a controller of a program is given: the rights of its account, and caches with those of the program.
    #[must_use]
    pub fn controller(&self, component: &Component, account: &str) -> Context {
        let own = self.service_as(component.controller(account));
        Context { client: Client::new(own, "default"), ..self.program(component) }
    }

    /// What one of Kubernetes' controllers is given.
    #[must_use]
    pub fn kubernetes(&self, account: &str) -> Context {
        self.controller(&Component::ControllerManager, account)
    }

    /// What hollow nodes are given.
    #[must_use]
    pub fn nodes(&self) -> Context {
        self.program(&Component::Node("hollow".to_owned()))
    }

    /// What a controller is given, with this client.
    #[must_use]
    pub fn context(&self, client: Client) -> Context {
        context(client, self.now.clone(), "test").0
    }
}

/// What a program was refused.
#[derive(Clone, Default)]
struct Lacking(Arc<Mutex<Option<String>>>);

impl Lacking {
    fn heed(&self, who: &Identity, what: Attributes<'_>, decision: &Decision) {
        if !decision.allowed {
            let Attributes { verb, group, resource, subresource, namespace, .. } = what;
            let told = format!("{} may not {verb} {resource}/{subresource} of {group:?} in {namespace:?}", who.user);
            self.0.lock().unwrap().get_or_insert(told);
        } else if *who == Identity::admin() {
            let lacking = self.0.lock().unwrap().clone();
            assert_eq!(lacking, None, "a role lacks something");
        }
    }
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
