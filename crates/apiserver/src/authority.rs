//! The server's own authority, which signs its certificate and those of its users; and the key that signs tokens.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use certificates::files::{self, SECRET};
use certificates::{CertificateError, Keeper, Request, Terms};
use jiff::{SignedDuration, Timestamp};

use crate::directories;
use crate::identity::MASTERS;

/// Whoever has a kubeconfig knows the authorities of the day on which it was made, and it is good for a year: it takes that
/// long until everybody has heard of another. A server may run for longer than a certificate is good.
const TERMS: Terms = Terms {
    authority: SignedDuration::from_hours(10 * 365 * 24),
    leaf: SignedDuration::from_hours(365 * 24),
    renewed: SignedDuration::from_hours(30 * 24),
    spread: SignedDuration::from_hours(365 * 24),
};

/// What a server is called by those who run in the cluster.
const HOSTS: [&str; 5] =
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];

/// Where the key that signs tokens is kept in the authority's directory.
const TOKEN_KEY: &str = "sa.key";

/// Takes the authority in a directory, or makes one there: the kubeconfigs that it signed stay good.
pub(crate) fn open(folder: &Path, now: Timestamp) -> Result<Keeper, CertificateError> {
    make_directory(folder)?;
    Keeper::open(folder, "orlop-ca", TERMS, now)
}

/// The certificate of a server that is reached at these addresses, and by this name besides the usual ones.
pub(crate) fn server(addresses: &[IpAddr], host: Option<&str>) -> Request {
    let hosts: Vec<&str> = HOSTS.into_iter().chain(host).collect();
    Request::server("orlop-apiserver", &hosts, addresses)
}

/// The certificate of the administrator.
pub(crate) fn admin() -> Request {
    Request::client("kubernetes-admin", &[MASTERS])
}

/// Why there is no key to sign tokens with.
#[derive(Debug, thiserror::Error)]
pub enum TokenKeyError {
    /// It cannot be made, read or written.
    #[error(transparent)]
    File(#[from] CertificateError),
    /// It cannot be used.
    #[error("{path}")]
    Key {
        /// Where it is kept.
        path: PathBuf,
        /// What is wrong with it.
        source: tokens::KeyError,
    },
}

/// The key in a directory that signs tokens of service accounts, or a new one there: so that tokens outlive the server.
pub(crate) fn token_key(folder: &Path) -> Result<tokens::Key, TokenKeyError> {
    let path = folder.join(TOKEN_KEY);
    let text = match files::read_if_there(&path)? {
        Some(text) => text,
        None => {
            make_directory(folder)?;
            let text = certificates::new_key()?;
            files::write(&path, &text, SECRET)?;
            text
        }
    };
    tokens::Key::from_pem(&text).map_err(|source| TokenKeyError::Key { path, source })
}

/// A key that is kept nowhere.
pub(crate) fn new_token_key() -> Result<tokens::Key, TokenKeyError> {
    let text = certificates::new_key()?;
    tokens::Key::from_pem(&text).map_err(|source| TokenKeyError::Key { path: PathBuf::from(TOKEN_KEY), source })
}

/// A directory that only its owner looks into, and that is there after a power cut.
fn make_directory(folder: &Path) -> Result<(), CertificateError> {
    directories::make_directory(folder).map_err(|source| CertificateError::File {
        what: "create the directory",
        path: folder.to_owned(),
        source,
    })
}
