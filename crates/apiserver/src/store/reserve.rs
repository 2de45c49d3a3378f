//! Space on the disk that is given up when there is no other, so that deletes still find some.
//!
//! A delete takes space before it gives any: it is written to SQLite's log, which has some four MiB before it starts over.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

/// Twice what the log has.
const BYTES: u64 = 8 << 20;

/// The reserved space: a file beside the store.
pub(super) struct Reserve {
    path: PathBuf,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    /// It was given up, and nothing may grow until it is back.
    Spent,
    /// The file system reserves nothing, or not for us: all is as if there were no reserve.
    Impossible,
}

impl Reserve {
    /// Takes the space in a directory, if there is any.
    pub(super) fn take(folder: &Path) -> Self {
        let path = folder.join("reserve");
        let state = State::after(make(&path));
        Self { path, state }
    }

    /// Takes the space again, if it was given up; tells whether the store may grow. What was given up is no reason to take
    /// it again: there must be as much beside it.
    pub(super) fn renew(&mut self) -> bool {
        if self.state == State::Spent && free(&self.path) >= 2 * BYTES {
            self.state = State::after(make(&self.path));
        }
        self.state != State::Spent
    }

    /// Gives up the space; tells whether there was any.
    pub(super) fn give_up(&mut self) -> bool {
        if self.state != State::Held {
            return false;
        }
        self.state = State::Spent;
        match fs::remove_file(&self.path) {
            Ok(()) => tracing::warn!("the disk is full; the store only accepts deletes"),
            Err(error) => tracing::warn!(%error, "the disk is full, and the reserve cannot be released"),
        }
        true
    }
}

impl State {
    fn after(made: Result<(), Errno>) -> Self {
        match made {
            Ok(()) => Self::Held,
            Err(Errno::NOSPC | Errno::DQUOT) => Self::Spent,
            Err(error) => {
                tracing::warn!(%error, "cannot reserve disk space; deletes may fail when the disk is full");
                Self::Impossible
            }
        }
    }
}

/// Bytes that are free in the directory of a file; 0, if nobody knows.
fn free(path: &Path) -> u64 {
    let found = statvfs(path.parent().unwrap_or(path));
    found.map_or(0, |found| found.f_bavail.saturating_mul(found.f_frsize))
}

fn make(path: &Path) -> Result<(), Errno> {
    let number = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let mut options = fs::OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).mode(0o600).open(path).map_err(number)?;
    let made = fallocate(&file, FallocateFlags::empty(), 0, BYTES);
    if made.is_err() {
        // Part of it may have been taken, which others need now.
        drop(fs::remove_file(path));
    }
    made
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn space_is_held_until_it_is_given_up_and_taken_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reserve");
        let mut reserve = Reserve::take(folder.path());
        assert!(file.metadata().unwrap().blocks() * 512 >= BYTES);
        assert!(reserve.give_up());
        assert!(!file.exists() && !reserve.give_up(), "it was given up before");
        assert!(reserve.renew() && file.exists());
        // The next process finds it.
        assert!(Reserve::take(folder.path()).give_up());
    }

    #[test]
    fn a_store_may_grow_where_nothing_can_be_reserved() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("reserve")).unwrap();
        let mut reserve = Reserve::take(folder.path());
        assert!(reserve.renew());
        assert!(!reserve.give_up());
    }
}
