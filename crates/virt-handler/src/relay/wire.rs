//! What is said on a connection between two handlers, each word with its length before it.

use std::io;

use launcher_api::rpc;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest word: a guest with all the disks that it can have takes a tenth of it.
const LONGEST: u32 = 64 << 10;

/// What a connection is for.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Frame {
    /// The UID of the migration.
    pub(crate) migration: String,
    /// The UID of the target's pod.
    pub(crate) pod: String,
    /// The digest of the guest's model, as the source has it.
    pub(crate) digest: String,
    pub(crate) channel: Channel,
}

/// What a connection carries.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Channel {
    Memory,
    Disk(String),
    /// Questions and replies.
    Words,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Answer {
    Welcome,
    Refused { why: String },
}

/// What the source asks of the target.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Question {
    /// Which disks have to be copied.
    Disks,
    /// Go on with the guest: the source has given it.
    Take { paused: Paused },
    /// The connection broke. Say whether the whole guest is there; if not, refuse it for good.
    Settle,
}

/// What the target replies.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Reply {
    Disks(Vec<Disk>),
    /// The guest goes on there.
    Taken,
    /// All of it is there, and waits to be given.
    Loaded,
    /// It was refused for good.
    Renounced,
    /// Not now, for this reason.
    Refused {
        why: String,
    },
}

/// A disk that only a pod has, as [`rpc::LocalDisk`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Disk {
    pub(crate) device: String,
    pub(crate) size: u64,
    pub(crate) digest: String,
    pub(crate) is_copied: bool,
}

/// Why a guest does not run when it arrives, as [`rpc::Paused`].
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Paused {
    Not,
    ByUser,
    ByIoError,
    ByQemu,
}

impl From<rpc::LocalDisk> for Disk {
    fn from(disk: rpc::LocalDisk) -> Self {
        let rpc::LocalDisk { device, size, digest, is_copied } = disk;
        Self { device, size, digest, is_copied }
    }
}

impl From<Disk> for rpc::LocalDisk {
    fn from(disk: Disk) -> Self {
        let Disk { device, size, digest, is_copied } = disk;
        Self { device, size, digest, is_copied }
    }
}

impl From<rpc::Paused> for Paused {
    fn from(paused: rpc::Paused) -> Self {
        match paused {
            rpc::Paused::Not => Self::Not,
            rpc::Paused::ByUser => Self::ByUser,
            rpc::Paused::ByIoError => Self::ByIoError,
            rpc::Paused::ByQemu => Self::ByQemu,
        }
    }
}

impl From<Paused> for rpc::Paused {
    fn from(paused: Paused) -> Self {
        match paused {
            Paused::Not => Self::Not,
            Paused::ByUser => Self::ByUser,
            Paused::ByIoError => Self::ByIoError,
            Paused::ByQemu => Self::ByQemu,
        }
    }
}

pub(super) async fn read<T: for<'a> Deserialize<'a>>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let length = from.read_u32().await?;
    if length > LONGEST {
        return Err(io::Error::other("the message is too long"));
    }
    let mut text = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    from.read_exact(&mut text).await?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

pub(super) async fn write<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), value: &T) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    to.write_u32(u32::try_from(text.len()).map_err(io::Error::other)?).await?;
    to.write_all(&text).await?;
    to.flush().await
}
