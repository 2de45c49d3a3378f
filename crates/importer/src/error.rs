//! Errors of an import.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use reqwest::StatusCode;
use storage::pull::PullError;
use storage::qcow2::Qcow2Error;

use crate::Checksum;

/// Why a disk was not imported. No variant shows a password.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The address cannot be asked.
    #[error("{url:?} is not a valid address; use http:// or https://")]
    Url { url: String },
    /// A header cannot be sent.
    #[error("{name:?} is not a valid header; use NAME: VALUE")]
    Header { name: String },
    /// Certificates cannot be used.
    #[error("expected one or more certificates in PEM")]
    Certificate,
    /// The TLS library could not be set up.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
    /// An import may not go there.
    #[error("{host} is at {address}, which belongs to the machine or to its cloud; imports do not go there")]
    Forbidden { host: String, address: IpAddr },
    /// The server sends elsewhere once too often, or where nobody may go.
    #[error("the server redirects {problem}")]
    Redirect { problem: String },
    /// The connection failed, or broke.
    #[error("talk to {host}")]
    Http { host: String, source: reqwest::Error },
    /// The server refused.
    #[error("{host} answered with status {status}")]
    Status { host: String, status: StatusCode },
    /// The server's answer makes no sense.
    #[error("{host} answered with {problem}")]
    Answer { host: String, problem: &'static str },
    /// The server sends so little that the import would never be complete.
    #[error("{host} sent less than a kilobyte per second")]
    Slow { host: String },
    /// The connection broke too often, and the server cannot go on where it was.
    #[error("the connection to {host} broke after {received} bytes, and the server cannot resume")]
    Broken { host: String, received: u64 },
    /// More comes than there is room for.
    #[error("{what} has more than {limit} bytes, which is all that the claim has room for; use a larger claim")]
    TooLarge { what: &'static str, limit: u64 },
    /// The content is not what was asked for.
    #[error("the file has the checksum {found} instead of {expected}")]
    Checksum { expected: Checksum, found: Checksum },
    /// The content is nothing that can be imported.
    #[error("the file is a {0} image, which is not supported; convert it to qcow2 or raw")]
    Format(&'static str),
    /// There is no content.
    #[error("the file is empty")]
    Empty,
    /// The archive is broken.
    #[error("decompress the file")]
    Archive(#[source] io::Error),
    /// The header of a qcow2 image could not be read.
    #[error("inspect the qcow2 image")]
    Inspect(#[source] Qcow2Error),
    /// A qcow2 image must not be opened.
    #[error("cannot use the qcow2 image: {0}")]
    Refused(String),
    /// The conversion failed.
    #[error("convert the image: {0}")]
    Convert(String),
    /// The conversion takes too long.
    #[error("the conversion of the image took longer than {0} seconds")]
    ConvertTime(u64),
    /// A file of our own could not be written.
    #[error("{action} {}", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    /// Somebody else has made the disk.
    #[error("{} was made by somebody else during the import; delete the claim, and import into a new one", path.display())]
    Taken { path: PathBuf },
    /// The image could not be pulled.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// A thread ended early.
    #[error("the import was interrupted")]
    Interrupted,
}

impl ImportError {
    /// Whether no further attempt can succeed, unless somebody changes something.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Status { status, .. } => {
                status.is_client_error()
                    && !matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
            }
            Self::Pull(source) => !source.is_retryable(),
            Self::Http { .. }
            | Self::Slow { .. }
            | Self::Broken { .. }
            | Self::File { .. }
            | Self::Interrupted
            | Self::Tls(_) => false,
            Self::Url { .. }
            | Self::Header { .. }
            | Self::Certificate
            | Self::Forbidden { .. }
            | Self::Redirect { .. }
            | Self::Taken { .. }
            | Self::Answer { .. }
            | Self::TooLarge { .. }
            | Self::Checksum { .. }
            | Self::Format(_)
            | Self::Empty
            | Self::Archive(_)
            | Self::Inspect(_)
            | Self::Refused(_)
            | Self::Convert(_)
            | Self::ConvertTime(_) => true,
        }
    }

    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
