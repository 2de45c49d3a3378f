//! What can go wrong with certificates.

use std::io;
use std::path::{Path, PathBuf};

/// Why a certificate cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("{what} {path}")]
    File { what: &'static str, path: PathBuf, source: io::Error },
    /// A file that tells how far a change of authorities has come.
    #[error("read {path}")]
    State {
        /// The file.
        path: PathBuf,
        source: serde_json::Error,
    },
    /// The text of a file.
    #[error("read {path} as PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        source: rustls::pki_types::pem::Error,
    },
    /// A text that was to be a certificate or a key.
    #[error("read a certificate or a key as PEM")]
    Text(#[source] rustls::pki_types::pem::Error),
    /// A text without a certificate.
    #[error("{place} has no certificate")]
    None {
        /// Where it was looked for.
        place: String,
    },
    /// A certificate that was not made here has no key.
    #[error("{certificate} exists, but {key} does not")]
    NoKey {
        certificate: PathBuf,
        /// Where its key should be.
        key: PathBuf,
    },
    /// A certificate that tells nothing of its time.
    #[error("read when a certificate expires")]
    Validity,
    /// A key or certificate that was made.
    #[error("create a certificate")]
    Make(#[from] rcgen::Error),
    /// The certificate and its key, most often because they do not belong together.
    #[error("use the certificate and its key")]
    Tls(#[from] rustls::Error),
    /// The authorities of clients.
    #[error("use the certificate authorities of clients")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

impl CertificateError {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File { what, path: path.to_owned(), source }
    }
}
