//! The server on the network: TLS, and nobody after the deadline.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use certificates::tls::{self, Clients};
use certificates::{CertificateError, files};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use manager::accepting::{accept, mind_silence};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::answer::{self, Answer};
use crate::{Export, routes};

/// Connections at the same time; the next ones wait to be accepted. Each may have a thread of its own.
const MOST: usize = 64;
/// A client that does not finish its handshake or its headers in this time is cut.
const START: Duration = Duration::from_secs(10);
/// A client that neither reads nor says anything for this long has gone.
const SILENCE: Duration = Duration::from_secs(300);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("use the certificate of the export")]
    Certificate(#[from] CertificateError),
}

/// A server that listens and does not answer yet.
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    tls: TlsAcceptor,
    export: Arc<Export>,
}

impl Listening {
    /// Listens, with the certificate and the key of these files.
    ///
    /// # Errors
    /// When the address is taken or the certificate cannot be used.
    pub async fn on(address: SocketAddr, certificate: &Path, key: &Path, export: Export) -> Result<Self, ServerError> {
        let config = tls::server(files::chain(certificate)?, files::key(key)?, Clients::Any, &["http/1.1"])?;
        let failed = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, tls: TlsAcceptor::from(Arc::new(config)), export: Arc::new(export) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` resolves. What is being sent then is broken off: somebody else needs the volumes, or the time is over.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, address: _, tls, export } = self;
        accept(listener, MOST, stop, |stream, stopped| serve(stream, tls.clone(), export.clone(), stopped)).await;
    }
}

async fn serve(stream: TcpStream, tls: TlsAcceptor, export: Arc<Export>, mut stopped: watch::Receiver<bool>) {
    let answered = async {
        // A client that cannot be minded is only noticed later.
        drop(mind_silence(&stream, SILENCE));
        let Ok(Ok(stream)) = timeout(START, tls.accept(stream)).await else { return };
        let service = service_fn(move |request| answer(export.clone(), request));
        let mut connection = http1::Builder::new();
        connection.timer(TokioTimer::new()).header_read_timeout(START);
        // Whoever hangs up early sees that itself.
        let _ = connection.serve_connection(TokioIo::new(stream), service).await;
    };
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stopped| *stopped) => {}
        () = answered => {}
    }
}

async fn answer(export: Arc<Export>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let (parts, _) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let method = parts.method.clone();
    let answered = spawn_blocking(move || routes::answer(&export, &parts.method, &parts.uri, &parts.headers)).await;
    let answer = answered.unwrap_or_else(|_| answer::empty(http::StatusCode::INTERNAL_SERVER_ERROR));
    tracing::debug!(%method, path, status = answer.status().as_u16(), "answered");
    Ok(answer)
}
