//! A server's certificate that is renewed in time.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::{RootCertStore, ServerConfig};
use tokio::time::sleep;

use crate::tls::{self, Clients};
use crate::{CertificateError, Keeper, Leaf, Request};

/// How often it is looked whether something is due: a timer stands still while a machine sleeps.
const LOOK: Duration = Duration::from_secs(3600);

/// How a server looks at its clients, given whom it trusts.
type Believes = fn(RootCertStore) -> Clients;

/// A server's certificate, and the authorities of its clients, which are its own.
pub struct Renewing {
    keeper: Arc<Keeper>,
    request: Request,
    believes: Believes,
    protocols: &'static [&'static str],
    current: ArcSwap<Current>,
}

struct Current {
    leaf: Leaf,
    /// The certificate of the authority that signed it, and all that were trusted then.
    signed_by: String,
    trusted: String,
    config: Arc<ServerConfig>,
}

impl Renewing {
    /// A first certificate.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(
        keeper: Arc<Keeper>,
        request: Request,
        believes: Believes,
        protocols: &'static [&'static str],
        now: Timestamp,
    ) -> Result<Self, CertificateError> {
        let current = issue(&keeper, &request, believes, protocols, now)?;
        Ok(Self { keeper, request, believes, protocols, current: ArcSwap::from_pointee(current) })
    }

    /// For the next handshake. Connections that are open go on with what they began with.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.current.load().config.clone()
    }

    /// The certificate in use.
    #[must_use]
    pub fn leaf(&self) -> Leaf {
        self.current.load().leaf.clone()
    }

    /// Lets the authority do what is due. Tells whether the certificate is to be renewed: it is old, or another authority
    /// signs or is trusted.
    ///
    /// # Errors
    /// When a new authority cannot be made or written down.
    pub fn is_due(&self, now: Timestamp) -> Result<bool, CertificateError> {
        self.keeper.look(now)?;
        let current = self.current.load();
        let is_same = current.signed_by == self.keeper.signs() && current.trusted == *self.keeper.trusted().borrow();
        Ok(!is_same || self.keeper.is_old(&current.leaf, now))
    }

    /// Makes the certificate anew.
    ///
    /// # Errors
    /// When that fails; what was in use stays so.
    pub fn renew(&self, now: Timestamp) -> Result<(), CertificateError> {
        let next = issue(&self.keeper, &self.request, self.believes, self.protocols, now)?;
        self.current.store(Arc::new(next));
        Ok(())
    }

    /// Makes the certificate anew if that is due, and tells whether it was.
    ///
    /// # Errors
    /// When that fails; what was in use stays so.
    pub fn look(&self, now: Timestamp) -> Result<bool, CertificateError> {
        let is_due = self.is_due(now)?;
        if is_due {
            self.renew(now)?;
        }
        Ok(is_due)
    }

    /// Looks again and again, for ever; tells whenever it was renewed.
    pub async fn run(&self, now: impl Fn() -> Timestamp, mut renewed: impl FnMut()) {
        loop {
            sleep(LOOK).await;
            match self.look(now()) {
                Ok(true) => {
                    tracing::info!(name = self.request.name, "renewed a certificate");
                    renewed();
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(
                    name = self.request.name,
                    error = &error as &dyn std::error::Error,
                    "cannot renew a certificate; the current one is used until it expires"
                ),
            }
        }
    }
}

fn issue(
    keeper: &Keeper,
    request: &Request,
    believes: Believes,
    protocols: &[&str],
    now: Timestamp,
) -> Result<Current, CertificateError> {
    let (trusted, signed_by) = (keeper.trusted().borrow().clone(), keeper.signs());
    let leaf = keeper.issue(request, now)?;
    let clients = believes(tls::roots(&trusted)?);
    let config = tls::server(tls::chain(&leaf.certificate)?, tls::key(&leaf.key)?, clients, protocols)?;
    Ok(Current { leaf, signed_by, trusted, config: Arc::new(config) })
}
