//! The grant: which launcher may write to a guest's disks.
//!
//! ```text
//!   a launcher that boots its guest          a launcher that awaits one
//!          Holder ──give──> Given              Awaiting ──take──> Holder
//!             ^               │                    │
//!             └───returned────┘                renounce
//!                                                  v
//!                                              Renounced
//! ```
//! Image locks are no arbiter: mirrored disks do not share them, and QEMU takes them late. Between two launchers it is this value. It
//! is on disk before anybody is told of it, so that a person who finds a launcher dead knows what it had promised. No program decides by
//! that yet: a launcher that is dead has no guest any more, and who has all of it goes on by what it has itself.
//!
//! # Guarantees
//! - Of two launchers, at most one holds: a holder gives only to one, takes back only what that one has renounced, and who has renounced
//!   never takes.
//! - There is always one that holds or can: what is given can be taken, and what nobody took can be returned.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::whole_file;

/// Where it is kept, in the guest's own directory.
pub const FILE: &str = "grant.json";

/// Whether a launcher may let its guest write.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "grant")]
pub enum Grant {
    /// It may.
    Holder,
    /// It may not any more: it has promised to another.
    Given {
        /// The launcher that may take it.
        to: String,
    },
    /// It may not yet.
    Awaiting {
        /// The launcher that may give it.
        from: String,
    },
    /// It never will, whatever it is told later.
    Renounced,
}

/// Why a grant stays what it is.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GrantError {
    /// Only who holds can give.
    #[error("this launcher does not hold the guest's grant")]
    NotHolder,
    /// It has promised to somebody else.
    #[error("the guest was given to {0}")]
    GivenTo(String),
    /// Only who awaits can take or renounce.
    #[error("this launcher is not waiting for the guest")]
    NotAwaiting,
    /// It waits for somebody else.
    #[error("the guest is awaited from {0}")]
    AwaitedFrom(String),
}

impl Grant {
    /// Whether the guest may write now.
    #[must_use]
    pub fn may_write(&self) -> bool {
        *self == Self::Holder
    }

    /// Whether the guest is this launcher's to give.
    ///
    /// # Errors
    /// When it is not.
    pub fn may_be_given(&self) -> Result<(), GrantError> {
        match self {
            Self::Holder => Ok(()),
            Self::Given { to } => Err(GrantError::GivenTo(to.clone())),
            Self::Awaiting { .. } | Self::Renounced => Err(GrantError::NotHolder),
        }
    }

    /// Promises the guest to another launcher. Told again, it is the same promise.
    ///
    /// # Errors
    /// When it is not this launcher's to give.
    pub fn give(&self, to: &str) -> Result<Self, GrantError> {
        match self {
            Self::Holder => Ok(Self::Given { to: to.to_owned() }),
            Self::Given { to: promised } if promised == to => Ok(self.clone()),
            Self::Given { to: promised } => Err(GrantError::GivenTo(promised.clone())),
            Self::Awaiting { .. } | Self::Renounced => Err(GrantError::NotHolder),
        }
    }

    /// Takes a guest that another launcher has given. Told again, it holds already.
    ///
    /// # Errors
    /// When nothing was promised by that launcher, or it was renounced.
    pub fn take(&self, from: &str) -> Result<Self, GrantError> {
        match self {
            Self::Awaiting { from: awaited } if awaited == from => Ok(Self::Holder),
            Self::Awaiting { from: awaited } => Err(GrantError::AwaitedFrom(awaited.clone())),
            Self::Holder => Ok(Self::Holder),
            Self::Given { .. } | Self::Renounced => Err(GrantError::NotAwaiting),
        }
    }

    /// Gives up for good what was awaited.
    ///
    /// # Errors
    /// When the guest was taken already: then it is here, and nobody else may have it.
    pub fn renounce(&self) -> Result<Self, GrantError> {
        match self {
            Self::Awaiting { .. } | Self::Renounced => Ok(Self::Renounced),
            Self::Holder | Self::Given { .. } => Err(GrantError::NotAwaiting),
        }
    }

    /// Holds again what another launcher has renounced, or has never been promised.
    ///
    /// # Errors
    /// When it was promised to somebody else.
    pub fn returned(&self, by: &str) -> Result<Self, GrantError> {
        match self {
            Self::Given { to } if to == by => Ok(Self::Holder),
            Self::Given { to } => Err(GrantError::GivenTo(to.clone())),
            Self::Holder => Ok(Self::Holder),
            Self::Awaiting { .. } | Self::Renounced => Err(GrantError::NotHolder),
        }
    }

    /// Writes it such that it is there after a crash: whole, or as it was before.
    ///
    /// # Errors
    /// When the disk does not take it; then nobody may be told of it.
    pub fn store(&self, folder: &Path) -> Result<(), StoreError> {
        let path = folder.join(FILE);
        let write = || whole_file::replace(folder, FILE, &serde_json::to_vec(self)?);
        write().map_err(|source| StoreError { path: path.clone(), source })
    }

    /// What a launcher had promised; none if it never came so far.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn stored(folder: &Path) -> Result<Option<Self>, StoreError> {
        let path = folder.join(FILE);
        match std::fs::read(&path) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(grant) => Ok(Some(grant)),
                Err(error) => Err(StoreError { path, source: error.into() }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError { path, source }),
        }
    }
}

/// A grant that could not be kept or read.
#[derive(Debug, thiserror::Error)]
#[error("keep {}", path.display())]
pub struct StoreError {
    path: PathBuf,
    source: io::Error,
}

#[cfg(test)]
mod tests;
