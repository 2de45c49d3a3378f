//! Terminals: the runtime makes one in the container and hands its other end over.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::runtime::process::awaitable;

/// Where the runtime hands a terminal over.
pub(super) struct Console {
    listener: UnixListener,
    _folder: File,
    path: PathBuf,
}

impl Console {
    /// The runtime is another process, so that its path leads through this one's files; so it is short enough, too.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let held = File::open(folder)?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}/console", std::process::id(), held.as_raw_fd()));
        Ok(Self { listener: UnixListener::bind(&path)?, _folder: held, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The terminal, once the runtime has started the container: it has been sent by then.
    pub(super) fn receive(self) -> io::Result<Terminal> {
        self.listener.set_nonblocking(true)?;
        let (stream, _) = self.listener.accept()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut name = [0; 4096];
        recvmsg(
            &stream,
            &mut [IoSliceMut::new(&mut name)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
        )?;
        let files = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let terminal = files.flatten().next().ok_or(io::ErrorKind::UnexpectedEof)?;
        rustix::io::ioctl_fionbio(&terminal, true)?;
        Ok(Terminal(awaitable(terminal)?))
    }
}

/// The end of a terminal that a container's output comes out of.
pub(super) struct Terminal(AsyncFd<OwnedFd>);

impl Terminal {
    /// What is written; nothing when all who had it open have ended.
    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.async_io(Interest::READABLE, |terminal| Ok(rustix::io::read(terminal, &mut *buffer)?)).await;
        match read {
            // Thus says a terminal that its other end is closed.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => Ok(0),
            read => read,
        }
    }
}
