//! The server's certificate: from files that may change while it runs, or made where there is none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use certificates::files::{self, PUBLIC, SECRET};
use certificates::tls::{self, Clients};
use certificates::{CertificateError, Following, Leaf, Request, new_key, self_signed};
use jiff::{SignedDuration, Timestamp};
use rustls::{RootCertStore, ServerConfig};

/// Of a self-signed certificate: nobody renews it, and nobody checks more of it than that it is the one they know.
const LIFE: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// What is spoken.
const PROTOCOLS: [&str; 2] = ["h2", "http/1.1"];

/// Where the server's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// These files, as PEM. When they change, new connections get what is in them.
    Files {
        /// The certificate and those between it and its authority.
        certificate: PathBuf,
        key: PathBuf,
    },
    /// `NAME.crt` and `NAME.key` in this folder, by the manager's name. If they are missing they are made: signed by
    /// themselves, the key readable by its owner only.
    Folder(PathBuf),
    /// Made for this run, signed by itself, and kept in memory: nothing is left of it, however the process ends.
    Memory,
}

/// A certificate and its key.
pub(super) enum Pair {
    /// In files, which may change.
    Files(Files),
    /// Made; it stays as it is.
    Made(Leaf),
}

/// The two files of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl CertificateSource {
    /// The pair, made if there is none where it may be made.
    pub(super) fn pair(self, name: &str, address: IpAddr, now: Timestamp) -> Result<Pair, CertificateError> {
        let folder = match self {
            Self::Files { certificate, key } => return Ok(Pair::Files(Files { certificate, key })),
            Self::Memory => return self_signed(&request(name, address), None, now, LIFE).map(Pair::Made),
            Self::Folder(folder) => folder,
        };
        let files = Files { certificate: folder.join(format!("{name}.crt")), key: folder.join(format!("{name}.key")) };
        match (files.certificate.exists(), files.key.exists()) {
            (true, true) => return Ok(Pair::Files(files)),
            (true, false) => {
                return Err(CertificateError::NoKey { certificate: files.certificate, key: files.key });
            }
            (false, _) => {}
        }
        files::make_folder(&folder)?;
        // A key that is there stays: someone may count on it, or the last start got no further.
        let key = match files::read_if_there(&files.key)? {
            Some(key) => key,
            None => {
                let key = new_key()?;
                files::write(&files.key, &key, SECRET)?;
                key
            }
        };
        let leaf = self_signed(&request(name, address), Some(&key), now, LIFE)?;
        files::write(&files.certificate, &leaf.certificate, PUBLIC)?;
        Ok(Pair::Files(files))
    }
}

/// What is needed for a handshake, as fresh as the files.
pub(super) struct Certificates(Following<ServerConfig>);

impl Certificates {
    pub(super) fn load(pair: Pair, client_ca: Option<PathBuf>) -> Result<Self, CertificateError> {
        let own = match &pair {
            Pair::Files(Files { certificate, key }) => vec![certificate.clone(), key.clone()],
            Pair::Made(_) => Vec::new(),
        };
        let all = own.into_iter().chain(client_ca.clone()).collect();
        Following::new(all, move || config(&pair, client_ca.as_deref())).map(Self)
    }

    /// For the next handshake.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.0.current()
    }
}

fn config(pair: &Pair, client_ca: Option<&Path>) -> Result<ServerConfig, CertificateError> {
    let (chain, key) = match pair {
        Pair::Made(leaf) => (tls::chain(&leaf.certificate)?, tls::key(&leaf.key)?),
        Pair::Files(Files { certificate, key }) => (files::chain(certificate)?, files::key(key)?),
    };
    let clients = match client_ca {
        None => Clients::Any,
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in files::chain(path)? {
                roots.add(root)?;
            }
            // Who has no certificate may have a token, or be content with health.
            Clients::Known(roots)
        }
    };
    tls::server(chain, key, clients, &PROTOCOLS)
}

/// The certificate of a manager of this name that listens at this address.
fn request(name: &str, address: IpAddr) -> Request {
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    if !address.is_unspecified() && !addresses.contains(&address) {
        addresses.push(address);
    }
    Request::server(name, &["localhost", name], &addresses)
}
