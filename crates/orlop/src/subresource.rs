//! KubeVirt's subresources, as a client: what is done to a VM that runs, and the ways into it.

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::core::Status;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// What is carried at once.
const PIECE: usize = 64 << 10;
const PROTOCOL: &str = "plain.kubevirt.io";

/// Whose subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Vm,
    Instance,
}

/// Why an attempt to open a stream failed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The server said no.
    Answered(anyhow::Error),
    /// Nobody answered, or not for the guest: that may change.
    Unreachable(anyhow::Error),
}

/// How a stream ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The guest hung up.
    Guest,
    /// The server did, for this reason.
    Told(String),
    /// The server stops, or is gone without a word. The guest may go on.
    Lost,
}

/// A stream that is open, and how it ended.
pub(crate) struct Open {
    pub(crate) bytes: DuplexStream,
    pub(crate) end: JoinHandle<End>,
}

/// The path of a subresource in the client's namespace.
fn path(client: &Client, of: Of, name: &str, what: &str) -> String {
    let plural = match of {
        Of::Vm => "virtualmachines",
        Of::Instance => "virtualmachineinstances",
    };
    let namespace = client.default_namespace();
    format!("/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/{plural}/{name}/{what}")
}

/// Has something done.
pub(crate) async fn put(client: &Client, (of, name): (Of, &str), what: &str, options: &Value) -> anyhow::Result<()> {
    let request = Request::builder().method(Method::PUT).uri(path(client, of, name, what));
    let request = request.header(header::CONTENT_TYPE, "application/json").body(options.to_string().into_bytes())?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => bail!("{}", status.message),
        Err(error) => Err(error).context("ask the API server"),
    }
}

/// Asks for bytes.
pub(crate) async fn get(client: &Client, (of, name): (Of, &str), what: &str) -> anyhow::Result<Bytes> {
    let request = Request::get(path(client, of, name, what)).body(kube::client::Body::empty())?;
    let answer = client.send(request).await.context("ask the API server")?;
    let code = answer.status();
    let body = answer.into_body().collect().await.context("read the API server's answer")?.to_bytes();
    if code.is_success() {
        return Ok(body);
    }
    bail!(problem(code, &body));
}

/// What the server says is wrong: in a `Status`, or in plain words, of which the first line counts.
fn problem(code: StatusCode, body: &[u8]) -> String {
    if let Ok(status) = serde_json::from_slice::<Status>(body) {
        return status.message;
    }
    let words = String::from_utf8_lossy(body);
    let words = words.lines().next().unwrap_or_default().trim();
    if words.is_empty() {
        return format!("the server answered {code}");
    }
    words.chars().filter(|letter| !letter.is_control()).collect()
}

/// A way into a guest, message by message.
pub(crate) type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// Opens a way into a guest as bytes.
pub(crate) async fn open(client: &Client, of: (Of, &str), what: &str) -> Result<Open, Refusal> {
    let socket = socket(client, of, what).await?;
    let (bytes, ours) = tokio::io::duplex(PIECE);
    Ok(Open { bytes, end: tokio::spawn(carry(socket, ours)) })
}

/// Opens a way into a guest.
pub(crate) async fn socket(client: &Client, (of, name): (Of, &str), what: &str) -> Result<Socket, Refusal> {
    let key = generate_key();
    let request = Request::get(path(client, of, name, what))
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .header(header::SEC_WEBSOCKET_KEY, key)
        .body(kube::client::Body::empty())
        .map_err(|error| Refusal::Answered(error.into()))?;
    let answer = client.send(request).await.map_err(|error| Refusal::Unreachable(error.into()))?;
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        let code = answer.status();
        let body = answer.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let told = problem(code, &body);
        // A server that has just started does not reach every guest yet.
        return Err(match code.is_server_error() {
            true => Refusal::Unreachable(anyhow!(told)),
            false => Refusal::Answered(anyhow!(told)),
        });
    }
    let upgraded = hyper::upgrade::on(answer).await.map_err(|error| Refusal::Unreachable(error.into()))?;
    Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await)
}

/// How a stream has ended, if this message says so.
pub(crate) fn ended(message: &Message) -> Option<End> {
    match message {
        Message::Close(Some(frame)) => Some(match frame.code {
            CloseCode::Normal => End::Guest,
            CloseCode::Away => End::Lost,
            _ => End::Told(frame.reason.to_string()),
        }),
        Message::Close(None) => Some(End::Guest),
        _ => None,
    }
}

/// Carries bytes until one side ends.
async fn carry(socket: Socket, ours: DuplexStream) -> End {
    let (mut to_server, mut from_server) = socket.split();
    let (mut from_user, mut to_user) = tokio::io::split(ours);
    let down = async {
        while let Some(message) = from_server.next().await {
            match message {
                Ok(Message::Binary(bytes)) => {
                    if to_user.write_all(&bytes).await.is_err() {
                        return End::Lost;
                    }
                }
                Ok(message) => {
                    if let Some(end) = ended(&message) {
                        return end;
                    }
                }
                Err(_) => return End::Lost,
            }
        }
        End::Lost
    };
    let up = async {
        let mut buffer = vec![0; PIECE];
        while let Ok(length @ 1..) = from_user.read(&mut buffer).await {
            let message = Message::Binary(Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default()));
            if to_server.send(message).await.is_err() {
                break;
            }
        }
        // Whoever went says goodbye; what is still on its way is nobody's.
        let _ = to_server.close().await;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        end = down => end,
        end = up => end,
    }
}
