//! What KubeVirt's users do to a VM that runs: the API group `subresources.kubevirt.io`, which virtctl and dashboards speak.
//!
//! ```text
//! request (caller in an extension) ──> routes ──> access: may it? ──> vms: the VM's object, by a client
//!                                                                └──> instances: its guest, by Guests
//!                                                                └──> streams: dial, upgrade, copy until an end
//! ```
//! One service, mounted in two ways: in the process of an API server, and behind Kubernetes' aggregator. Who asks
//! arrives as a [`Caller`] in the request's extensions; whoever mounts the service has made sure of it, and has asked whether the
//! caller may use the first segment of the path, as Kubernetes does. The service asks about the whole path.
//!
//! Watches nothing, owns nothing. Absent on purpose: how a node is reached ([`Guests`]), and TLS.

mod access;
mod answer;
mod expand;
mod guests;
mod instances;
pub mod remote;
mod routes;
mod says;
mod streams;
mod vms;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::Client;

use answer::Problem;
use routes::{Action, Matched};

pub use guests::{Answering, Connection, GuestError, GuestName, Guests, Question, Reply, Way};
pub use says::{GROUP, VERSIONS, paths, release, resources};
pub use streams::Lasting;

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The user's name.
    pub user: String,
    /// The groups that the user is in.
    pub groups: Vec<String>,
    /// Which of all users that ever had this name; empty if nobody tells.
    pub uid: String,
    /// What else is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What answers is made of.
#[derive(Clone)]
pub struct Subresources {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    guests: Arc<dyn Guests>,
}

/// The account of virt-controller, as in KubeVirt.
const CONTROLLER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

/// A request whose body is here.
struct Call {
    caller: Option<Caller>,
    matched: Matched,
    query: String,
    body: Bytes,
}

impl Call {
    /// Whether virt-controller asks, which stops guests while their disks are copied.
    fn is_of_controller(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.user == CONTROLLER)
    }

    /// Whether a parameter of the query says yes.
    fn is_set(&self, parameter: &str) -> bool {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.any(|(key, value)| key == parameter && matches!(value, "true" | "1"))
    }

    /// What the body says; nothing, if it is empty.
    fn options<T: serde::de::DeserializeOwned + Default>(&self) -> Result<T, Problem> {
        if self.body.iter().all(u8::is_ascii_whitespace) {
            return Ok(T::default());
        }
        serde_json::from_slice(&self.body).map_err(|error| unreadable(&error))
    }
}

/// In KubeVirt's words.
fn unreadable(error: &serde_json::Error) -> Problem {
    Problem::bad_request(format!("Can not unmarshal Request body to struct, error: {error}"))
}

impl Subresources {
    /// Answers with the rights of this client, and reaches guests in this way.
    #[must_use]
    pub fn new(client: Client, guests: Arc<dyn Guests>) -> Self {
        Self { inner: Arc::new(Inner { client, guests }) }
    }

    /// Answers a request, whatever it is.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        self.inner.answer(request).await.unwrap_or_else(answer::Problem::into_response)
    }
}

impl Inner {
    async fn answer<B>(&self, request: Request<B>) -> Result<Response<Full<Bytes>>, Problem>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: std::fmt::Display,
    {
        let (parts, body) = request.into_parts();
        let matched = routes::find(&parts.method, parts.uri.path())?;
        let caller = parts.extensions.get::<Caller>().cloned();
        access::check(&self.client, caller.as_ref(), &matched).await?;
        let body = body.collect().await.map_err(|error| Problem::bad_request(error.to_string()))?.to_bytes();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let call = Call { caller, matched, query, body };
        match call.matched.action {
            Action::Version => Ok(answer::json(&says::version())),
            Action::Health => self.health().await,
            Action::Later { feature, instead } => Err(Problem::later(feature, instead)),
            Action::ExpandGiven => self.expand_given(&call).await,
            Action::Expand => self.expand(&call).await,
            Action::Start => self.start(&call).await,
            Action::Stop => self.stop(&call).await,
            Action::Restart => self.restart(&call).await,
            Action::Migrate => self.migrate(&call).await,
            Action::CancelEvacuation => self.cancel_evacuation(&call).await,
            Action::Pause => self.pause(&call).await,
            Action::Unpause => self.unpause(&call).await,
            Action::Freeze => self.freeze(&call).await,
            Action::Unfreeze => self.unfreeze(&call).await,
            Action::Reset => self.reset(&call).await,
            Action::SoftReboot => self.soft_reboot(&call).await,
            Action::Guest(question) => self.guest(&call, question).await,
            Action::Screenshot => self.screenshot(&call).await,
            Action::Console | Action::Vnc | Action::PortForward => self.stream(&call, parts).await,
        }
    }

    /// Whether the API server answers.
    async fn health(&self) -> Result<Response<Full<Bytes>>, Problem> {
        let version = self.client.apiserver_version().await;
        match version {
            Ok(version) => {
                let shown = serde_json::json!({ "major": version.major, "minor": version.minor });
                Ok(answer::json(&serde_json::json!({ "apiserver": { "connectivity": "ok", "version": shown } })))
            }
            Err(error) => Err(Problem::internal(error)),
        }
    }
}

impl<B> tower::Service<Request<B>> for Subresources
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}
