//! The server's certificate: from files that may change while it runs, or made where there is none.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::time::Instant;

/// Files are looked at again by the first handshake after this long. Nobody sees a certificate without a handshake.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Longer than any chain or list of authorities.
const LONGEST_FILE: u64 = 1024 * 1024;
/// Of a self-signed certificate: nobody renews it, and nobody checks more of it than that it is the one they know.
const YEARS: i16 = 10;

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

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file.
    #[error("{what} {path}")]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The text of a file.
    #[error("read {path} as PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: rustls::pki_types::pem::Error,
    },
    /// A file without a certificate.
    #[error("{path} has no certificate")]
    None {
        /// The file.
        path: PathBuf,
    },
    /// A certificate that was not made here has no key.
    #[error("{certificate} is there and {key} is not")]
    NoKey {
        /// The certificate.
        certificate: PathBuf,
        /// Where its key should be.
        key: PathBuf,
    },
    /// A key or certificate that was made.
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
    /// The certificate and its key, most often because they do not belong together.
    #[error("use the certificate and its key")]
    Tls(#[from] rustls::Error),
    /// The authorities of clients.
    #[error("use the authorities of clients")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// A certificate and its key.
pub(super) enum Pair {
    /// In files, which may change.
    Files(Files),
    /// Made; it stays as it is.
    Made { certificate: CertificateDer<'static>, key: PrivateKeyDer<'static> },
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
            Self::Memory => {
                let key = KeyPair::generate()?;
                let certificate = self_signed(name, address, now)?.self_signed(&key)?.der().clone();
                return Ok(Pair::Made { certificate, key: PrivateKeyDer::Pkcs8(key.serialize_der().into()) });
            }
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
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(file("make the folder", &folder))?;
        // A key that is there stays: someone may count on it, or the last start got no further.
        let key = if files.key.exists() {
            KeyPair::from_pem(&String::from_utf8_lossy(&read(&files.key)?))?
        } else {
            let key = KeyPair::generate()?;
            write(&files.key, &key.serialize_pem(), 0o600)?;
            key
        };
        write(&files.certificate, &self_signed(name, address, now)?.self_signed(&key)?.pem(), 0o644)?;
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
                    tracing::info!("a new certificate, or new authorities of clients, are in use");
                    looked.good = true;
                    looked.config = Arc::new(config);
                }
                Err(error) => {
                    looked.good = false;
                    // Once for each change, not once for each look.
                    if changed {
                        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                        tracing::warn!(%error, source, "a changed certificate is not served; the one before it is");
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
        Pair::Made { .. } => Vec::new(),
    };
    files.into_iter().chain(client_ca).map(stamp).collect()
}

fn config(pair: &Pair, client_ca: Option<&Path>) -> Result<ServerConfig, CertificateError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (chain, key) = match pair {
        Pair::Made { certificate, key } => (vec![certificate.clone()], key.clone_key()),
        Pair::Files(Files { certificate, key }) => {
            let path = key.clone();
            let key = PrivateKeyDer::from_pem_slice(&read(key)?);
            (chain(certificate)?, key.map_err(|source| CertificateError::Pem { path, source })?)
        }
    };
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for root in self::chain(path)? {
                roots.add(root)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            // Who has no certificate may have a token, or be content with health.
            builder.with_client_cert_verifier(verifier.allow_unauthenticated().build()?)
        }
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&read(path)?)
        .collect::<Result<_, _>>()
        .map_err(|source| CertificateError::Pem { path: path.to_owned(), source })?;
    if chain.is_empty() { Err(CertificateError::None { path: path.to_owned() }) } else { Ok(chain) }
}

fn self_signed(name: &str, address: IpAddr, now: Timestamp) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned(), name.to_owned()])?;
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    if !address.is_unspecified() && !addresses.contains(&address) {
        addresses.push(address);
    }
    params.subject_alt_names.extend(addresses.into_iter().map(SanType::IpAddress));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let today = now.to_zoned(TimeZone::UTC).date();
    let day = |date: jiff::civil::Date| {
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    // Clocks of clients may be behind.
    params.not_before = day(today.yesterday().unwrap_or(today));
    params.not_after = day(today.checked_add(jiff::Span::new().years(YEARS)).unwrap_or(today));
    Ok(params)
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let mut content = Vec::new();
    fs::File::open(path)
        .and_then(|opened| opened.take(LONGEST_FILE).read_to_end(&mut content))
        .map_err(file("read", path))?;
    Ok(content)
}

/// Writes a file whole or not at all.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let written = || {
        // What a crash left may have another mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut opened = fs::OpenOptions::new().create_new(true).write(true).mode(mode).open(&new)?;
        opened.write_all(text.as_bytes())?;
        opened.sync_all()?;
        fs::rename(&new, path)
    };
    written().map_err(file("write", path))
}

fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CertificateError {
    move |source| CertificateError::File { what, path: path.to_owned(), source }
}
