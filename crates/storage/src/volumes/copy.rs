//! Copies of directories with all that is in them.
//!
//! Pods and guests write to the source, so the walk goes from descriptor to descriptor and follows no link. Files, directories and
//! links are copied, with owners, modes and times; pipes, sockets and devices have no bytes and are left out, and so are extended
//! attributes.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::VolumeError;

/// Directories go deep; deeper than this is no volume that anybody made in good faith.
const DEEPEST: usize = 128;
/// Read at a time where the kernel does not copy by itself.
const CHUNK: usize = 1 << 20;
/// What the file system says that cannot share bytes between two files.
const UNSHARED: [Errno; 6] = [Errno::OPNOTSUPP, Errno::XDEV, Errno::INVAL, Errno::NOTTY, Errno::NOSYS, Errno::PERM];

/// Copies a directory to a name that is not there yet. All of it is on disk afterwards, but for the name itself.
pub(super) fn tree(from: &Path, to: &Path) -> Result<(), VolumeError> {
    let source = rustix::fs::open(from, READ_DIRECTORY, Mode::empty()).map_err(failed("open", from))?;
    directory(&source, CWD, to, to, DEEPEST)
}

/// Shares the bytes of a file with another, or says why that cannot be.
pub(super) fn share(from: &File, to: &File) -> Result<(), Errno> {
    rustix::fs::ioctl_ficlone(to, from)
}

const READ_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// `NONBLOCK`: opening a pipe must not wait for its other end.
const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const WRITE: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::CLOEXEC);

/// `name` is where the copy goes, below `into`; `path` is for messages alone.
fn directory<P: rustix::path::Arg + Copy>(
    from: &OwnedFd,
    into: impl AsFd,
    name: P,
    path: &Path,
    depth: usize,
) -> Result<(), VolumeError> {
    if depth == 0 {
        return Err(VolumeError::Depth(path.to_owned()));
    }
    rustix::fs::mkdirat(&into, name, Mode::RWXU).map_err(failed("create", path))?;
    let to = rustix::fs::openat(&into, name, READ_DIRECTORY, Mode::empty()).map_err(failed("open", path))?;
    for entry in Dir::read_from(from).map_err(failed("read", path))? {
        let entry = entry.map_err(failed("read", path))?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let path = path.join(OsStr::from_bytes(name.to_bytes()));
        let stat = match rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW) {
            // Somebody has removed it meanwhile.
            Err(Errno::NOENT) => continue,
            found => found.map_err(failed("look at", &path))?,
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let from = rustix::fs::openat(from, name, READ_DIRECTORY, Mode::empty());
                directory(&from.map_err(failed("open", &path))?, &to, name, &path, depth - 1)?;
            }
            FileType::RegularFile => file(from, &to, name, &path)?,
            FileType::Symlink => link(from, &to, name, &stat, &path)?,
            _ => {}
        }
    }
    let stat = rustix::fs::fstat(from).map_err(failed("look at", path))?;
    finish(&to, &stat, path)
}

fn link(from: &OwnedFd, to: &OwnedFd, name: &CStr, stat: &Stat, path: &Path) -> Result<(), VolumeError> {
    let target = rustix::fs::readlinkat(from, name, Vec::new()).map_err(failed("read", path))?;
    rustix::fs::symlinkat(&*target, to, name).map_err(failed("create", path))?;
    let (uid, gid) = owner(stat);
    rustix::fs::chownat(to, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(failed("give away", path))
}

fn file(from: &OwnedFd, to: &OwnedFd, name: &CStr, path: &Path) -> Result<(), VolumeError> {
    let source = rustix::fs::openat(from, name, READ, Mode::empty()).map_err(failed("open", path))?;
    let stat = rustix::fs::fstat(&source).map_err(failed("look at", path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(VolumeError::Kind(path.to_owned()));
    }
    let target = rustix::fs::openat(to, name, WRITE, Mode::RUSR | Mode::WUSR).map_err(failed("create", path))?;
    let (source, target) = (File::from(source), File::from(target));
    match share(&source, &target) {
        Ok(()) => {}
        Err(error) if UNSHARED.contains(&error) => plain(&source, &target, &stat, path)?,
        Err(error) => return Err(failed("copy", path)(error)),
    }
    finish(&target, &stat, path)
}

/// Gives a copy the owner, mode and times of what it was copied from, and brings it to disk.
fn finish(to: impl AsFd, stat: &Stat, path: &Path) -> Result<(), VolumeError> {
    let (uid, gid) = owner(stat);
    rustix::fs::fchown(&to, Some(uid), Some(gid)).map_err(failed("give away", path))?;
    // After the owner, whose change takes some modes away.
    rustix::fs::fchmod(&to, Mode::from_raw_mode(stat.st_mode & 0o7777)).map_err(failed("set the mode of", path))?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        let at = |seconds, nanoseconds| Timespec {
            tv_sec: seconds,
            tv_nsec: i64::try_from(nanoseconds).unwrap_or_default(),
        };
        let times = Timestamps {
            last_access: at(stat.st_atime, stat.st_atime_nsec),
            last_modification: at(stat.st_mtime, stat.st_mtime_nsec),
        };
        rustix::fs::futimens(&to, &times).map_err(failed("set the times of", path))?;
    }
    rustix::fs::fsync(&to).map_err(failed("sync", path))
}

/// Copies bytes one after another, and no holes. A source that changes meanwhile gives no copy: it would be of no one moment.
pub(super) fn plain(from: &File, to: &File, before: &Stat, path: &Path) -> Result<(), VolumeError> {
    let length = u64::try_from(before.st_size).unwrap_or_default();
    let mut end = 0;
    while let Some(start) = seek(from, SeekFrom::Data(end)).map_err(failed("read", path))? {
        end = seek(from, SeekFrom::Hole(start)).map_err(failed("read", path))?.unwrap_or(length).min(length);
        if start >= end {
            break;
        }
        range(from, to, start, end).map_err(failed("copy", path))?;
    }
    rustix::fs::ftruncate(to, length).map_err(failed("size", path))?;
    let after = rustix::fs::fstat(from).map_err(failed("look at", path))?;
    if moment(before) == moment(&after) { Ok(()) } else { Err(VolumeError::Changed(path.to_owned())) }
}

/// What every write changes.
fn moment(stat: &Stat) -> [i128; 5] {
    [
        stat.st_size.into(),
        stat.st_mtime.into(),
        stat.st_mtime_nsec.into(),
        stat.st_ctime.into(),
        stat.st_ctime_nsec.into(),
    ]
}

/// Where the next data or hole is; none behind the last.
fn seek(file: &File, to: SeekFrom) -> Result<Option<u64>, Errno> {
    match rustix::fs::seek(file, to) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

fn range(from: &File, to: &File, mut start: u64, end: u64) -> Result<(), Errno> {
    while start < end {
        let (mut read, mut written) = (start, start);
        let length = usize::try_from(end - start).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), length) {
            // It has become shorter; the look afterwards tells.
            Ok(0) => return Ok(()),
            Ok(copied) => start += copied as u64,
            Err(Errno::INTR) => {}
            Err(error) if UNSHARED.contains(&error) => return by_hand(from, to, start, end),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn by_hand(from: &File, to: &File, mut start: u64, end: u64) -> Result<(), Errno> {
    let raw = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let mut buffer = vec![0; CHUNK];
    while start < end {
        let most = usize::try_from(end - start).unwrap_or(CHUNK).min(CHUNK);
        let chunk = buffer.get_mut(..most).unwrap_or_default();
        let count = from.read_at(chunk, start).map_err(raw)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all_at(chunk.get(..count).unwrap_or_default(), start).map_err(raw)?;
        start += count as u64;
    }
    Ok(())
}

fn owner(stat: &Stat) -> (Uid, Gid) {
    (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid))
}

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(Errno) -> VolumeError + use<> {
    let path = path.to_owned();
    move |error| VolumeError::Io { action, path, source: error.into() }
}
