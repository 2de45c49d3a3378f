//! Why a volume is not there, and whether it will be.

use std::path::PathBuf;

use hypervisor::Refusal;
use storage::cache::CacheError;
use storage::disk::DiskError;
use storage::iso::IsoError;
use storage::mounted::MountedError;
use storage::pull::{ManifestError, PullError};
use storage::qcow2::Qcow2Error;

use crate::boot;
use crate::errors::chain;

/// Why a volume is not there.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The instance asks for something that cannot be had.
    #[error("{0}")]
    Refused(Refusal),
    /// An image could not be had.
    #[error("{path}")]
    Image {
        /// The field that names it.
        path: String,
        source: CacheError,
    },
    /// A mounted image has no such disk.
    #[error("{path}")]
    Mounted {
        /// The field that names it.
        path: String,
        source: MountedError,
    },
    /// A reference makes no sense.
    #[error("{path}")]
    Reference {
        /// The field.
        path: String,
        source: storage::image::ReferenceError,
    },
    /// A disk could not be made or opened.
    #[error("{path}")]
    Disk {
        /// The field that asks for it.
        path: String,
        source: DiskError,
    },
    /// An overlay could not be made.
    #[error("{path}")]
    Overlay {
        /// The field that asks for it.
        path: String,
        source: Qcow2Error,
    },
    /// A configuration disk could not be made.
    #[error("{path}")]
    Iso {
        /// The field that asks for it.
        path: String,
        source: IsoError,
    },
    /// What an earlier attempt has left could not be removed.
    #[error("{path}: remove {}", file.display())]
    Clear {
        /// The field that asks for a new one.
        path: String,
        file: PathBuf,
        source: std::io::Error,
    },
    /// A file could not be read.
    #[error("{path}: read {}", file.display())]
    Read {
        /// The field that names it.
        path: String,
        file: PathBuf,
        source: std::io::Error,
    },
}

impl VolumeError {
    pub(super) fn refused(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Refused(Refusal { path: path.into(), problem: problem.into() })
    }

    /// Why it cannot be had, for the caller of a launcher; none if it is to come again.
    pub(crate) fn refusal(&self) -> Option<launcher_api::Refusal> {
        match self {
            Self::Refused(refused) => Some(boot::refusal(refused)),
            error if error.is_retryable() => None,
            error => Some(launcher_api::Refusal { path: String::new(), problem: chain(error) }),
        }
    }

    /// Whether the volume can be had later for the same instance: it is brought, pushed, or copied to where it was looked for, or this
    /// machine has room again. What was found and cannot be used stays so.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Reference { .. } => false,
            Self::Image { source, .. } => match source {
                CacheError::Pull(error) => is_pulled_later(error),
                CacheError::Absent(_) | CacheError::Io { .. } | CacheError::Interrupted => true,
            },
            Self::Mounted { source, .. } => match source {
                MountedError::Open { .. } => true,
                MountedError::Inspect { source, .. } => is_made_later(source),
                MountedError::Several { .. } | MountedError::Kind(_) | MountedError::Refused { .. } => false,
            },
            Self::Disk { source, .. } => match source {
                DiskError::Io { .. } | DiskError::Missing(_) => true,
                DiskError::Kind { .. } | DiskError::Size(_) => false,
            },
            Self::Overlay { source, .. } => is_made_later(source),
            Self::Iso { source, .. } => match source {
                IsoError::Io { .. } => true,
                IsoError::Label(_) | IsoError::Name(_) | IsoError::Conflict(_) | IsoError::Size(_) => false,
            },
            Self::Clear { .. } | Self::Read { .. } => true,
        }
    }
}

/// Whether an image can be pulled later. Unlike a single pull, a guest also waits for people: for an image to be pushed, or for a layout
/// to be copied here.
fn is_pulled_later(error: &PullError) -> bool {
    match error {
        PullError::Registry { .. } | PullError::Layout { .. } | PullError::LayoutTag { .. } => true,
        PullError::Inspect { source, .. } => is_made_later(source),
        PullError::Digest { .. } | PullError::Length { .. } | PullError::Interrupted => true,
        PullError::Unpack { source, .. } => source.is_retryable(),
        // A registry that is being maintained, or what stands before it, answers with a page.
        PullError::Manifest { source: ManifestError::Json(_), .. } => true,
        PullError::Folder(_) | PullError::Manifest { .. } | PullError::Refused { .. } => false,
    }
}

/// Whether an image can be read or written later: not if its header is wrong.
fn is_made_later(error: &Qcow2Error) -> bool {
    match error {
        Qcow2Error::Io { .. } => true,
        Qcow2Error::BackingName(_)
        | Qcow2Error::VirtualSize(_)
        | Qcow2Error::Magic
        | Qcow2Error::Malformed(_)
        | Qcow2Error::Features(_) => false,
    }
}

#[cfg(test)]
mod tests;
