//! Connections in memory, on a clock that the tests step.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use jiff::Timestamp;
use rustls::ClientConfig;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::Place;

/// When certificates are made and looked at, in seconds.
const THEN: i64 = 1_000_000_000;

#[derive(Debug)]
struct Then;

impl TimeProvider for Then {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(THEN.unsigned_abs())))
    }
}

struct Served {
    server: ApiServer,
    tls: TlsAcceptor,
    roots: RootCertStore,
    stop: watch::Sender<bool>,
}

impl Served {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::open(folder.path(), Timestamp::from_second(THEN).unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap()).unwrap();
        let tls = acceptor(&authority, &authority.server(&[], None).unwrap()).unwrap();
        let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
        Self { server, tls, roots, stop: watch::Sender::new(false) }
    }

    /// A pipe to a connection that is served.
    fn open(&self) -> (DuplexStream, JoinHandle<()>) {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let serving = connection(
            far,
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            self.tls.clone(),
            self.server.clone(),
            self.stop.subscribe(),
        );
        (near, tokio::spawn(serving))
    }

    async fn connect(&self, protocol: &str) -> (TlsStream<DuplexStream>, JoinHandle<()>) {
        let (near, serving) = self.open();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(Then))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = protocol.split_whitespace().map(Into::into).collect();
        let name = ServerName::try_from("localhost").unwrap();
        (TlsConnector::from(Arc::new(config)).connect(name, near).await.unwrap(), serving)
    }
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
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..2 {
        let request = http::Request::get("https://localhost/readyz").body(Empty::<Bytes>::new()).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
        sleep(Duration::from_secs(600)).await;
    }
    assert!(!serving.is_finished());
    served.stop.send_replace(true);
    assert!(lasts(serving).await < Duration::from_secs(1));
}

/// A watch does not end by itself; others do.
#[tokio::test(start_paused = true)]
async fn a_stop_ends_quiet_connections_of_both_kinds() {
    let served = Served::start().await;
    let (stream, serving) = served.connect("http/1.1").await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("/readyz").header("host", "x").body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
    served.stop.send_replace(true);
    assert!(lasts(serving).await < Duration::from_secs(1));
}
