//! Identifies the namespace behind a path or a descriptor, and works in one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

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

/// Does something in a network namespace, on a thread of its own that ends there.
pub(crate) async fn inside<T: Send + 'static>(
    netns: &Path,
    work: impl AsyncFnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let netns = File::open(netns)?;
    let (answer, done) = oneshot::channel();
    std::thread::Builder::new().name("namespace".to_owned()).spawn(move || {
        let worked = move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(io::Error::from)
            .and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build())
            .map(|runtime| runtime.block_on(work()));
        // Whoever asked may have gone.
        let _ = answer.send(worked);
    })?;
    done.await.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?
}
