//! Waits for changes in a directory.

use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::net::unix::pipe::Receiver;

/// Room for some dozen events; more are read the next time.
const ROOM: usize = 4096;

/// Changes of the files in a directory.
pub(super) struct Changes {
    /// Reads like a pipe: whole events, which nobody looks into.
    events: Receiver,
}

impl Changes {
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let descriptor = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        inotify::add_watch(&descriptor, folder, WatchFlags::MODIFY | WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
        Ok(Self { events: Receiver::from_owned_fd_unchecked(descriptor)? })
    }

    /// Returns after the next change, or after several at once.
    pub(super) async fn next(&mut self) -> io::Result<()> {
        let mut room = [0; ROOM];
        loop {
            self.events.readable().await?;
            match self.events.try_read(&mut room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read.map(drop),
            }
        }
    }
}
