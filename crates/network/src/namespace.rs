//! Identifies the namespace behind a path or a descriptor.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::sysctl;

/// Tells namespaces apart while they live, also from those before the machine was started again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Namespace {
    boot: String,
    device: u64,
    inode: u64,
}

impl Namespace {
    pub(crate) fn of(netns: BorrowedFd<'_>) -> io::Result<Self> {
        Self::from(&rustix::fs::fstat(netns)?)
    }

    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Self::from(&rustix::fs::stat(path)?)
    }

    fn from(stat: &rustix::fs::Stat) -> io::Result<Self> {
        let boot = sysctl::get("kernel/random/boot_id")?;
        Ok(Self { boot, device: stat.st_dev, inode: stat.st_ino })
    }
}
