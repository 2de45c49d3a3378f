//! Connections in memory, on a clock that the tests step.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use jiff::Timestamp;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::serving::guard::{AlwaysAllowed, Guard};
use crate::serving::pages::Pages;
use crate::serving::source::{CertificateSource, Certificates};

struct Server {
    shared: Arc<Shared>,
    roots: RootCertStore,
    stop: watch::Sender<bool>,
}

/// Shows everything to everybody.
fn server() -> Server {
    let folder = tempfile::tempdir().unwrap();
    let source = CertificateSource::Folder(folder.path().to_owned());
    let pair = source.pair("test", IpAddr::V4(Ipv4Addr::LOCALHOST), Timestamp::from_second(THEN).unwrap()).unwrap();
    let certificates = Certificates::load(pair, None).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.path().join("test.crt")).unwrap()).unwrap();
    let guard = Guard::new(AlwaysAllowed::parse(["*"]).unwrap(), None);
    let shared = Arc::new(Shared { pages: Pages::new("test"), certificates, guard });
    Server { shared, roots, stop: watch::Sender::new(false) }
}

impl Server {
    /// A pipe to a connection that is served.
    fn open(&self, capacity: usize) -> (DuplexStream, JoinHandle<()>) {
        let (near, far) = tokio::io::duplex(capacity);
        (near, tokio::spawn(serve(far, self.shared.clone(), self.stop.subscribe())))
    }

    async fn connect(&self, protocol: &str) -> (TlsStream<DuplexStream>, JoinHandle<()>) {
        let (near, served) = self.open(64 * 1024);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(Then))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = protocol.split_whitespace().map(Into::into).collect();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, near).await.unwrap();
        (stream, served)
    }
}

/// When the certificate was made, in seconds.
const THEN: i64 = 1_000_000_000;

#[derive(Debug)]
struct Then;

impl TimeProvider for Then {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(THEN.unsigned_abs())))
    }
}

/// How long until a connection is not served any more.
async fn lasts(served: JoinHandle<()>) -> Duration {
    let started = Instant::now();
    served.await.unwrap();
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_cut() {
    let server = server();
    let (_tcp, served) = server.open(1024);
    assert_eq!(lasts(served).await, SLOWEST_START, "before TLS");
    for protocol in ["http/1.1", "h2", ""] {
        let (mut stream, served) = server.connect(protocol).await;
        assert_eq!(lasts(served).await, SLOWEST_START, "after TLS, {protocol}");
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest).await);
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_head_does_not_help() {
    let server = server();
    let (mut stream, served) = server.connect("http/1.1").await;
    tokio::spawn(async move {
        for byte in b"GET /healthz HTTP/1.1\r\n".iter().cycle() {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            sleep(Duration::from_millis(700)).await;
        }
    });
    assert!(lasts(served).await <= SLOWEST_START);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_long_is_refused() {
    let server = server();
    let (mut stream, served) = server.connect("http/1.1").await;
    let long = format!("GET /healthz HTTP/1.1\r\nlong: {}\r\n\r\n", "x".repeat(MOST_HEAD));
    stream.write_all(long.as_bytes()).await.unwrap();
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer).await);
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    served.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_outlives_the_pause_between_two_scrapes_and_not_more() {
    let server = server();
    let (stream, served) = server.connect("http/1.1").await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        sleep(Duration::from_secs(9)).await;
        let request = Request::get("/metrics").body(Empty::<Bytes>::new()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().collect_status().await, 200);
        sleep(Duration::from_secs(60)).await;
    }
    assert_eq!(lasts(served).await, Duration::from_secs(30));

    let (stream, served) = server.connect("h2").await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::head("https://localhost/healthz").body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.headers()["content-length"], "2");
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 0);
    // It answers the server's pings, and still asks nothing.
    let lasted = lasts(served).await;
    assert!(lasted >= LONGEST_PAUSE && lasted <= LONGEST_PAUSE + SLOWEST_END, "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_reads_does_not_hold_its_place() {
    let server = server();
    server.shared.pages.configz("large", "x".repeat(1024 * 1024).into());
    let (mut stream, served) = server.connect("http/1.1").await;
    stream.write_all(b"GET /configz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let lasted = lasts(served).await;
    assert!(lasted <= LONGEST_PAUSE + SLOWEST_END, "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_idle_connections_at_once() {
    let server = server();
    let (stream, served) = server.connect("h2").await;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("https://localhost/healthz").body(Empty::<Bytes>::new()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().collect_status().await, 200);
    server.stop.send_replace(true);
    assert!(lasts(served).await < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_nobody_who_has_not_asked() {
    let server = server();
    for protocol in ["http/1.1", "h2"] {
        let (_stream, served) = server.connect(protocol).await;
        server.stop.send_replace(true);
        assert!(lasts(served).await < Duration::from_secs(1), "{protocol}");
        server.stop.send_replace(false);
    }
}

/// Reads an answer to its end.
trait CollectStatus {
    async fn collect_status(self) -> u16;
}

impl CollectStatus for http::Response<Incoming> {
    async fn collect_status(self) -> u16 {
        let code = self.status().as_u16();
        self.into_body().collect().await.unwrap();
        code
    }
}
