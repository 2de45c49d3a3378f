//! How the virt-handlers of several nodes on this machine know each other: by certificates of an authority that they share.
//!
//! Whoever can read the directory of `orlop up` is root. So each node signs its own certificate, a new one for each connection, and
//! takes the authority as it is at that moment: nothing has to be renewed or told when it is replaced.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use certificates::tls::{self, Clients};
use certificates::{CertificateError, Keeper, Leaf, Request, Terms, Use};
use jiff::{SignedDuration, Timestamp};
use rustls::{ClientConfig, ServerConfig};
use virt_handler::Credentials;

use super::paths;
use crate::cluster;

/// A connection takes the authority as it is when it begins, so that everybody has heard of another at once; certificates are good
/// for longer than a handshake takes.
const TERMS: Terms = Terms {
    authority: SignedDuration::from_hours(10 * 365 * 24),
    leaf: SignedDuration::from_hours(24),
    renewed: SignedDuration::from_hours(12),
    spread: SignedDuration::from_hours(24),
};
/// How often the authority is looked at.
const LOOK: Duration = Duration::from_secs(3600);

fn open(data: &Path) -> Result<(Keeper, Timestamp), CertificateError> {
    let now = cluster::clock()();
    Ok((Keeper::open(&paths::handlers(data), "orlop-virt-handlers", TERMS, now)?, now))
}

/// Makes the authority, if there is none, and replaces it in time. Called before any node begins.
pub(super) fn keep(data: &Path) -> anyhow::Result<()> {
    open(data).context("make an authority for migrations")?;
    let data = data.to_owned();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK).await;
            let looked = open(&data).and_then(|(keeper, now)| keeper.look(now));
            if let Err(error) = looked {
                tracing::warn!(%error, "the authority for migrations could not be looked at");
            }
        }
    });
    Ok(())
}

/// What a node shows to others, and whom it believes.
pub(super) struct OfNode {
    data: PathBuf,
    node: String,
}

impl OfNode {
    pub(super) fn new(data: &Path, node: &str) -> Arc<Self> {
        Arc::new(Self { data: data.to_owned(), node: node.to_owned() })
    }

    /// A certificate of this moment, and those who are believed.
    fn look(&self) -> Result<(Leaf, rustls::RootCertStore), CertificateError> {
        let (keeper, now) = open(&self.data)?;
        let request = Request { used: Use::Peer, ..Request::server(&self.node, &[&self.node], &[]) };
        let leaf = keeper.issue(&request, now)?;
        let roots = tls::roots(&keeper.trusted().borrow())?;
        Ok((leaf, roots))
    }
}

impl Credentials for OfNode {
    fn server(&self) -> Result<Arc<ServerConfig>, CertificateError> {
        let (leaf, roots) = self.look()?;
        let (chain, key) = (tls::chain(&leaf.certificate)?, tls::key(&leaf.key)?);
        tls::server(chain, key, Clients::Only(roots), &[]).map(Arc::new)
    }

    fn client(&self) -> Result<Arc<ClientConfig>, CertificateError> {
        let (leaf, roots) = self.look()?;
        tls::client(roots, Some(&leaf)).map(Arc::new)
    }
}
