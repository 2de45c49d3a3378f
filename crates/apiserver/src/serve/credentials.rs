//! What the server shows to be believed: its certificate, and the administrator's in a kubeconfig. Both are good for a year. A
//! server may run for longer, so it makes them anew long before.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use certificates::files::{self, SECRET};
use certificates::tls::Clients;
use certificates::{CertificateError, Keeper, Leaf, Renewing};
use jiff::Timestamp;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::{Clock, authority};

/// How often it is looked whether they are old: a timer stands still while a machine sleeps.
const LOOK: Duration = Duration::from_secs(3600);
/// What is spoken.
const PROTOCOLS: &[&str] = &["h2", "http/1.1"];

/// What the server shows.
pub(super) struct Credentials {
    /// Where kubeconfigs lead.
    pub(super) address: SocketAddr,
    pub(super) kubeconfig: PathBuf,
    keeper: Arc<Keeper>,
    own: Renewing,
}

impl Credentials {
    /// Makes them, with the authority that is kept in a directory. Those of before are good until they expire.
    pub(super) fn issue(
        folder: &Path,
        address: SocketAddr,
        reached: &[IpAddr],
        host: Option<&str>,
        now: Timestamp,
    ) -> Result<Self, CertificateError> {
        let keeper = Arc::new(authority::open(&folder.join("pki"), now)?);
        let own = own(&keeper, reached, host, now)?;
        let credentials = Self { address, kubeconfig: folder.join("kubeconfig"), keeper, own };
        credentials.write_kubeconfig(now)?;
        Ok(credentials)
    }

    /// How the next connection begins. Those that are open go on with what they began with.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.own.config())
    }

    fn write_kubeconfig(&self, now: Timestamp) -> Result<(), CertificateError> {
        let admin = self.keeper.issue(&authority::admin(), now)?;
        let text = kubeconfig_text(self.address, &self.keeper.trusted().borrow(), "orlop-admin", &admin);
        files::write(&self.kubeconfig, &text, SECRET)
    }

    /// Makes them anew whenever they are old, for ever.
    pub(super) async fn renew(&self, clock: &Clock) {
        loop {
            sleep(LOOK).await;
            match self.look(clock.now()) {
                Ok(true) => tracing::info!("renewed the certificates of the server and its administrator"),
                Ok(false) => {}
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot renew certificates; the current ones expire within a year"
                ),
            }
        }
    }

    /// The administrator's first: if it cannot be written, all is tried again at the next look.
    fn look(&self, now: Timestamp) -> Result<bool, CertificateError> {
        let is_due = self.own.is_due(now)?;
        if is_due {
            self.write_kubeconfig(now)?;
            self.own.renew(now)?;
        }
        Ok(is_due)
    }
}

/// The server's own certificate; clients are known by theirs, if they show one.
pub(super) fn own(
    keeper: &Arc<Keeper>,
    reached: &[IpAddr],
    host: Option<&str>,
    now: Timestamp,
) -> Result<Renewing, CertificateError> {
    Renewing::new(keeper.clone(), authority::server(reached, host), Clients::Known, PROTOCOLS, now)
}

/// A way to the server for a user.
pub(super) fn kubeconfig_text(address: SocketAddr, authority: &str, user: &str, leaf: &Leaf) -> String {
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
        encoded(&leaf.certificate),
        encoded(&leaf.key),
    )
}
