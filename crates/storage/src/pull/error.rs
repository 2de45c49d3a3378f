//! Why there is no image.

use std::io;
use std::path::PathBuf;

use super::{Digest, ManifestError, RegistryError, UnpackError};
use crate::qcow2;

/// Why an image could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The registry did not give what was asked for.
    #[error("pull {image}")]
    Registry {
        /// Which image.
        image: String,
        /// What went wrong.
        source: RegistryError,
    },
    /// A file of an OCI layout could not be read.
    #[error("read {}", path.display())]
    Layout {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder is none that images may come from.
    #[error("{0} is in no folder that images may come from: `orlop up --image-folder FOLDER` allows one")]
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
        /// Which image.
        image: String,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// The bytes that came are not those that the digest names.
    #[error("content with the digest {found} arrived instead of {expected}")]
    Digest {
        /// What was asked for.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// More or fewer bytes came than announced.
    #[error("{expected} bytes were announced for {digest}, {found} arrived")]
    Length {
        /// Which blob.
        digest: Digest,
        /// What its descriptor says.
        expected: u64,
        /// What came, when that was noticed.
        found: u64,
    },
    /// A layer holds something it must not, or lacks something it should have.
    #[error("unpack {image}")]
    Unpack {
        /// Which image.
        image: String,
        /// What is wrong with it.
        source: UnpackError,
    },
    /// The disk is a qcow2 image that must not be opened.
    #[error("refuse the disk in {image}: {reason}")]
    Refused {
        /// Which image.
        image: String,
        /// What is wrong with the disk.
        reason: String,
    },
    /// The disk's header could not be read.
    #[error("inspect the disk in {image}")]
    Inspect {
        /// Which image.
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
