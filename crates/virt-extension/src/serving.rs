//! Connections of Kubernetes' API server, from their first byte to their last.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use certificates::tls;
use certificates::{CertificateError, Following, files};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use manager::accepting::{SLOWEST_END, accept};
use manager::caches::Caches;
use manager::context::Chance;
use manager::errors::chain;
use manager::serving::Pages;
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use virt_api::subresources::{Guests, Subresources};

use crate::documents::{self, Document};
use crate::facts::Watched;
use crate::front_proxy::{self, FrontProxy, Shown};
use crate::metrics::Metrics;
use crate::streams::Streams;
use crate::webhooks::{Webhook, Webhooks};

/// Connections at the same time, streams not counted; the next ones wait to be accepted.
const MOST_CONNECTIONS: usize = 4096;
/// How long a handshake may take.
const SLOWEST_START: Duration = Duration::from_secs(15);
/// The next request has this long to come. Longer than the API server keeps a connection that it does not use.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// A review has the object twice, and etcd keeps none of more than 1.5 MiB; text in JSON may be longer than what it stands for.
const LONGEST_REVIEW: usize = 16 << 20;
/// The body of any other request: a VM that is to be written out.
const LONGEST_BODY: usize = 4 << 20;
/// WebSockets begin in this version of HTTP.
const PROTOCOLS: [&str; 1] = ["http/1.1"];

/// virt-api behind Kubernetes' API server.
pub struct Extension {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// The serving certificate, as PEM. When the files change, new connections get what is in them.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// With the rights of virt-api.
    pub client: Client,
    /// How guests are reached.
    pub guests: Arc<dyn Guests>,
    /// Where the UUIDs of guests come from.
    pub chance: Chance,
    /// Where it shows how it is.
    pub pages: Pages,
}

/// Why virt-api does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address.
    #[error("listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    /// The serving certificate.
    #[error("use the serving certificate")]
    Certificate(#[from] CertificateError),
}

impl Extension {
    /// Listens; connections wait until it runs.
    ///
    /// # Errors
    /// When the address is taken or the certificate cannot be used.
    pub async fn bind(self) -> Result<Listening, StartError> {
        let Self { address, certificate, key, client, guests, chance, pages } = self;
        let failed = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let front_proxy = watch::Sender::new(Arc::new(FrontProxy::default()));
        let believed = front_proxy.subscribe();
        let tls = Following::new(vec![certificate.clone(), key.clone()], move || {
            let by = believed.borrow().clone();
            let (chain, key) = (files::chain(&certificate)?, files::key(&key)?);
            let config = Arc::new(tls::server(chain, key, by.clients()?, &PROTOCOLS)?);
            Ok(Handshake { config, by: by.authorities.clone() })
        })?;
        let caches = Caches::new(client.clone(), chance.clone());
        let watched = Watched::new(&caches);
        let (metrics, streams) = (Metrics::default(), Streams::default());
        metrics.register(&pages, streams.gauge());
        let webhooks = Webhooks::new(client.clone(), watched.clone(), chance.clone());
        let service = Subresources::new(client.clone(), guests);
        let shared = Shared { tls, front_proxy, webhooks, service, streams, metrics };
        Ok(Listening { listener, address, caches, watched, client, chance, pages, shared: Arc::new(shared) })
    }
}

/// How a connection begins, and whom it believes.
struct Handshake {
    config: Arc<ServerConfig>,
    by: Option<String>,
}

/// What all connections share.
struct Shared {
    tls: Following<Handshake>,
    front_proxy: watch::Sender<Arc<FrontProxy>>,
    webhooks: Webhooks,
    service: Subresources,
    streams: Streams,
    metrics: Metrics,
}

/// Listens and does not answer yet.
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    caches: Caches,
    watched: Watched,
    client: Client,
    chance: Chance,
    pages: Pages,
    shared: Arc<Shared>,
}

impl Listening {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` resolves; then lets requests end, and takes leave of streams.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, address: _, caches, watched, client, chance, pages, shared } = self;
        let known = shared.clone();
        let followed = front_proxy::follow(client, chance, shared.front_proxy.clone(), move || known.tls.refresh());
        let ready = async {
            watched.synced().await;
            let mut known = shared.front_proxy.subscribe();
            // Without a front proxy there is nobody who could ask for anything but reviews.
            let _ = known.wait_for(|proxy| proxy.authorities.is_some()).await;
            pages.set_ready(true);
            std::future::pending::<()>().await;
        };
        let served = async {
            let serve = |stream, stopped| connection(stream, shared.clone(), stopped);
            accept(listener, MOST_CONNECTIONS, stop, serve).await;
            shared.streams.ended().await;
        };
        tokio::select! {
            biased;
            () = served => {}
            () = ready => {}
            () = followed => tracing::error!("the watch of the front proxy has ended"),
            () = async { caches.run().await; std::future::pending().await } => {}
        }
        pages.set_ready(false);
    }
}

/// Serves a connection until either side ends it, or the front proxy is another.
async fn connection(stream: TcpStream, shared: Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    let handshake = shared.tls.current();
    let accepted = timeout(SLOWEST_START, TlsAcceptor::from(handshake.config.clone()).accept(stream)).await;
    let Ok(Ok(stream)) = accepted else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let shown = certificate.and_then(|certificate| Shown::new(certificate, handshake.by.clone()));
    let mut believed = shared.front_proxy.subscribe();
    let (answering, stopping) = (shared.clone(), stopped.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, shown, stopping) = (answering.clone(), shown.clone(), stopping.clone());
        async move { Ok::<_, Infallible>(shared.respond(request, shown.as_ref(), stopping).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(LONGEST_PAUSE);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
    // What the connection itself has to say comes first.
    let ended = tokio::select! {
        biased;
        ended = serving.as_mut() => Some(ended),
        _ = stopped.wait_for(|stopped| *stopped) => None,
        // Its certificate was verified by others than are believed now.
        _ = believed.wait_for(|proxy| proxy.authorities != handshake.by) => None,
    };
    let ended = match ended {
        Some(ended) => Ok(ended),
        None => {
            serving.as_mut().graceful_shutdown();
            timeout(SLOWEST_END, serving).await
        }
    };
    if let Ok(Err(error)) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

impl Shared {
    async fn respond(
        &self,
        request: Request<Incoming>,
        shown: Option<&Shown>,
        stopping: watch::Receiver<bool>,
    ) -> Response<Full<Bytes>> {
        match Webhook::at(request.uri().path()) {
            Some(webhook) => self.review(webhook, request).await,
            None => {
                let answer = self.aggregated(request, shown, stopping).await;
                self.metrics.answered(answer.status());
                answer
            }
        }
    }

    /// Kubernetes' API server shows no certificate when it calls a webhook. An answer tells nobody more than they have said.
    async fn review(&self, webhook: Webhook, request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::POST {
            return refused(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "reviews are sent with POST");
        }
        let body = match Limited::new(request.into_body(), LONGEST_REVIEW).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return refused(StatusCode::BAD_REQUEST, "BadRequest", &error.to_string()),
        };
        let answer = self.webhooks.answer(webhook, &body).await;
        let allowed = answer.as_ref().ok().and_then(|answer| answer["response"]["allowed"].as_bool());
        self.metrics.reviewed(webhook, allowed);
        match answer {
            Ok(answer) => json_answer(StatusCode::OK, &answer),
            Err(error) if error.is_asked_wrong() => refused(StatusCode::BAD_REQUEST, "BadRequest", &chain(&error)),
            Err(error) => {
                tracing::warn!(error = chain(&error), "cannot answer an admission review");
                refused(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &chain(&error))
            }
        }
    }

    /// What clients ask for through Kubernetes' API server.
    async fn aggregated(
        &self,
        mut request: Request<Incoming>,
        shown: Option<&Shown>,
        stopping: watch::Receiver<bool>,
    ) -> Response<Full<Bytes>> {
        let front_proxy = self.front_proxy.borrow().clone();
        let Some(caller) = front_proxy.caller(shown, request.headers()) else {
            return refused(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized");
        };
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            match documents::document(request.uri().path(), request.headers()) {
                Some(Document::Here(document)) => return json_answer(StatusCode::OK, &document),
                Some(Document::NotAcceptable) => {
                    return refused(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", "only application/json is supported");
                }
                None => {}
            }
        }
        if request.headers().contains_key(header::UPGRADE) {
            let Some(lasting) = self.streams.begin(&caller.user, stopping) else {
                let why = "too many streams are open; close one and try again";
                return refused(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", why);
            };
            request.extensions_mut().insert(lasting);
        }
        request.extensions_mut().insert(caller);
        self.service.answer(request.map(|body| Limited::new(body, LONGEST_BODY))).await
    }
}

fn json_answer(code: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from(format!("{value}\n"))));
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

fn refused(code: StatusCode, reason: &str, message: &str) -> Response<Full<Bytes>> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    json_answer(code, &status)
}
