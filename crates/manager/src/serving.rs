//! What a controller manager shows on the network: health, metrics, configuration, and what its controllers tell of
//! themselves. Behind TLS, and all but health only for whom the API server lets see it.
//!
//! ```text
//! TCP ──▶ TLS ──▶ GET or HEAD? ──▶ guard: always allowed, or who asks and may they? ──▶ pages
//!          │                         │
//!    files, looked at          TokenReview, SubjectAccessReview
//!    again as they change      (kept for ten seconds)
//! ```
//!
//! It reads the certificate's files and asks the API server for reviews; it writes nothing but a self-signed pair where
//! there is none. Absent on purpose: profiling pages, changing the log level, plain HTTP, certificates by server name,
//! impersonation, and the request-header headers of an aggregating proxy.

mod answer;
mod cache;
mod connection;
mod guard;
mod health;
mod pages;
mod reviews;
mod source;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::net::TcpListener;

use crate::accepting::accept;
use crate::context::Now;
use guard::{AlwaysAllowed, Guard};
use reviews::Reviews;
use source::Certificates;

pub use certificates::CertificateError;
pub use guard::PathError;
pub use pages::Pages;
pub use source::CertificateSource;

/// Paths that need no permission unless told otherwise: who probes a process has no token.
pub const ALWAYS_ALLOWED: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// Connections at the same time; the next ones wait to be accepted. Scrapers, probes and people are few.
const MOST_CONNECTIONS: usize = 512;

/// Where and to whom pages are shown.
pub struct Serving {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// The server's certificate.
    pub certificate: CertificateSource,
    /// Certificates of clients that one of these authorities signed tell who asks: CN is the user, each O a group.
    pub client_ca: Option<PathBuf>,
    /// Paths that everybody sees; a `*` at the end is any rest.
    pub always_allow_paths: Vec<String>,
    /// Asks who has a token and who may see what. Without it tokens are unknown, and nobody sees more than the paths
    /// that are always allowed, except members of `system:masters` by their certificate.
    pub reviews: Option<Client>,
    /// The time, for a certificate that is made.
    pub now: Now,
}

/// Why pages cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// The address.
    #[error("listen on {address}")]
    Listen { address: SocketAddr, source: std::io::Error },
    /// A path that is always allowed.
    #[error("read the paths that are always allowed")]
    Path(#[from] PathError),
    #[error("prepare the certificate")]
    Certificate(#[from] CertificateError),
}

impl Serving {
    /// Listens; connections wait until it runs.
    ///
    /// # Errors
    /// When the address is taken, a path is wrong or the certificate cannot be used.
    pub async fn bind(self, pages: Pages) -> Result<Listening, ServingError> {
        let Self { address, certificate, client_ca, always_allow_paths, reviews, now } = self;
        let open = AlwaysAllowed::parse(always_allow_paths.iter().map(String::as_str))?;
        let failed = |source| ServingError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let pair = certificate.pair(pages.name(), address.ip(), now())?;
        let certificates = Certificates::load(pair, client_ca)?;
        let guard = Guard::new(open, reviews.map(Reviews::new));
        Ok(Listening { listener, address, shared: Arc::new(Shared { pages, certificates, guard }) })
    }
}

/// What all connections share.
struct Shared {
    pages: Pages,
    certificates: Certificates,
    guard: Guard,
}

/// Listens and does not answer yet.
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Listening {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` resolves, then lets running requests end.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listener, address: _, shared } = self;
        accept(listener, MOST_CONNECTIONS, stop, |stream, stopped| connection::serve(stream, shared.clone(), stopped))
            .await;
    }
}
