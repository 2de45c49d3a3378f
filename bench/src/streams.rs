//! Ways into guests: what a forwarded port costs beside a plain relay of TCP, and how long a keystroke takes there and back.
//!
//! ```text
//! client ── WebSocket over TLS ── embedded API server, virt-api's service ──┐
//!        ── relay ──────────────────────────────────────────────────────────┴── a stand-in for a guest
//! ```
//! All of it is one process on loopback. Guests themselves are not measured: a stand-in sends and takes as much as it is asked for, and its
//! console says again what is typed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use apiserver::serve::Listening;
use apiserver::{ApiServer, Identity, Place};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Request, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use manager::context::Chance;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use virt_api::subresources::{Answering, Connection, GuestError, GuestName, Guests, Question, Reply, Way};

use crate::boot::{median, percentile};
use crate::rounds::{self, Spread, in_turns};

const MIB: u64 = 1 << 20;
/// What is sent at once.
const PIECE: usize = 64 << 10;
/// The kinds that a stand-in needs: schemas take their time.
const KINDS: [&str; 3] = ["KubeVirt", "VirtualMachineInstance", "VirtualMachineInstancePreset"];
const WAYS: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/guest";

/// Which way most bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the guest.
    Down,
    /// To the guest.
    Up,
}

impl Direction {
    fn word(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }

    /// What a stand-in is asked for.
    fn request(self, bytes: u64) -> [u8; 9] {
        let mut request = [0; 9];
        request[0] = u8::from(self == Self::Up);
        request[1..].copy_from_slice(&bytes.to_be_bytes());
        request
    }
}

/// An API server, a guest's stand-in behind it, and a relay beside it.
pub struct Bench {
    client: Client,
    relay: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    _folder: TempDir,
}

impl Bench {
    /// Starts all of it.
    ///
    /// # Errors
    /// When something of it does not start.
    pub async fn start() -> Result<Self> {
        let guest = listen(stand_in).await?;
        let relay = listen(move |client| relay(client, guest)).await?;
        let mut settings = virt_server::Settings::new(Chance::seeded(1))?;
        settings.kinds.retain(|kind| KINDS.contains(&kind.spec.names.kind.as_str()));
        settings.guests = Some(Arc::new(StandIn { guest }));
        let server = virt_server::start(ApiServer::builder(Place::Memory), settings).await?;
        let folder = tempfile::tempdir()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listening = Listening::on(address, folder.path(), &server).await?;
        let file = Kubeconfig::read_from(listening.kubeconfig())?;
        instance(&server).await?;
        let runtime = Handle::current();
        // It cannot go from thread to thread; what it serves can.
        let (stop, stopped) = oneshot::channel();
        let serve = move || runtime.block_on(listening.run(server, async move { drop(stopped.await) }));
        let serving = tokio::task::spawn_blocking(serve);
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Self { client: Client::try_from(config)?, relay, stop, serving, _folder: folder })
    }

    /// Ends all of it.
    ///
    /// # Errors
    /// When the server has failed.
    pub async fn stop(self) -> Result<()> {
        drop(self.stop);
        Ok(self.serving.await?)
    }

    /// So many MiB through a forwarded port, and through the relay in turns.
    ///
    /// # Errors
    /// When a stream breaks.
    pub async fn port_forward(&self, direction: Direction, mib: u64, rounds: usize) -> Result<Value> {
        let bytes = mib * MIB;
        let ours = async || self.through_the_api(direction, bytes).await;
        let theirs = async || self.through_the_relay(direction, bytes).await;
        let pairs = in_turns(rounds, ours, theirs).await?;
        let rate = |time: &Duration| f64::from(u32::try_from(mib).unwrap_or(u32::MAX)) / time.as_secs_f64();
        let rates: Vec<(f64, f64)> = pairs.iter().map(|(ours, theirs)| (rate(ours), rate(theirs))).collect();
        let spread = |of: Vec<f64>| Spread::of(&of).map_or(Value::Null, |spread| spread.json());
        Ok(json!({
            "figure": "port-forward", "direction": direction.word(), "mib": mib,
            "orlop_mib_s": spread(rates.iter().map(|(ours, _)| *ours).collect()),
            "relay_mib_s": spread(rates.iter().map(|(_, theirs)| *theirs).collect()),
            "ratio": rounds::ratios(rates).map_or(Value::Null, |ratios| ratios.json()),
        }))
    }

    async fn through_the_api(&self, direction: Direction, bytes: u64) -> Result<Duration> {
        let mut socket = self.open("portforward/1").await?;
        let begun = Instant::now();
        socket.send(Message::Binary(Bytes::copy_from_slice(&direction.request(bytes)))).await?;
        let mut left = bytes;
        if direction == Direction::Up {
            let piece = Bytes::from(vec![7; PIECE]);
            while left > 0 {
                let length = usize::try_from(left)?.min(PIECE);
                socket.send(Message::Binary(piece.slice(..length))).await?;
                left -= u64::try_from(length)?;
            }
            left = 1;
        }
        while left > 0 {
            left = left.saturating_sub(u64::try_from(heard(&mut socket).await?.len())?);
        }
        Ok(begun.elapsed())
    }

    async fn through_the_relay(&self, direction: Direction, bytes: u64) -> Result<Duration> {
        let mut stream = TcpStream::connect(self.relay).await?;
        stream.set_nodelay(true)?;
        let begun = Instant::now();
        stream.write_all(&direction.request(bytes)).await?;
        let mut left = bytes;
        let mut piece = vec![7; PIECE];
        if direction == Direction::Up {
            send(&mut stream, left, &piece).await?;
            left = 1;
        }
        while left > 0 {
            let length = stream.read(&mut piece).await?;
            ensure!(length > 0, "the relay hung up");
            left = left.saturating_sub(u64::try_from(length)?);
        }
        Ok(begun.elapsed())
    }

    /// So many keys, one after the other.
    ///
    /// # Errors
    /// When the stream breaks.
    pub async fn keystroke(&self, keys: usize) -> Result<Value> {
        let mut socket = self.open("console").await?;
        let mut times = Vec::new();
        for _ in 0..keys {
            let begun = Instant::now();
            socket.send(Message::Binary(Bytes::from_static(b"x"))).await?;
            heard(&mut socket).await?;
            times.push(begun.elapsed());
        }
        let millis = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        Ok(json!({
            "figure": "keystroke", "keys": keys,
            "p95_ms": millis(percentile(&times, 95)), "median_ms": millis(median(times)),
        }))
    }

    async fn open(&self, way: &str) -> Result<WebSocketStream<TokioIo<Upgraded>>> {
        let request = Request::get(format!("{WAYS}/{way}"))
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", generate_key());
        let answer = self.client.send(request.body(kube::client::Body::empty())?).await?;
        ensure!(answer.status() == StatusCode::SWITCHING_PROTOCOLS, "{way}: {}", answer.status());
        let upgraded = TokioIo::new(hyper::upgrade::on(answer).await?);
        Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await)
    }
}

/// The next bytes of a stream.
async fn heard(socket: &mut WebSocketStream<TokioIo<Upgraded>>) -> Result<Bytes> {
    loop {
        match socket.next().await.context("the stream ended")?? {
            Message::Binary(bytes) => return Ok(bytes),
            Message::Close(frame) => bail!("the stream was closed: {frame:?}"),
            _ => {}
        }
    }
}

/// Serves a free port of this machine.
async fn listen<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Result<SocketAddr>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // One that breaks is told by whoever measures.
            tokio::spawn(serve(stream));
        }
    });
    Ok(address)
}

/// Sends or takes what it is asked for.
async fn stand_in(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut request = [0; 9];
    stream.read_exact(&mut request).await?;
    let bytes = request[1..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    if request[0] == 0 {
        return send(&mut stream, bytes, &[7; PIECE]).await;
    }
    let mut piece = vec![0; PIECE];
    let mut left = bytes;
    while left > 0 {
        let length = stream.read(&mut piece).await?;
        ensure!(length > 0, "the client hung up");
        left = left.saturating_sub(u64::try_from(length)?);
    }
    Ok(stream.write_all(&[1]).await?)
}

async fn send(stream: &mut TcpStream, bytes: u64, piece: &[u8]) -> Result<()> {
    let mut left = bytes;
    while left > 0 {
        let length = usize::try_from(left)?.min(piece.len());
        stream.write_all(&piece[..length]).await?;
        left -= u64::try_from(length)?;
    }
    Ok(())
}

async fn relay(mut client: TcpStream, guest: SocketAddr) -> Result<()> {
    let mut guest = TcpStream::connect(guest).await?;
    client.set_nodelay(true)?;
    guest.set_nodelay(true)?;
    tokio::io::copy_bidirectional_with_sizes(&mut client, &mut guest, PIECE, PIECE).await?;
    Ok(())
}

/// Leads to the stand-in.
struct StandIn {
    guest: SocketAddr,
}

impl Guests for StandIn {
    fn ask(&self, _: GuestName, _: Question) -> Answering<Reply> {
        Box::pin(async { Ok(Reply::Done) })
    }

    fn open(&self, _: GuestName, way: Way) -> Answering<Connection> {
        let guest = self.guest;
        Box::pin(async move {
            if let Way::Console { .. } = way {
                let (near, far) = tokio::io::duplex(PIECE);
                tokio::spawn(async move {
                    let (mut from, mut to) = tokio::io::split(far);
                    tokio::io::copy(&mut from, &mut to).await
                });
                return Ok(Box::new(near) as Connection);
            }
            let dialled = async {
                let stream = TcpStream::connect(guest).await?;
                stream.set_nodelay(true)?;
                std::io::Result::Ok(stream)
            };
            let dialled = dialled.await.map_err(|error| GuestError::Failed(error.to_string()))?;
            Ok(Box::new(dialled) as Connection)
        })
    }
}

/// The stand-in's object, as one that runs.
async fn instance(server: &ApiServer) -> Result<()> {
    let of = |identity| -> Api<api::vmi::VirtualMachineInstance> {
        Api::default_namespaced(Client::new(server.for_identity(identity), "default"))
    };
    let devices = json!({ "interfaces": [{ "name": "default", "masquerade": {} }] });
    let spec = json!({
        "domain": { "devices": devices, "memory": { "guest": "64Mi" } }, "networks": [{ "name": "default", "pod": {} }],
    });
    let vmi = serde_json::from_value(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "guest" }, "spec": spec,
    }))?;
    of(Identity::admin()).create(&PostParams::default(), &vmi).await?;
    let interfaces = json!([{ "name": "default", "ipAddress": "10.0.0.1" }]);
    let status = json!({ "status": { "phase": "Running", "nodeName": "here", "interfaces": interfaces } });
    let handler = of(virt_server::Component::VirtHandler.identity());
    handler.patch("guest", &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}
