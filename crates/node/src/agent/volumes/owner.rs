//! Whom a volume's files belong to.
//!
//! What is in a volume may be changed by others while it is given, by containers that use it and by guests that have taken over
//! their launcher. So the walk goes from descriptor to descriptor: what was looked at is what is changed, whatever its
//! name has come to mean meanwhile, and no link is followed.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::VolumeError;

/// Directories go deep; deeper than this is no volume that anybody made in good faith.
const DEEPEST: usize = 128;

/// Who is to own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owner {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    /// Whether a volume whose top is owned rightly is left alone.
    pub(super) only_root: bool,
}

/// A file, held while it is looked at and changed. The path is for messages alone.
struct Found<'a> {
    descriptor: OwnedFd,
    stat: Stat,
    path: &'a Path,
}

impl Owner {
    fn is_nobody(&self) -> bool {
        self.uid.is_none() && self.gid.is_none()
    }

    /// Gives a directory, not what is in it.
    pub(super) fn give_top(&self, path: &Path) -> Result<(), VolumeError> {
        if self.is_nobody() {
            return Ok(());
        }
        self.give(&Found::open(CWD, path, OFlags::NOFOLLOW, path)?)
    }

    /// Gives a volume with all that is in it. A device or a file is given alone.
    pub(super) fn give_all(&self, path: &Path) -> Result<(), VolumeError> {
        self.give_while(path, &mut |_| {})
    }

    /// The same; `looked` is told of each file between the look at it and the change.
    pub(super) fn give_while(&self, path: &Path, looked: &mut dyn FnMut(&Path)) -> Result<(), VolumeError> {
        if self.is_nobody() {
            return Ok(());
        }
        // The volume's own path may be a link: an administrator made it, not a guest.
        let top = Found::open(CWD, path, OFlags::empty(), path)?;
        if self.only_root && self.owns(&top.stat) {
            return Ok(());
        }
        self.descend(&top, DEEPEST, looked)
    }

    fn owns(&self, stat: &Stat) -> bool {
        self.uid.is_none_or(|uid| stat.st_uid == uid) && self.gid.is_none_or(|gid| stat.st_gid == gid)
    }

    fn descend(&self, at: &Found<'_>, depth: usize, looked: &mut dyn FnMut(&Path)) -> Result<(), VolumeError> {
        looked(at.path);
        self.give(at)?;
        if !at.is(FileType::Directory) || depth == 0 {
            return Ok(());
        }
        for entry in at.entries()? {
            let entry = entry.map_err(|error| at.failed(error))?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let path = at.path.join(OsStr::from_bytes(name.to_bytes()));
            match Found::open(&at.descriptor, name, OFlags::NOFOLLOW, &path) {
                Ok(found) => self.descend(&found, depth - 1, looked)?,
                // Somebody has removed it meanwhile.
                Err(VolumeError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Changes only what differs.
    fn give(&self, found: &Found<'_>) -> Result<(), VolumeError> {
        let stat = &found.stat;
        if !self.owns(stat) {
            let (uid, gid) = (self.uid.map(Uid::from_raw), self.gid.map(Gid::from_raw));
            let given = rustix::fs::chownat(&found.descriptor, c"", uid, gid, AtFlags::EMPTY_PATH);
            given.map_err(|error| found.failed(error))?;
        }
        if found.is(FileType::Symlink) || self.gid.is_none() {
            return Ok(());
        }
        // The group may do what the owner may, and what is made in a directory is the group's, too.
        let mode = stat.st_mode & 0o7777;
        let wanted = if found.is(FileType::Directory) { mode | 0o2770 } else { mode | 0o660 };
        if wanted != mode {
            // A descriptor of this kind can be named, and nothing else has that name.
            let name = format!("/proc/self/fd/{}", found.descriptor.as_raw_fd());
            rustix::fs::chmod(name, Mode::from_raw_mode(wanted)).map_err(|error| found.failed(error))?;
        }
        Ok(())
    }
}

impl<'a> Found<'a> {
    fn open<P: rustix::path::Arg>(
        below: impl AsFd,
        name: P,
        flags: OFlags,
        path: &'a Path,
    ) -> Result<Self, VolumeError> {
        let failed = |error: Errno| VolumeError::io(path)(error.into());
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(below, name, flags, Mode::empty()).map_err(failed)?;
        let stat = rustix::fs::fstat(&descriptor).map_err(failed)?;
        Ok(Self { descriptor, stat, path })
    }

    fn failed(&self, error: Errno) -> VolumeError {
        VolumeError::io(self.path)(error.into())
    }

    fn is(&self, kind: FileType) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == kind
    }

    /// What is in a directory.
    fn entries(&self) -> Result<Dir, VolumeError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.descriptor, c".", flags, Mode::empty());
        opened.and_then(Dir::new).map_err(|error| self.failed(error))
    }
}
