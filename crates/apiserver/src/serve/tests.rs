//! Connections in memory, on a clock that the tests step.

mod crowd;

use std::convert::Infallible;

use bytes::Bytes;
use certificates::{Leaf, tls};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::Service as _;
use tower::util::BoxCloneSyncService;

use super::credentials::own;
use super::*;
use crate::authority;
use crate::{Clock, Place};

/// When certificates are made and looked at, in seconds.
const THEN: i64 = 1_000_000_000;

#[derive(Debug)]
struct Then(i64);

impl TimeProvider for Then {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.unsigned_abs())))
    }
}

struct Served {
    server: ApiServer,
    tls: TlsAcceptor,
    roots: RootCertStore,
    stop: watch::Sender<bool>,
    /// By the clock of its clients.
    at: i64,
    admin: Leaf,
    /// Whether its clients show the administrator's certificate.
    is_admin: bool,
}

impl Served {
    async fn start() -> Self {
        Self::start_at(Timestamp::from_second(THEN).unwrap()).await
    }

    async fn start_at(now: Timestamp) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keeper = Arc::new(authority::open(folder.path(), now).unwrap());
        let roots = tls::roots(&keeper.trusted().borrow()).unwrap();
        let tls = TlsAcceptor::from(own(&keeper, &[], None, now).unwrap().config());
        let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
        let admin = keeper.issue(&authority::admin(), now).unwrap();
        Self { server, tls, roots, stop: watch::Sender::new(false), at: now.as_second(), admin, is_admin: false }
    }

    /// Has an administrator write something; what comes of it.
    async fn post(&self, path: &str, object: &Value) -> Value {
        let request = http::Request::post(path).header("content-type", "application/json");
        let mut request = request.body(Full::new(Bytes::from(object.to_string()))).unwrap();
        request.extensions_mut().insert(Identity::admin());
        let answer = self.server.clone().call(request).await.unwrap();
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap()
    }

    /// A pipe to a connection that is served.
    fn open(&self) -> (DuplexStream, JoinHandle<()>) {
        self.open_to(None)
    }

    fn open_to(&self, known: Option<Known>) -> (DuplexStream, JoinHandle<()>) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let serving = connection(
            far,
            (IpAddr::V4(Ipv4Addr::LOCALHOST), known),
            self.tls.clone(),
            self.server.clone(),
            self.stop.subscribe(),
        );
        (near, tokio::spawn(serving))
    }

    async fn connect(&self, protocol: &str) -> (TlsStream<DuplexStream>, JoinHandle<()>) {
        self.connect_to(protocol, self.open()).await
    }

    async fn connect_to(
        &self,
        protocol: &str,
        (near, serving): (DuplexStream, JoinHandle<()>),
    ) -> (TlsStream<DuplexStream>, JoinHandle<()>) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_details(provider, Arc::new(Then(self.at)))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone());
        let mut config = if self.is_admin {
            let chain = vec![CertificateDer::from_pem_slice(self.admin.certificate.as_bytes()).unwrap()];
            config
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(self.admin.key.as_bytes()).unwrap())
                .unwrap()
        } else {
            config.with_no_client_auth()
        };
        config.alpn_protocols = protocol.split_whitespace().map(Into::into).collect();
        let name = ServerName::try_from("localhost").unwrap();
        (TlsConnector::from(Arc::new(config)).connect(name, near).await.unwrap(), serving)
    }
}

/// When the certificate that a server shows expires.
async fn expires(served: &Served) -> Timestamp {
    let (stream, _serving) = served.connect("h2").await;
    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
    let (_, parsed) = x509_parser::parse_x509_certificate(&shown).unwrap();
    Timestamp::from_second(parsed.validity().not_after.timestamp()).unwrap()
}

/// A server that says again what comes by a connection that was upgraded.
async fn echoing() -> ApiServer {
    let service = tower::service_fn(|request: http::Request<crate::RequestBody>| async move {
        tokio::spawn(async move {
            let upgraded = hyper::upgrade::on(request).await.unwrap();
            let (mut from, mut to) = tokio::io::split(TokioIo::new(upgraded));
            tokio::io::copy(&mut from, &mut to).await
        });
        let response = http::Response::builder().status(101).header("connection", "upgrade").header("upgrade", "echo");
        Ok::<_, Infallible>(response.body(crate::Body::from("")).unwrap())
    });
    let builder = ApiServer::builder(Place::Memory).seed(1).open("/echo", BoxCloneSyncService::new(service));
    builder.start().await.unwrap()
}

/// A connection to it, past HTTP.
async fn upgraded(served: &Served) -> TlsStream<DuplexStream> {
    let (mut stream, _serving) = served.connect("http/1.1").await;
    let request = b"GET /echo HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    stream
}

async fn echoes(stream: &mut TlsStream<DuplexStream>, word: u64) {
    stream.write_u64(word).await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(stream.read_u64().await.unwrap(), word);
}

/// Streams that are open keep their connections, and so what these began with.
#[tokio::test(start_paused = true)]
async fn certificates_are_made_anew_while_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::starting_at(Timestamp::from_second(THEN).unwrap());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 6443));
    let credentials = Credentials::issue(folder.path(), address, &[], None, clock.now()).unwrap();
    let mut served = Served { tls: credentials.acceptor(), server: echoing().await, ..Served::start().await };
    let trusted = std::fs::read(folder.path().join("pki/ca.crt")).unwrap();
    served.roots.add(CertificateDer::from_pem_slice(&trusted).unwrap()).unwrap();
    let mut stream = upgraded(&served).await;
    echoes(&mut stream, 0).await;
    let (first, kubeconfig) = (expires(&served).await, std::fs::read(&credentials.kubeconfig).unwrap());
    let mut renewing = std::pin::pin!(credentials.renew(&clock));
    let mut pass = async |days: u64| drop(timeout(Duration::from_secs(days * 24 * 3600), renewing.as_mut()).await);
    for (days, is_new) in [(29, false), (2, true)] {
        pass(days).await;
        (served.tls, served.at) = (credentials.acceptor(), clock.now().as_second());
        assert_eq!(std::fs::read(&credentials.kubeconfig).unwrap() != kubeconfig, is_new);
        assert_eq!(expires(&served).await > first, is_new);
        echoes(&mut stream, days).await;
    }
    // A file that cannot be written for a while is tried again.
    let second = expires(&served).await;
    std::fs::remove_file(&credentials.kubeconfig).unwrap();
    std::fs::create_dir(&credentials.kubeconfig).unwrap();
    pass(40).await;
    (served.tls, served.at) = (credentials.acceptor(), clock.now().as_second());
    assert_eq!(expires(&served).await, second);
    std::fs::remove_dir(&credentials.kubeconfig).unwrap();
    pass(1).await;
    (served.tls, served.at) = (credentials.acceptor(), clock.now().as_second());
    assert!(credentials.kubeconfig.is_file());
    assert!(expires(&served).await > second);
    echoes(&mut stream, 40).await;
    echoes(&mut upgraded(&served).await, 41).await;
}

/// How long until a connection is not served any more.
async fn lasts(serving: JoinHandle<()>) -> Duration {
    let started = Instant::now();
    timeout(Duration::from_secs(3600), serving).await.unwrap().unwrap();
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_cut() {
    let served = Served::start().await;
    let (_tcp, serving) = served.open();
    assert_eq!(lasts(serving).await, SLOWEST_START, "before TLS");
    for protocol in ["http/1.1", "h2", ""] {
        let (_stream, serving) = served.connect(protocol).await;
        assert_eq!(lasts(serving).await, SLOWEST_START, "after TLS, {protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_only_begins_is_cut() {
    let served = Served::start().await;
    for (protocol, start) in [("http/1.1", "GET / HTTP/1.1\r\nHost: x\r\n"), ("h2", "PRI * HTTP/2.0\r\n"), ("", "P")] {
        let (mut stream, serving) = served.connect(protocol).await;
        stream.write_all(start.as_bytes()).await.unwrap();
        assert_eq!(lasts(serving).await, SLOWEST_START, "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_asked_once_may_be_quiet_until_the_server_stops() {
    let served = Served::start().await;
    let (stream, serving) = served.connect("h2").await;
    let mut client = Client::of("h2", stream).await;
    for _ in 0..2 {
        let answer = client.get("/readyz").await;
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
        sleep(Duration::from_secs(600)).await;
    }
    assert!(!serving.is_finished());
    served.stop.send_replace(true);
    assert!(lasts(serving).await < Duration::from_secs(1));
}

/// A client of one protocol, with its connection under way.
enum Client {
    One(hyper::client::conn::http1::SendRequest<Sent>),
    Two(hyper::client::conn::http2::SendRequest<Sent>),
}

type Sent = UnsyncBoxBody<Bytes, Infallible>;

impl Client {
    async fn of(protocol: &str, stream: TlsStream<DuplexStream>) -> Self {
        let stream = TokioIo::new(stream);
        if protocol == "h2" {
            let (sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
            tokio::spawn(connection);
            return Self::Two(sender);
        }
        let (sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self::One(sender)
    }

    async fn get(&mut self, path: &str) -> http::Response<hyper::body::Incoming> {
        self.send(http::Request::get(format!("https://localhost{path}")), Empty::new().boxed_unsync()).await
    }

    async fn send(&mut self, request: http::request::Builder, body: Sent) -> http::Response<hyper::body::Incoming> {
        let request = request.header("host", "localhost").body(body).unwrap();
        match self {
            Self::One(sender) => {
                sender.ready().await.unwrap();
                sender.send_request(request).await.unwrap()
            }
            Self::Two(sender) => {
                sender.ready().await.unwrap();
                sender.send_request(request).await.unwrap()
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_quiet_connections_of_both_kinds() {
    for protocol in ["http/1.1", "h2"] {
        let served = Served::start().await;
        let (stream, serving) = served.connect(protocol).await;
        let mut client = Client::of(protocol, stream).await;
        let answer = client.get("/readyz").await;
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
        // One of HTTP/1.1 that is quiet for longer has not begun its next request in time.
        sleep(SLOWEST_START / 2).await;
        assert!(!serving.is_finished(), "{protocol}: a quiet connection stays while the server runs");
        served.stop.send_replace(true);
        assert!(lasts(serving).await < Duration::from_secs(1), "{protocol}");
    }
}

/// A body that comes in parts.
fn in_parts() -> (mpsc::Sender<Bytes>, Sent) {
    let (sender, parts) = mpsc::channel(2);
    let parts = futures_util::stream::unfold(parts, async |mut parts: mpsc::Receiver<Bytes>| {
        let part = parts.recv().await?;
        Some((Ok::<_, Infallible>(hyper::body::Frame::data(part)), parts))
    });
    (sender, StreamBody::new(parts).boxed_unsync())
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_requests_in_flight_end() {
    for protocol in ["http/1.1", "h2"] {
        // The server looks at certificates of clients by the machine's own clock.
        let served = Served { is_admin: true, ..Served::start_at(Clock::system().now()).await };
        let (stream, serving) = served.connect(protocol).await;
        let mut client = Client::of(protocol, stream).await;
        let (sender, body) = in_parts();
        let path = "/api/v1/namespaces/default/configmaps";
        let request =
            http::Request::post(format!("https://localhost{path}")).header("content-type", "application/json");
        let asking = tokio::spawn(async move { client.send(request, body).await });
        let text = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "late" } }).to_string();
        let (first, rest) = text.split_at(20);
        sender.send(first.to_owned().into()).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        served.stop.send_replace(true);
        sleep(SLOWEST_END / 2).await;
        assert!(!serving.is_finished(), "{protocol}: half a request was cut");
        sender.send(rest.to_owned().into()).await.unwrap();
        drop(sender);
        let answer = asking.await.unwrap();
        assert_eq!(answer.status(), 201, "{protocol}");
        let answer: Value = serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
        assert!(lasts(serving).await < Duration::from_secs(1), "{protocol}");
        let again = served.post(path, &serde_json::from_str(&text).unwrap()).await;
        assert_eq!((&answer["metadata"]["name"], &again["reason"]), (&json!("late"), &json!("AlreadyExists")));
    }
}
