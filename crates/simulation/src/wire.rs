//! The way from a client to the server, and what can happen on it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use api::names::annotation;
use apiserver::{ApiServer, Body, Identity, InProcess};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use kube::Client;
use manager::fence::{BoxError, Fence};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep};
use tower::{Layer as _, Service};

use crate::world::{Fault, World};

/// A client's way to the server.
#[derive(Clone)]
pub(crate) struct Wire {
    server: InProcess,
    world: Arc<World>,
    process: String,
    client: String,
    /// The lease that whoever writes on this wire must hold.
    lease: Option<String>,
}

/// The user's and the witness' way: nothing happens on it.
pub(crate) fn direct(server: &ApiServer) -> Client {
    Client::new(server.for_identity(Identity::admin()), "default")
}

/// A process' way, with whatever rights the service has.
pub(crate) fn client(
    server: InProcess,
    world: &Arc<World>,
    process: &str,
    client: &str,
    lease: Option<&str>,
    fence: &Fence,
) -> Client {
    // What elects and what tells are not what leads.
    let leads = !matches!(client, "leader-election" | "events" | "shared-caches");
    let wire = Wire {
        server,
        world: world.clone(),
        process: process.to_owned(),
        client: client.to_owned(),
        lease: lease.filter(|_| leads).map(ToOwned::to_owned),
    };
    Client::new(fence.layer(wire), "default")
}

/// A request that was lost, or whose answer was.
#[derive(Debug, thiserror::Error)]
#[error("the connection was lost")]
struct Lost;

impl Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move { wire.exchange(request).await })
    }
}

/// A request on its way.
pub(crate) struct Letter {
    /// The process and the client in it.
    pub(crate) who: String,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// The name of what it makes.
    pub(crate) makes: Option<String>,
    request: Request<Bytes>,
}

impl Letter {
    fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    fn is_watch(&self) -> bool {
        !self.is_write() && self.path.contains("watch=true")
    }

    fn is_lease(&self) -> bool {
        self.path.contains("/leases")
    }
}

impl Wire {
    async fn exchange(self, request: Request<kube::client::Body>) -> Result<Response<Answer>, BoxError> {
        let letter = self.letter(request).await?;
        let (delay, fault) = self.world.draw(letter.is_write(), letter.method == Method::POST, letter.is_watch());
        self.must_lead(&letter);
        let letter = self.travel(letter, delay, fault).await?;
        match fault {
            Some(Fault::Refused(code)) => {
                self.world.answered(&letter, format!("{code}, by chance"));
                return Ok(refusal(code));
            }
            Some(Fault::LostRequest) => {
                self.world.answered(&letter, "lost on the way there".to_owned());
                return Err(Lost.into());
            }
            Some(Fault::LostAnswer) => {
                self.deliver(letter, ", lost on the way back").await?;
                return Err(Lost.into());
            }
            Some(Fault::Cut(_) | Fault::Stalled { .. }) | None => {}
        }
        let answer = self.deliver(letter, "").await?;
        let ends = match fault {
            Some(Fault::Cut(after)) => Ends::Cut(Box::pin(sleep(after))),
            Some(Fault::Stalled { after, lasts }) => {
                Ends::Stalled { from: Box::pin(sleep(after)), to: Box::pin(sleep(after + lasts)) }
            }
            _ => Ends::Well,
        };
        Ok(answer.map(|body| Answer { body, ends }))
    }

    async fn letter(&self, request: Request<kube::client::Body>) -> Result<Letter, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let method = parts.method.clone();
        let makes = (method == Method::POST).then(|| named(&body)).flatten();
        let who = format!("{}/{}", self.process, self.client);
        Ok(Letter { who, method, path, makes, request: Request::from_parts(parts, body) })
    }

    /// The way there. Whoever sent a write may be gone before it is over.
    async fn travel(&self, letter: Letter, delay: Duration, fault: Option<Fault>) -> Result<Letter, Lost> {
        if delay.is_zero() && self.world.is_reachable(&self.process) {
            return Ok(letter);
        }
        let arrives = !matches!(fault, Some(Fault::Refused(_) | Fault::LostRequest));
        let on_its_way = OnItsWay::new(self, letter, arrives);
        sleep(delay).await;
        self.world.reachable(&self.process).await;
        on_its_way.arrive()
    }

    /// Gives it to the server.
    async fn deliver(&self, letter: Letter, remark: &str) -> Result<Response<Body>, BoxError> {
        let request = letter.request.clone().map(http_body_util::Full::new);
        let answer = self.server.clone().call(request).await?;
        let code = answer.status();
        if letter.is_write() && code.is_success() {
            self.wrote(&letter);
        }
        self.world.answered(&letter, format!("{}{remark}", code.as_u16()));
        Ok(answer)
    }

    /// One leader at a time: whoever sends a write holds the lease.
    fn must_lead(&self, letter: &Letter) {
        let Some(lease) = self.lease.as_ref().filter(|_| letter.is_write() && !letter.is_lease()) else { return };
        let leader = self.world.leader(lease);
        if leader != self.process {
            let Letter { who, method, path, .. } = letter;
            self.world.violated(None, format!("{who} sent {method} {path} while {leader:?} leads"));
        }
    }

    fn wrote(&self, letter: &Letter) {
        let (path, body) = (&letter.path, letter.request.body());
        if letter.is_lease() {
            let lease: Value = serde_json::from_slice(body).unwrap_or_default();
            if let (Some(name), Some(holder)) =
                (lease["metadata"]["name"].as_str(), lease["spec"]["holderIdentity"].as_str())
            {
                self.world.leads(name, holder);
            }
        } else if !path.contains("/events") && !is_heartbeat(path, body) {
            self.world.written(format!("{}: {} {path}", letter.who, letter.method));
        }
        if let (Some(namespace), Some(name)) = (namespace_of("/virtualmachineinstances", path), &letter.makes) {
            self.world.made((namespace.to_owned(), name.clone()), &letter.who);
        }
        if letter.method == Method::DELETE && path.contains("/virtualmachineinstances/") {
            let options: Value = serde_json::from_slice(body).unwrap_or_default();
            if let Some(uid) = options["preconditions"]["uid"].as_str() {
                self.world.took_down(uid, &letter.who);
            }
        }
    }
}

/// A request that takes its time. If its sender goes meanwhile and it is a write, it may arrive all the same.
struct OnItsWay {
    wire: Wire,
    letter: Option<Letter>,
    since: Instant,
    /// Whether it is one that arrives.
    arrives: bool,
}

impl OnItsWay {
    fn new(wire: &Wire, letter: Letter, arrives: bool) -> Self {
        if letter.is_write() {
            wire.world.departs(&wire.process);
        }
        Self { wire: wire.clone(), letter: Some(letter), since: Instant::now(), arrives }
    }

    fn arrive(mut self) -> Result<Letter, Lost> {
        self.end().ok_or(Lost)
    }

    fn end(&mut self) -> Option<Letter> {
        let letter = self.letter.take()?;
        if letter.is_write() {
            self.wire.world.arrives(&self.wire.process);
        }
        self.wire.world.took(&letter.who, self.since);
        Some(letter)
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        let Some(letter) = self.end().filter(|letter| self.arrives && letter.is_write()) else { return };
        // When the run is over nobody is left to carry it.
        let Ok(runtime) = Handle::try_current() else { return };
        let Some(after) = self.wire.world.outlives() else {
            return self.wire.world.answered(&letter, "lost with its sender".to_owned());
        };
        let (wire, since) = (self.wire.clone(), self.since);
        runtime.spawn(async move {
            sleep(after).await;
            wire.world.took(&letter.who, since);
            if let (Some(namespace), Some(name)) = (namespace_of("/pods", &letter.path), &letter.makes) {
                wire.world.outlived((namespace.to_owned(), name.clone()), since);
            }
            // Nobody waits for the answer.
            drop(wire.deliver(letter, ", after its sender was gone").await);
        });
    }
}

/// What an object is called.
fn named(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        name: Option<String>,
        generate_name: Option<String>,
    }
    let Named { metadata } = serde_json::from_slice(body).ok()?;
    metadata.name.or(metadata.generate_name)
}

/// The namespace in a path of all its objects of a resource.
fn namespace_of<'a>(resource: &str, path: &'a str) -> Option<&'a str> {
    let path = path.split('?').next()?;
    path.strip_suffix(resource)?.rsplit('/').next()
}

/// A node's handler says that it is there: as a lease, it is never at rest.
fn is_heartbeat(path: &str, body: &Bytes) -> bool {
    let is_node = path.starts_with("/api/v1/nodes/") && !path.contains("/status");
    is_node && {
        let patch: Value = serde_json::from_slice(body).unwrap_or_default();
        patch["metadata"]["annotations"][annotation::HEARTBEAT].is_string()
    }
}

fn refusal(code: u16) -> Response<Answer> {
    let reason = match code {
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "by chance",
        "reason": reason,
        "code": code,
    });
    let mut answer = Response::new(Answer { body: Body::from(status.to_string()), ends: Ends::Well });
    *answer.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    answer
}

/// An answer that may be cut off, or be silent for a while.
pub(crate) struct Answer {
    body: Body,
    ends: Ends,
}

enum Ends {
    Well,
    Cut(Pin<Box<Sleep>>),
    Stalled { from: Pin<Box<Sleep>>, to: Pin<Box<Sleep>> },
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.ends {
            Ends::Well => {}
            Ends::Cut(at) => {
                if at.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Some(Err(Lost.into())));
                }
            }
            Ends::Stalled { from, to } => {
                let stalls = from.is_elapsed() || from.as_mut().poll(context).is_ready();
                if stalls && to.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                if stalls {
                    self.ends = Ends::Well;
                }
            }
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(Into::into)
    }
}
