//! Console, screen and forwarded ports: a WebSocket whose binary messages are the bytes of a connection to the guest.
//!
//! # Guarantees
//! - The guest is dialled before the client's connection becomes a WebSocket: whatever is wrong is a `Status` with its code.
//! - A message of a UDP port is a datagram, in both directions.
//! - Bytes keep their order in both directions, and none is lost before an end. Each direction holds one message at most: who does
//!   not read is not written to, and the other side waits.
//! - Every stream ends with a close frame that says why: 1000 when the guest hung up, 1001 when the server stops, 1009 when a message
//!   was too long, 1011 with the reason when something broke. A client that shows no life for a minute is given up. To take what waits
//!   for it is life; while it waits for the guest, it is not asked.

mod copy;

use std::sync::Arc;

use api::vmi::VirtualMachineInstance;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::answer::{self, Problem};
use super::guests::Way;
use super::instances::{guest_name, has_console, has_display, is_awake};
use super::routes::{Action, Scope};
use super::{Call, Inner};

/// The protocol that virtctl and dashboards name. A client that names none gets the same.
const PLAIN: HeaderValue = HeaderValue::from_static("plain.kubevirt.io");

/// What a stream keeps for as long as it lasts, in the extensions of its request: whoever serves the connection is told by it that
/// the stream still lasts, and tells when it must end.
#[derive(Clone)]
pub struct Lasting(Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>);

impl Lasting {
    /// Ends when what `stopping` returns resolves. The function is dropped with the stream.
    #[must_use]
    pub fn until(stopping: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self(Arc::new(stopping))
    }

    async fn stopping(&self) {
        (self.0)().await;
    }
}

impl Inner {
    /// Opens a stream.
    pub(super) async fn stream(&self, call: &Call, mut parts: Parts) -> Result<Response<Full<Bytes>>, Problem> {
        let vmi = match call.matched.scope {
            Scope::Vm => self.instance_of_vm(call).await?,
            _ => self.instance(call).await?,
        };
        let way = way(call, &vmi)?;
        let key = handshake(&parts.headers)?;
        let guest = self.guests.open(guest_name(&vmi), way).await.map_err(Problem::internal)?;
        let lasting = parts.extensions.remove::<Lasting>();
        let protocol = is_offered(&parts.headers).then_some(PLAIN);
        let upgraded = hyper::upgrade::on(http::Request::from_parts(parts, ()));
        tokio::spawn(async move {
            match upgraded.await {
                Ok(upgraded) => copy::between(TokioIo::new(upgraded), guest, lasting).await,
                Err(error) => tracing::debug!(%error, "a client went before its stream began"),
            }
        });
        let mut response = answer::empty(StatusCode::SWITCHING_PROTOCOLS);
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, key);
        if let Some(protocol) = protocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        Ok(response)
    }
}

/// What is asked for, if the instance has it.
fn way(call: &Call, vmi: &VirtualMachineInstance) -> Result<Way, Problem> {
    let name = &call.matched.name;
    match call.matched.action {
        Action::Console => has_console(vmi, name).map(|()| Way::Console { replay: call.is_set("replay") }),
        Action::Vnc => {
            has_display(vmi)?;
            Ok(Way::Vnc { preserve: call.is_set("preserveSession") })
        }
        _ => {
            is_awake(vmi, name)?;
            port(call, vmi)
        }
    }
}

fn port(call: &Call, vmi: &VirtualMachineInstance) -> Result<Way, Problem> {
    let interfaces = vmi.status.as_ref().and_then(|status| status.interfaces.as_deref()).unwrap_or_default();
    if interfaces.is_empty() {
        return Err(Problem::bad_request("no network interfaces are present"));
    }
    let mut values = call.matched.values.iter();
    let text = values.next().map(String::as_str).unwrap_or_default();
    let wrong = || Problem::bad_request(format!("{text:?} is not a port"));
    let port = text.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
    match values.next().map(String::as_str) {
        None | Some("tcp") => Ok(Way::Port { port }),
        Some("udp") => Ok(Way::Datagrams { port }),
        Some(other) => Err(Problem::bad_request(format!("{other:?} is not a protocol; use tcp or udp"))),
    }
}

/// The answer to the client's challenge, if it asks for a WebSocket in the way that there is.
fn handshake(headers: &HeaderMap) -> Result<HeaderValue, Problem> {
    let words = |name| headers.get_all(name).iter().flat_map(|value| value.to_str().unwrap_or_default().split(','));
    let says = |name, word: &str| words(name).any(|one| one.trim().eq_ignore_ascii_case(word));
    if !says(header::CONNECTION, "upgrade") || !says(header::UPGRADE, "websocket") {
        return Err(Problem::bad_request("this is a stream: open it as a WebSocket"));
    }
    if !says(header::SEC_WEBSOCKET_VERSION, "13") {
        return Err(Problem::bad_request("only version 13 of WebSocket is supported"));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| Problem::bad_request("the WebSocket has no key"))?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(Problem::internal)
}

fn is_offered(headers: &HeaderMap) -> bool {
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let mut offered = offered.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    offered.any(|one| one.trim().as_bytes() == PLAIN.as_bytes())
}
