//! What the server shows to be believed: its certificate, and the administrator's in a kubeconfig. Both are good for a year. A
//! server may run for longer, so it makes them anew long before.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use super::ServeError;
use crate::Clock;
use crate::certificates::{Authority, Pair, write_secret};

/// How old they get.
const OLDEST: SignedDuration = SignedDuration::from_hours(30 * 24);
/// How often that is looked at: a timer stands still while a machine sleeps.
const LOOK: Duration = Duration::from_secs(3600);

/// What is in them.
pub(super) struct Credentials {
    /// Where the authority and the kubeconfig are kept.
    pub(super) folder: PathBuf,
    /// Where kubeconfigs lead.
    pub(super) address: SocketAddr,
    /// Where else the server is reached, and by which name.
    pub(super) reached: Vec<IpAddr>,
    pub(super) host: Option<String>,
}

impl Credentials {
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Makes them. Those of before are good until they expire.
    pub(super) fn issue(&self, now: Timestamp) -> Result<TlsAcceptor, ServeError> {
        let authority = Authority::open(&self.folder.join("pki"), now)?;
        let tls = acceptor(&authority, &authority.server(&self.reached, self.host.as_deref())?)?;
        let text = kubeconfig_text(self.address, &authority.certificate, "orlop-admin", &authority.admin()?);
        write_secret(&self.kubeconfig(), &text)?;
        Ok(tls)
    }

    /// Makes them anew whenever they are old, for ever. Connections that are open go on with what they began with.
    pub(super) async fn renew(&self, clock: &Clock, tls: &ArcSwap<TlsAcceptor>) {
        let mut issued = clock.now();
        loop {
            sleep(LOOK).await;
            let now = clock.now();
            if now.duration_since(issued) < OLDEST {
                continue;
            }
            match self.issue(now) {
                Ok(new) => {
                    tls.store(Arc::new(new));
                    issued = now;
                    tracing::info!("made the certificates of the server and its administrator anew");
                }
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "certificates are not made anew: those in use expire within a year"
                ),
            }
        }
    }
}

/// How connections begin: with this certificate, and a look at the client's.
pub(super) fn acceptor(authority: &Authority, server: &Pair) -> Result<TlsAcceptor, ServeError> {
    let certificate = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).map_err(ServeError::Pem);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&authority.certificate)?).map_err(ServeError::Tls)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(ServeError::Verifier)?;
    let key = PrivateKeyDer::from_pem_slice(server.key.as_bytes()).map_err(ServeError::Pem)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ServeError::Tls)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate(&server.certificate)?], key)
        .map_err(ServeError::Tls)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A way to the server for a user.
pub(super) fn kubeconfig_text(address: SocketAddr, authority: &str, user: &str, pair: &Pair) -> String {
    let encoded = |text: &str| STANDARD.encode(text);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: orlop
  cluster:
    server: https://{address}
    certificate-authority-data: {}
users:
- name: {user}
  user:
    client-certificate-data: {}
    client-key-data: {}
contexts:
- name: orlop
  context:
    cluster: orlop
    user: {user}
current-context: orlop
",
        encoded(authority),
        encoded(&pair.certificate),
        encoded(&pair.key),
    )
}
