//! The way from a client to the server, and what can happen on it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::names::annotation;
use apiserver::{ApiServer, Body, Identity, InProcess};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use kube::Client;
use manager::fence::{BoxError, Fence};
use serde_json::{Value, json};
use tokio::time::{Sleep, sleep};
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

/// A process' way.
pub(crate) fn client(
    server: &ApiServer,
    world: &Arc<World>,
    process: &str,
    client: &str,
    lease: Option<&str>,
    fence: &Fence,
) -> Client {
    // What elects and what tells are not what leads.
    let leads = !matches!(client, "leader-election" | "events" | "shared-caches");
    let wire = Wire {
        server: server.for_identity(Identity::admin()),
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

impl Wire {
    async fn exchange(mut self, request: Request<kube::client::Body>) -> Result<Response<Answer>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        let is_write = parts.method != Method::GET;
        let is_watch = !is_write && path.contains("watch=true");
        let (delay, fault) = self.world.draw(is_write, parts.method == Method::POST, is_watch);
        if !delay.is_zero() {
            sleep(delay).await;
        }
        self.world.reachable(&self.process).await;
        let method = parts.method.clone();
        let who = format!("{}/{}", self.process, self.client);
        let log = |outcome: String| self.world.answered(&who, method.as_str(), &path, outcome);
        match fault {
            Some(Fault::Refused(code)) => {
                log(format!("{code}, by chance"));
                return Ok(refusal(code));
            }
            Some(Fault::LostRequest) => {
                log("lost on the way there".to_owned());
                return Err(Lost.into());
            }
            Some(Fault::LostAnswer | Fault::Cut(_) | Fault::Stalled { .. }) | None => {}
        }
        let is_lease = parts.uri.path().contains("/leases");
        if is_write && !is_lease {
            self.must_lead(&method, &path);
        }
        let answer = self.server.call(Request::from_parts(parts, http_body_util::Full::new(body.clone()))).await?;
        let code = answer.status();
        if is_write && code.is_success() {
            self.wrote(&method, &path, is_lease, &body);
        }
        if fault == Some(Fault::LostAnswer) {
            self.world.answered(&who, method.as_str(), &path, format!("{}, lost on the way back", code.as_u16()));
            return Err(Lost.into());
        }
        self.world.answered(&who, method.as_str(), &path, code.as_u16().to_string());
        let ends = match fault {
            Some(Fault::Cut(after)) => Ends::Cut(Box::pin(sleep(after))),
            Some(Fault::Stalled { after, lasts }) => {
                Ends::Stalled { from: Box::pin(sleep(after)), to: Box::pin(sleep(after + lasts)) }
            }
            _ => Ends::Well,
        };
        Ok(answer.map(|body| Answer { body, ends }))
    }

    /// One leader at a time: whoever acts holds the lease.
    fn must_lead(&self, method: &Method, path: &str) {
        let Some(lease) = &self.lease else { return };
        let leader = self.world.leader(lease);
        if leader != self.process {
            let (process, client) = (&self.process, &self.client);
            self.world.violated(format!("{process}/{client} sent {method} {path} while {leader:?} leads"));
        }
    }

    fn wrote(&self, method: &Method, path: &str, is_lease: bool, body: &Bytes) {
        if is_lease {
            let lease: Value = serde_json::from_slice(body).unwrap_or_default();
            if let (Some(name), Some(holder)) =
                (lease["metadata"]["name"].as_str(), lease["spec"]["holderIdentity"].as_str())
            {
                self.world.leads(name, holder);
            }
        } else if !path.contains("/events") && !is_heartbeat(path, body) {
            self.world.written(format!("{}/{}: {method} {path}", self.process, self.client));
        }
    }
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
        Pin::new(&mut self.body).poll_frame(context).map_err(|never| match never {})
    }
}
