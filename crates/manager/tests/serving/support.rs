//! A manager's pages over TLS on loopback, and a server that reviews who asks.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use manager::serving::{ALWAYS_ALLOWED, CertificateSource, Pages, Serving, ServingError};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::{OwnedRwLockWriteGuard, RwLock, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// When certificates are made and looked at, in seconds.
const THEN: i64 = 1_000_000_000;

#[derive(Debug)]
struct Then;

impl TimeProvider for Then {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(THEN.unsigned_abs())))
    }
}

/// Pages that are shown.
pub(crate) struct Shown {
    pub(crate) pages: Pages,
    pub(crate) folder: TempDir,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) address: SocketAddr,
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

/// Shows pages with a certificate of their own.
pub(crate) async fn show(reviews: Option<Client>, client_ca: Option<PathBuf>) -> Shown {
    let (folder, pages) = (tempfile::tempdir().unwrap(), Pages::new("test-manager"));
    let serving = serving(CertificateSource::Folder(folder.path().to_owned()), reviews, client_ca);
    let listening = serving.bind(pages.clone()).await.unwrap();
    let address = listening.address();
    let (stop, mut stopped) = watch::channel(false);
    let running = tokio::spawn(listening.run(async move { drop(stopped.wait_for(|stop| *stop).await) }));
    let (certificate, key) = (folder.path().join("test-manager.crt"), folder.path().join("test-manager.key"));
    Shown { pages, folder, certificate, key, address, stop, running }
}

fn serving(certificate: CertificateSource, reviews: Option<Client>, client_ca: Option<PathBuf>) -> Serving {
    Serving {
        address: (Ipv4Addr::LOCALHOST, 0).into(),
        certificate,
        client_ca,
        always_allow_paths: ALWAYS_ALLOWED.map(str::to_owned).into(),
        reviews,
        now: Arc::new(|| Timestamp::from_second(THEN).unwrap()),
    }
}

/// Whether pages could be shown with a pair of files.
pub(crate) async fn try_files(certificate: &Path, key: &Path, path: &str) -> Result<(), ServingError> {
    let source = CertificateSource::Files { certificate: certificate.to_owned(), key: key.to_owned() };
    let serving = Serving { always_allow_paths: vec![path.to_owned()], ..serving(source, None, None) };
    serving.bind(Pages::new("test-manager")).await.map(drop)
}

/// How a client shows who it is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Proof<'a> {
    pub(crate) token: Option<&'a str>,
    pub(crate) certificate: Option<&'a Pair>,
}

impl Shown {
    /// A handshake with a server that has this certificate.
    pub(crate) async fn connect(
        &self,
        certificate: CertificateDer<'static>,
        proof: Proof<'_>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_details(provider, Arc::new(Then))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match proof.certificate {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
    }

    pub(crate) async fn get(&self, path: &str, proof: Proof<'_>) -> (u16, String) {
        let answer = self.send("GET", path, proof).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    pub(crate) async fn send(&self, method: &str, path: &str, proof: Proof<'_>) -> Response<hyper::body::Incoming> {
        let known = CertificateDer::from_pem_file(&self.certificate).unwrap();
        let stream = self.connect(known, proof).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        if let Some(token) = proof.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) async fn ended(self) {
        self.running.await.unwrap();
    }
}

pub(crate) fn token(token: &str) -> Proof<'_> {
    Proof { token: Some(token), certificate: None }
}

/// A certificate and its key, as PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A pair that its own key signed.
pub(crate) fn self_signed() -> Pair {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    Pair { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}

/// An authority, and clients that it signed.
pub(crate) fn authority(clients: &[(&str, &str)]) -> (String, Vec<Pair>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let sign = |(user, group): &(&str, &str)| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, *user);
        params.distinguished_name.push(DnType::OrganizationName, *group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        Pair { certificate: params.signed_by(&key, &issuer).unwrap().pem(), key: key.serialize_pem() }
    };
    (certificate, clients.iter().map(sign).collect())
}

/// Knows the tokens `see` and `blind`; who has `see`, and the user `seer`, may get everything.
#[derive(Clone, Default)]
pub(crate) struct Reviewer {
    /// What was asked, in short.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    pub(crate) away: Arc<AtomicBool>,
    /// Whoever reviews has a part of it; how many have come.
    turn: Arc<RwLock<()>>,
    came: Arc<watch::Sender<usize>>,
}

/// No review ends while it lives.
pub(crate) struct Held {
    _turn: OwnedRwLockWriteGuard<()>,
    came: watch::Receiver<usize>,
}

impl Held {
    /// Waits until a review is asked for.
    pub(crate) async fn wanted(&self) {
        self.came.clone().changed().await.unwrap();
    }
}

impl Reviewer {
    pub(crate) fn hold(&self) -> Held {
        Held { _turn: self.turn.clone().try_write_owned().unwrap(), came: self.came.subscribe() }
    }

    pub(crate) fn client(&self) -> Client {
        let reviewer = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let reviewer = reviewer.clone();
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut review: Value = serde_json::from_slice(&body).unwrap();
                reviewer.came.send_modify(|count| *count += 1);
                // Others come meanwhile.
                tokio::time::sleep(Duration::from_millis(50)).await;
                let _turn = reviewer.turn.read().await;
                let code = if reviewer.away.load(Ordering::SeqCst) { 503 } else { 201 };
                review["status"] = reviewer.review(&path, &review["spec"]);
                let body = Body::from(review.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn review(&self, path: &str, spec: &Value) -> Value {
        let tell = |what: String| self.asked.lock().unwrap().push(what);
        if path == "/apis/authentication.k8s.io/v1/tokenreviews" {
            let token = spec["token"].as_str().unwrap();
            tell(format!("token {token}"));
            return match token {
                "see" | "blind" => {
                    let user = json!({ "username": token, "uid": "1", "groups": ["team"], "extra": { "k": ["v"] } });
                    json!({ "authenticated": true, "user": user })
                }
                _ => json!({ "authenticated": false, "error": "no such token" }),
            };
        }
        assert_eq!(path, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
        let what = &spec["nonResourceAttributes"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let groups = spec["groups"].as_array().unwrap().iter().map(text).collect::<Vec<_>>().join(",");
        tell(format!("{} ({groups}) {} {}", text(&spec["user"]), text(&what["verb"]), text(&what["path"])));
        json!({ "allowed": matches!(spec["user"].as_str(), Some("see" | "seer")) && what["verb"] == "get" })
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}
