//! Where virt-api reaches this node's guests on Kubernetes: mutual TLS, one question or one way into a guest per connection.
//!
//! # Guarantees
//! - Only virt-api is let in: a certificate of the authority, in virt-api's name. A user, or another node, is not.
//! - Only guests of this node are reached. virt-api knows the node by its certificate.
//! - Certificates are renewed while streams go on: a connection keeps what it began with.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use certificates::tls::{self, Clients};
use certificates::{CertificateError, Following, files};
use manager::accepting::{accept, mind_absence};
use manager::stopping::Stopping;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use virt_api::subresources::{Guests, remote};

/// Connections at the same time: consoles, screens and ports of this node's guests.
const MOST: usize = 1024;
/// How long a handshake may take.
const GREETING: Duration = Duration::from_secs(15);
/// virt-api that is gone without a word is noticed after this long. One whose client takes nothing is waited for.
const SILENCE: Duration = Duration::from_secs(30);

/// Where and how virt-api is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoorSettings {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address that virt-api connects to, without its port.
    pub advertised: String,
    /// A certificate that names this node, as PEM.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Who signs virt-api's certificate.
    pub authorities: PathBuf,
    /// The common name of virt-api's certificate.
    pub caller: String,
}

/// Listens for virt-api, and does not answer yet.
pub struct Door {
    listener: TcpListener,
    tls: Following<ServerConfig>,
    caller: String,
    /// What virt-api connects to.
    address: String,
}

/// Why virt-api cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The address.
    #[error("listen on {address} for virt-api")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("use the certificates for virt-api")]
    Certificate(#[from] CertificateError),
}

impl Door {
    /// Listens.
    ///
    /// # Errors
    /// When the address is taken or the certificates cannot be used.
    pub fn open(settings: DoorSettings) -> Result<Self, DoorError> {
        let DoorSettings { listen, advertised, certificate, key, authorities, caller } = settings;
        let failed = |source| DoorError::Listen { address: listen, source };
        let listener = std::net::TcpListener::bind(listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let is_ipv6 = advertised.parse::<std::net::Ipv6Addr>().is_ok();
        let address = if is_ipv6 { format!("[{advertised}]:{port}") } else { format!("{advertised}:{port}") };
        let all = vec![certificate.clone(), key.clone(), authorities.clone()];
        let tls = Following::new(all, move || {
            let believed = tls::roots(&String::from_utf8_lossy(&files::read(&authorities)?))?;
            tls::server(files::chain(&certificate)?, files::key(&key)?, Clients::Only(believed), &[])
        })?;
        Ok(Self { listener, tls, caller, address })
    }

    /// What is told to virt-api.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Serves virt-api until the end is asked for; then streams are told why they end.
    pub async fn serve(self, node: &str, guests: Arc<dyn Guests>, stopping: &Stopping) {
        let Self { listener, tls, caller, address: _ } = self;
        let shared = Arc::new((tls, caller, node.to_owned(), guests));
        let serve = |stream, stopped| {
            let shared = shared.clone();
            async move {
                let (tls, caller, node, guests) = &*shared;
                if let Err(error) = answer(stream, tls.current(), caller, node, guests.as_ref(), stopped).await {
                    tracing::debug!(%error, "a connection of virt-api ended");
                }
            }
        };
        accept(listener, MOST, stopping.asked(), serve).await;
    }
}

async fn answer(
    stream: TcpStream,
    tls: Arc<ServerConfig>,
    caller: &str,
    node: &str,
    guests: &dyn Guests,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    mind_absence(&stream, SILENCE)?;
    let stream = timeout(GREETING, TlsAcceptor::from(tls).accept(stream)).await.map_err(io::Error::from)??;
    let shown = crate::relay::name_of(stream.get_ref().1)?;
    if shown != caller {
        tracing::warn!(shown, "somebody else than virt-api asked about guests, and was refused");
        return Err(io::Error::other("the peer is not virt-api"));
    }
    let stopping = async {
        // A door that is gone is closed.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    remote::serve(stream, node, guests, stopping).await
}
