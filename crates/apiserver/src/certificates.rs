//! The server's own certificate authority: it signs the server's certificate and the admin's, and nobody else's.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::{Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

use crate::folders;
use crate::identity::MASTERS;

/// Why certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file of the authority.
    #[error("{what} {path}")]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A key or certificate.
    #[error("make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The key that signs tokens.
    #[error("{path}")]
    TokenKey {
        /// Where it is kept.
        path: PathBuf,
        /// What is wrong with it.
        source: tokens::KeyError,
    },
}

/// Where the key that signs tokens is kept in the authority's folder.
pub(crate) const TOKEN_KEY: &str = "sa.key";

/// The key in a folder that signs tokens of service accounts, or a new one there: so that tokens outlive the server.
pub(crate) fn token_key(folder: &Path) -> Result<tokens::Key, CertificateError> {
    let path = folder.join(TOKEN_KEY);
    let text = match read(&path)? {
        Some(text) => text,
        None => {
            make_folder(folder)?;
            let text = KeyPair::generate()?.serialize_pem();
            write_secret(&path, &text)?;
            text
        }
    };
    tokens::Key::from_pem(&text).map_err(|source| CertificateError::TokenKey { path, source })
}

/// A key that is kept nowhere.
pub(crate) fn new_token_key() -> Result<tokens::Key, CertificateError> {
    let text = KeyPair::generate()?.serialize_pem();
    tokens::Key::from_pem(&text).map_err(|source| CertificateError::TokenKey { path: PathBuf::from(TOKEN_KEY), source })
}

/// A certificate and its key, as PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The authority, kept in a folder so that the kubeconfigs it signed stay good.
pub(crate) struct Authority {
    pub(crate) certificate: String,
    issuer: Issuer<'static, KeyPair>,
    now: Timestamp,
}

const CA_YEARS: i16 = 10;
const LEAF_YEARS: i16 = 1;

impl Authority {
    /// Takes the authority in a folder, or makes one there.
    pub(crate) fn open(folder: &Path, now: Timestamp) -> Result<Self, CertificateError> {
        let (certificate_path, key_path) = (folder.join("ca.crt"), folder.join("ca.key"));
        if let (Some(certificate), Some(key)) = (read(&certificate_path)?, read(&key_path)?) {
            let issuer = Issuer::from_ca_cert_pem(&certificate, KeyPair::from_pem(&key)?)?;
            return Ok(Self { certificate, issuer, now });
        }
        make_folder(folder)?;
        let key = KeyPair::generate()?;
        let mut params = params("orlop-ca", now, CA_YEARS)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        // The key first: a certificate without its key would be taken for an authority.
        write_secret(&key_path, &key.serialize_pem())?;
        write_secret(&certificate_path, &certificate)?;
        Ok(Self { certificate, issuer: Issuer::new(params, key), now })
    }

    /// A certificate for a server that is reached at these addresses, and by this name besides the usual ones.
    pub(crate) fn server(&self, addresses: &[IpAddr], host: Option<&str>) -> Result<Pair, CertificateError> {
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let mut params = params("orlop-apiserver", self.now, LEAF_YEARS)?;
        for name in names.into_iter().chain(host) {
            params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
        }
        params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// A certificate for the administrator.
    pub(crate) fn admin(&self) -> Result<Pair, CertificateError> {
        self.client("kubernetes-admin", MASTERS)
    }

    /// A certificate for a user of a group.
    pub(crate) fn client(&self, user: &str, group: &str) -> Result<Pair, CertificateError> {
        let mut params = params(user, self.now, LEAF_YEARS)?;
        params.distinguished_name.push(DnType::OrganizationName, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Pair, CertificateError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }
}

fn params(name: &str, now: Timestamp, years: i16) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let today = now.to_zoned(TimeZone::UTC).date();
    let day = |date: jiff::civil::Date| {
        rcgen::date_time_ymd(date.year().into(), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    // Clocks of clients may be behind.
    params.not_before = day(today.yesterday().unwrap_or(today));
    let end = today.checked_add(jiff::Span::new().years(years)).unwrap_or(today);
    params.not_after = day(end);
    Ok(params)
}

/// A file's text; none if it is not there.
fn read(path: &Path) -> Result<Option<String>, CertificateError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CertificateError::File { what: "read", path: path.to_owned(), source }),
    }
}

/// A folder that only its owner looks into.
fn make_folder(folder: &Path) -> Result<(), CertificateError> {
    folders::make_folder(folder).map_err(|source| CertificateError::File {
        what: "make the folder",
        path: folder.to_owned(),
        source,
    })
}

/// Writes a file that only its owner reads, whole or not at all.
pub(crate) fn write_secret(path: &Path, text: &str) -> Result<(), CertificateError> {
    let failed = |source| CertificateError::File { what: "write", path: path.to_owned(), source };
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let write = || {
        let mut file = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        folders::sync_above(path)
    };
    write().map_err(failed)
}
