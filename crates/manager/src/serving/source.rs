//! The server's certificate: from files that may change while it runs, or made where there is none.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use certificates::files::{self, PUBLIC, SECRET};
use certificates::tls::{self, Clients};
use certificates::{CertificateError, Leaf, Request, new_key, self_signed};
use jiff::{SignedDuration, Timestamp};
use rustls::{RootCertStore, ServerConfig};
use tokio::time::Instant;

/// Files are looked at again by the first handshake after this long. Nobody sees a certificate without a handshake.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
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
        /// Its key.
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
pub(super) struct Certificates {
    pair: Pair,
    client_ca: Option<PathBuf>,
    looked: Mutex<Looked>,
}

struct Looked {
    at: Instant,
    /// How the files were when they were last tried.
    stamps: Vec<Stamp>,
    /// Whether they could be used then; if not, they are tried again even if they look the same.
    good: bool,
    config: Arc<ServerConfig>,
}

/// What tells one content of a file from the next. None if there is no file.
type Stamp = Option<[i128; 6]>;

impl Certificates {
    pub(super) fn load(pair: Pair, client_ca: Option<PathBuf>) -> Result<Self, CertificateError> {
        // The stamps first: what changes between the two is read again at the next look.
        let stamps = stamps(&pair, client_ca.as_deref());
        let config = Arc::new(config(&pair, client_ca.as_deref())?);
        Ok(Self { pair, client_ca, looked: Mutex::new(Looked { at: Instant::now(), stamps, good: true, config }) })
    }

    /// For the next handshake. If the files changed and cannot be used (half of them is written, or one is gone), what
    /// was good before stays.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if now.duration_since(looked.at) < LOOK_AGAIN {
            return looked.config.clone();
        }
        looked.at = now;
        let stamps = stamps(&self.pair, self.client_ca.as_deref());
        let changed = stamps != looked.stamps;
        if changed || !looked.good {
            looked.stamps = stamps;
            match config(&self.pair, self.client_ca.as_deref()) {
                Ok(config) => {
                    tracing::info!("loaded a new certificate or new certificate authorities of clients");
                    looked.good = true;
                    looked.config = Arc::new(config);
                }
                Err(error) => {
                    looked.good = false;
                    // Once for each change, not once for each look.
                    if changed {
                        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                        tracing::warn!(%error, source, "cannot load the changed certificate; still serving the previous one");
                    }
                }
            }
        }
        looked.config.clone()
    }
}

fn stamps(pair: &Pair, client_ca: Option<&Path>) -> Vec<Stamp> {
    let stamp = |path: &Path| {
        let data = fs::metadata(path).ok()?;
        let times = [data.mtime(), data.mtime_nsec(), data.ctime_nsec()].map(i128::from);
        Some([data.dev().into(), data.ino().into(), data.size().into(), times[0], times[1], times[2]])
    };
    let files = match pair {
        Pair::Files(Files { certificate, key }) => vec![certificate.as_path(), key.as_path()],
        Pair::Made(_) => Vec::new(),
    };
    files.into_iter().chain(client_ca).map(stamp).collect()
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
