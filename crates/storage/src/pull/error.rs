//! Errors of a pull.

use std::io;
use std::path::PathBuf;

use super::{Digest, ManifestError, RegistryError, UnpackError};
use crate::qcow2;

/// Why an image could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry did not give what was asked for.
    #[error("pull {image}")]
    Registry { image: String, source: RegistryError },
    /// A file of an OCI layout could not be read.
    #[error("read {}", path.display())]
    Layout { path: PathBuf, source: io::Error },
    /// The directory is none that images may come from.
    #[error("{0} is not in a directory that images may come from; allow one with `orlop up --image-dir DIR`")]
    Folder(String),
    /// An OCI layout has no such image, or several.
    #[error("{folder} has {found} images for {image}; expected one", folder = folder.display())]
    LayoutTag {
        /// The layout.
        folder: PathBuf,
        /// What was asked for.
        image: String,
        /// How many there are.
        found: usize,
    },
    /// The manifest cannot be used.
    #[error("manifest of {image}")]
    Manifest {
        image: String,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// The bytes that came are not those that the digest names.
    #[error("received content with the digest {found} instead of {expected}")]
    Digest {
        /// What was asked for.
        expected: Digest,
        found: Digest,
    },
    /// More or fewer bytes came than announced.
    #[error("received {found} bytes instead of {expected} for {digest}")]
    Length {
        digest: Digest,
        /// What its descriptor says.
        expected: u64,
        /// What came, when that was noticed.
        found: u64,
    },
    /// A layer holds something it must not, or lacks something it should have.
    #[error("unpack {image}")]
    Unpack {
        image: String,
        /// What is wrong with it.
        source: UnpackError,
    },
    /// The disk is a qcow2 image that must not be opened.
    #[error("cannot use the disk in {image}: {reason}")]
    Refused {
        image: String,
        /// What is wrong with the disk.
        reason: String,
    },
    /// The disk's header could not be read.
    #[error("inspect the disk in {image}")]
    Inspect {
        image: String,
        /// What is wrong with it.
        source: qcow2::Qcow2Error,
    },
    /// A thread ended early.
    #[error("the pull was interrupted")]
    Interrupted,
}

impl PullError {
    /// Whether the same pull can succeed later without anyone changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Registry { source, .. } => source.is_retryable(),
            // A cut or garbled transfer; a hostile one fails again and is told apart by its persistence.
            Self::Length { .. } | Self::Digest { .. } | Self::Interrupted => true,
            Self::Unpack { source, .. } => source.is_retryable(),
            Self::Folder(_)
            | Self::Layout { .. }
            | Self::LayoutTag { .. }
            | Self::Manifest { .. }
            | Self::Refused { .. }
            | Self::Inspect { .. } => false,
        }
    }
}
