//! Sockets in folders whose names are longer than a socket's may be.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// A folder that is held open, and through which its sockets are reached.
pub(crate) struct Folder(OwnedFd);

impl Folder {
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// A short path of a socket, as long as the folder is held.
    pub(crate) fn path(&self, socket: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{socket}", self.0.as_raw_fd()))
    }
}
