//! Volumes of a machine: the bytes behind claims, and snapshots of them.
//!
//! ```text
//!  create (empty, or from a volume or a snapshot) ──┐                     ┌──> path: what pods mount
//!  snapshot ────────────────────────────────────────┴──> intent ──> copy ─┤
//!  delete, grow <── whoever keeps the objects <── unfinished, settle ─────┘
//! ```
//!
//! [`Volumes`] is all that callers know, so that other kinds of storage can stand behind the same objects. The first kind is
//! [`files`]: a directory for each volume, in which a disk is a raw file.
//!
//! # Guarantees
//! - A volume or a snapshot is there with all its bytes or not at all, wherever the process or the machine was stopped.
//! - Each operation can be repeated: what is done already is left as it is.
//! - A copy is of one moment. Where the file system cannot copy at once, and the source is written to meanwhile, there is no copy.
//! - What was begun and not finished is known ([`Volumes::unfinished`]) until the caller has told of it elsewhere
//!   ([`Volumes::settle`]).
//!
//! Deliberately absent: Kubernetes, quotas, and qcow2 chains. A volume is raw for everybody.

mod copy;
pub mod files;
mod intent;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::disk::DiskError;

/// The longest name of a file, less what is put before and after it.
const LONGEST: usize = 230;

/// The name of a volume or a snapshot, which can be that of a file: no path, and not hidden.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String")]
pub struct Name(String);

impl TryFrom<String> for Name {
    type Error = VolumeError;

    fn try_from(name: String) -> Result<Self, VolumeError> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        let begins = name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if begins && name.len() <= LONGEST && name.bytes().all(fits) {
            Ok(Self(name))
        } else {
            Err(VolumeError::Name(name))
        }
    }
}

impl TryFrom<&str> for Name {
    type Error = VolumeError;

    fn try_from(name: &str) -> Result<Self, VolumeError> {
        Self::try_from(name.to_owned())
    }
}

impl Name {
    /// As it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What storage keeps.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Stored {
    /// A volume that pods can mount.
    Volume(Name),
    /// A volume's bytes of one moment, which nobody writes to.
    Snapshot(Name),
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(name) => write!(f, "volume {}", name.0),
            Self::Snapshot(name) => write!(f, "snapshot {}", name.0),
        }
    }
}

/// What a new volume has in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Filling<'a> {
    /// Nothing. Whoever uses it first makes what it needs.
    Nothing,
    /// A disk of the volume's size, of which no byte was written yet.
    Disk,
    /// What another has in it.
    Copy(&'a Stored),
}

/// How copies are made.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Copies {
    /// The file system shares the bytes: a copy takes no time and no room.
    Shared,
    /// Byte by byte, for this reason.
    Plain {
        /// What the file system said.
        why: String,
    },
}

/// How much there is room for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capacity {
    /// In bytes.
    pub total: u64,
    /// In bytes.
    pub free: u64,
}

/// Why there is no such volume.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The file system refused.
    #[error("{action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Such a name could be a path.
    #[error("{0:?} is not a valid name of a volume; use lower-case letters, digits, - and .")]
    Name(String),
    /// There is no such thing.
    #[error("the {0} does not exist")]
    Missing(Stored),
    /// It is being copied, and can go afterwards.
    #[error("the {0} is being copied")]
    Copied(Stored),
    /// A copy would not be of one moment.
    #[error(
        "{} was written to while it was copied; stop what uses it, or keep volumes on XFS or btrfs, which copy at once",
        .0.display()
    )]
    Changed(PathBuf),
    /// A plain copy would fill the disk.
    #[error("a copy needs {needed} bytes, and {free} are free")]
    Room {
        /// In bytes.
        needed: u64,
        /// In bytes.
        free: u64,
    },
    /// Something is where a volume's disk should be.
    #[error("{} is not a regular file", .0.display())]
    Kind(PathBuf),
    /// There is no disk of that size.
    #[error(transparent)]
    Disk(DiskError),
    /// Directories that nobody made in good faith.
    #[error("{} has too many directories inside each other", .0.display())]
    Depth(PathBuf),
}

/// A kind of storage. All of it may block.
pub trait Volumes: fmt::Debug + Send + Sync {
    /// Makes a volume of this many bytes. A disk that it has from another is grown to that size.
    ///
    /// # Errors
    /// When the origin does not exist, or cannot be copied.
    fn create(&self, name: &Name, filling: Filling<'_>, size: u64) -> Result<(), VolumeError>;

    /// Makes a snapshot, and says of which moment it is.
    ///
    /// # Errors
    /// When there is no such volume, or it cannot be copied.
    fn snapshot(&self, name: &Name, volume: &Name) -> Result<SystemTime, VolumeError>;

    /// Removes a volume or a snapshot; one that is not there needs nothing.
    ///
    /// # Errors
    /// When it cannot be removed, or is being copied.
    fn delete(&self, stored: &Stored) -> Result<(), VolumeError>;

    /// Grows the disk in a volume, if it has one. Disks do not shrink.
    ///
    /// # Errors
    /// When there is no such volume, or no file that could grow.
    fn grow(&self, name: &Name, size: u64) -> Result<(), VolumeError>;

    /// Notes that others know of it now.
    ///
    /// # Errors
    /// When that cannot be written down.
    fn settle(&self, stored: &Stored) -> Result<(), VolumeError>;

    /// What is there, and nobody may know of yet.
    ///
    /// # Errors
    /// When it cannot be read.
    fn unfinished(&self) -> Result<Vec<Stored>, VolumeError>;

    /// When it was made, if it is there.
    ///
    /// # Errors
    /// When that cannot be told.
    fn found(&self, stored: &Stored) -> Result<Option<SystemTime>, VolumeError>;

    /// What pods mount.
    fn path(&self, name: &Name) -> PathBuf;

    /// How many bytes it takes.
    ///
    /// # Errors
    /// When it is not there, or cannot be measured.
    fn usage(&self, stored: &Stored) -> Result<u64, VolumeError>;

    /// How many bytes there are.
    ///
    /// # Errors
    /// When the file system does not say.
    fn capacity(&self) -> Result<Capacity, VolumeError>;

    /// How copies are made.
    fn copies(&self) -> &Copies;
}
