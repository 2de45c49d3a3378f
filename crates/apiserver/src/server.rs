//! The server as a whole: what it holds, and the service that it is.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use tokens::Key;
use tokio::sync::watch;

use crate::audit::AuditLog;
use crate::body::Body;
use crate::clock::{Chance, Clock};
use crate::identity::{Admission, Attributes, Authorizer, Decision, Identity, Stored};
use crate::logs::PodLogs;
use crate::metrics::Metrics;
use crate::places::{InThisProcess, Places};
use crate::rbac::Rbac;
use crate::registry::Registry;
use crate::route::{self, BoxError, Delegated, Opened};
use crate::signal::Signal;
use crate::store::{self, DEFINITIONS, OpenError, Place, Store};
use crate::tokens::{self as bearer, Shown};
use crate::{authority, bootstrap, crds, discovery, expiry, openapi};

/// Everything that requests share.
pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) registry: ArcSwap<Registry>,
    pub(crate) registry_changes: Signal,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    pub(crate) authorizer: Box<dyn Authorizer>,
    /// Hears what is decided about requests.
    pub(crate) decisions: Option<Decisions>,
    /// What the roles in the store grant, whoever decides.
    pub(crate) rbac: Rbac,
    pub(crate) admission: Vec<Box<dyn Admission>>,
    /// Signs the tokens of service accounts, and knows them again.
    pub(crate) token_key: Key,
    pub(crate) delegated: Vec<Delegated>,
    pub(crate) opened: Vec<Opened>,
    pub(crate) logs: Option<Box<dyn PodLogs>>,
    pub(crate) audit: Option<AuditLog>,
    pub(crate) metrics: Metrics,
    pub(crate) places: Places,
    pub(crate) discovery: discovery::Cache,
    pub(crate) openapi: openapi::Cache,
    /// Where clients reach it, as discovery tells it.
    pub(crate) address: ArcSwap<String>,
    /// Whether what the server is a part of is ready, if somebody tells.
    pub(crate) readiness: OnceLock<Readiness>,
    /// Whether it is about to end, for connections that are not HTTP any more.
    pub(crate) stopping: watch::Sender<bool>,
}

impl Inner {
    /// Whether somebody may do something now, and why.
    pub(crate) fn decide(&self, who: &Identity, what: Attributes<'_>) -> Decision {
        self.authorizer.decide(who, what, Stored(&self.store.snapshot()))
    }

    /// Whether somebody may do something now.
    pub(crate) fn allows(&self, who: &Identity, what: Attributes<'_>) -> bool {
        self.decide(who, what).allowed
    }

    /// Who shows a token to one of these audiences; none if it is not good, or not for them.
    pub(crate) fn who_shows(&self, token: &str, audiences: &[String]) -> Option<Shown> {
        bearer::check(token, &self.token_key, audiences, Stored(&self.store.snapshot()), self.clock.now())
    }
}

/// One answer to whether everything is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was asked for.
    pub name: String,
    /// It is ready, with something to say about it or not; or why it is not.
    pub answer: Result<Option<String>, String>,
}

/// Hears who asked for what, and whether they may.
pub(crate) type Decisions = Box<dyn Fn(&Identity, Attributes<'_>, &Decision) + Send + Sync>;

/// Tells whether everything is ready.
pub(crate) type Readiness = Box<dyn Fn() -> Vec<Check> + Send + Sync>;

/// A running API server. Clones are the same server.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) inner: Arc<Inner>,
}

/// What a server is made of.
pub struct Builder {
    place: Place,
    clock: Clock,
    seed: Option<u64>,
    authorizer: Option<Box<dyn Authorizer>>,
    decisions: Option<Decisions>,
    admission: Vec<Box<dyn Admission>>,
    delegated: Vec<Delegated>,
    opened: Vec<Opened>,
    logs: Option<Box<dyn PodLogs>>,
    audit: Option<AuditLog>,
    trusted: Vec<String>,
}

impl ApiServer {
    /// A server whose objects are kept at a place.
    #[must_use]
    pub fn builder(place: Place) -> Builder {
        Builder {
            place,
            clock: Clock::system(),
            seed: None,
            authorizer: None,
            decisions: None,
            admission: Vec::new(),
            delegated: Vec::new(),
            opened: Vec::new(),
            logs: None,
            audit: None,
            trusted: Vec::new(),
        }
    }

    /// Asks this, too, whether everything is ready: `/readyz` tells what it answers. Only the first call counts.
    pub fn ready_when(&self, checks: impl Fn() -> Vec<Check> + Send + Sync + 'static) {
        // Whoever is second has lost.
        let _ = self.inner.readiness.set(Box::new(checks));
    }

    /// From now on the store's objects do not grow beyond so many bytes of JSON. It is for whoever starts the server to call,
    /// after all is written that it needs itself: a full store must not keep it from starting.
    pub fn limit_store(&self, quota: u64) {
        self.inner.store.limit(quota);
    }

    /// How large the store is.
    #[must_use]
    pub fn store_size(&self) -> store::Size {
        self.inner.store.size()
    }

    /// Resolves when the store has failed for good, with the reason: then the process must end.
    pub async fn failed(&self) -> String {
        self.inner.store.failed().await
    }
}

impl Builder {
    /// Takes the time from another clock.
    #[must_use]
    pub fn clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Makes UIDs and generated names repeatable.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Decides who may do what; without one, the roles and bindings in the store do.
    #[must_use]
    pub fn authorizer(self, authorizer: impl Authorizer + 'static) -> Self {
        Self { authorizer: Some(Box::new(authorizer)), ..self }
    }

    /// Tells what is decided about each request: whoever runs programs of its own learns which rights they lack, and which
    /// they never use.
    #[must_use]
    pub fn on_decision(self, told: impl Fn(&Identity, Attributes<'_>, &Decision) + Send + Sync + 'static) -> Self {
        Self { decisions: Some(Box::new(told)), ..self }
    }

    /// Adds to the admission chain.
    #[must_use]
    pub fn admission(mut self, admission: impl Admission + 'static) -> Self {
        self.admission.push(Box::new(admission));
        self
    }

    /// Hands a version of a group to another service, with what clients are told about it. Of the versions of a group, the one
    /// that is handed over first is preferred.
    #[must_use]
    pub fn delegate(
        mut self,
        group: &str,
        version: &str,
        says: impl Into<route::Delegation>,
        service: route::Delegate,
    ) -> Self {
        let (group, version) = (group.to_owned(), version.to_owned());
        self.delegated.push(Delegated { group, version, says: says.into(), service });
        self
    }

    /// Hands all paths with a prefix to another service, whoever asks: nobody is authenticated or authorized before. Their requests have
    /// no body. The prefix must be none of what the server has itself.
    #[must_use]
    pub fn open(mut self, prefix: &str, service: route::Delegate) -> Self {
        self.opened.push(Opened { prefix: prefix.to_owned(), service });
        self
    }

    /// Shows the logs of pods.
    #[must_use]
    pub fn logs(self, logs: impl PodLogs + 'static) -> Self {
        Self { logs: Some(Box::new(logs)), ..self }
    }

    /// Writes down every request, whoever makes it.
    #[must_use]
    pub fn audit(self, audit: AuditLog) -> Self {
        Self { audit: Some(audit), ..self }
    }

    /// The service accounts of this namespace are parts of the cluster as those of `kube-system` are: what workloads ask for
    /// keeps none of them waiting.
    #[must_use]
    pub fn trust_namespace(mut self, namespace: &str) -> Self {
        self.trusted.push(namespace.to_owned());
        self
    }

    /// Opens the store and starts the server. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the store cannot be opened or written.
    pub async fn start(self) -> Result<ApiServer, OpenError> {
        let Self { place, clock, seed, authorizer, decisions, admission, delegated, opened, logs, audit, trusted } =
            self;
        let loaded = store::open(&place)?;
        let token_key = match &place {
            Place::Memory => authority::new_token_key(),
            Place::Folder(folder) => authority::token_key(&folder.join("pki")),
        };
        let token_key = token_key.map_err(OpenError::TokenKey)?;
        let mut registry = Registry::built_in();
        let definitions = loaded.rows(DEFINITIONS).map(|row| (row.revision, &row.text));
        crds::refresh(&mut registry, definitions);
        let store = Store::start(loaded, |table| registry.fields(table));
        let rbac = Rbac::default();
        let threads = tokio::runtime::Handle::current().metrics().num_workers();
        let inner = Arc::new(Inner {
            store,
            registry: ArcSwap::from_pointee(registry),
            registry_changes: Signal::default(),
            clock,
            chance: Chance::new(seed),
            authorizer: authorizer.unwrap_or_else(|| Box::new(rbac.clone())),
            decisions,
            rbac,
            admission,
            token_key,
            delegated,
            opened,
            logs,
            metrics: Metrics::new(&audit.as_ref().map(AuditLog::counts).cloned().unwrap_or_default()),
            audit,
            places: Places::new(threads, trusted),
            discovery: discovery::Cache::default(),
            openapi: openapi::Cache::default(),
            address: ArcSwap::from_pointee(String::new()),
            readiness: OnceLock::new(),
            stopping: watch::Sender::new(false),
        });
        bootstrap::run(&inner).await?;
        crds::orphans::remove(&inner).await.map_err(|error| OpenError::Write(error.to_string()))?;
        tokio::spawn(crds::run(Arc::downgrade(&inner)));
        tokio::spawn(expiry::run(Arc::downgrade(&inner)));
        Ok(ApiServer { inner })
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let inner = self.inner.clone();
        Box::pin(async move { Ok(route::handle(inner, request).await) })
    }
}

/// The server for one caller in the same process: no socket, no TLS, no certificate.
#[derive(Clone)]
pub struct InProcess {
    server: ApiServer,
    identity: Identity,
}

impl ApiServer {
    /// The service that a client of this identity sits on.
    #[must_use]
    pub fn for_identity(&self, identity: Identity) -> InProcess {
        InProcess { server: self.clone(), identity }
    }
}

impl<B> tower::Service<Request<B>> for InProcess
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(self.identity.clone());
        request.extensions_mut().insert(InThisProcess);
        self.server.call(request)
    }
}
