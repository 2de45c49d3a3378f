//! Layers, unpacked one over the other into a directory.
//!
//! # Guarantees
//! - Nothing outside the directory is read, written or removed, whatever names and links the layers have: the kernel
//!   resolves every path within the directory, as if it were the root.
//! - No file is written through a link: whatever has the name of an entry is removed before.
//!
//! Deliberately absent: devices, which containers have their own of.

mod remove;

use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags, chownat,
    fchmod, fchown, fsetxattr, futimens, linkat, mkdirat, mknodat, openat, openat2, statat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::Limits;
use super::layer::decode::{self, Limited};
use super::layer::{OPAQUE, UnpackError, WHITEOUT, broken, sparse};
use super::tar::{Archive, Attributes, Entry, Kind};
use super::transfer::Target;
pub(crate) use remove::remove;

/// Several times what the largest images have.
const MAX_ENTRIES: usize = 4_000_000;

/// A directory that layers are unpacked into.
pub(super) struct Tree {
    root: OwnedFd,
    /// Where what is removed is taken to first.
    work: OwnedFd,
    limits: Limits,
    unpacked: u64,
    entries: usize,
    bytes: u64,
    _hold: Box<dyn Send>,
}

/// What one layer has brought so far.
#[derive(Default)]
struct Layer {
    /// Hashes of the paths it has made: those its own markers do not hide. Two that are alike would keep a file that
    /// should be hidden, in an image whose maker wanted that.
    made: BTreeSet<u64>,
    /// Directories whose times are set at the end: what is put into them changes them.
    folders: Vec<(Vec<u8>, i64)>,
}

impl Layer {
    fn note(&mut self, path: &[&[u8]]) {
        self.made.extend((1..=path.len()).map(|length| hash(&path[..length])));
    }

    fn has(&self, path: &[&[u8]]) -> bool {
        self.made.contains(&hash(path))
    }
}

impl Tree {
    pub(super) fn new(
        folder: &Path,
        work: &Path,
        limits: &Limits,
        hold: impl Send + 'static,
    ) -> Result<Self, UnpackError> {
        let open = |path: &Path| {
            openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty()).map_err(write)
        };
        Ok(Self {
            root: open(folder)?,
            work: open(work)?,
            limits: *limits,
            unpacked: 0,
            entries: 0,
            bytes: 0,
            _hold: Box::new(hold),
        })
    }

    /// The bytes of all files that were written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn entries(&mut self, archive: &mut Archive<impl Read>, layer: &mut Layer) -> Result<(), UnpackError> {
        while let Some(entry) = archive.next().map_err(broken)? {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(UnpackError::Entries(MAX_ENTRIES));
            }
            let refused = || UnpackError::Name(String::from_utf8_lossy(&entry.name).into_owned());
            let path = parts(&entry.name).ok_or_else(refused)?;
            let Some((name, parent)) = path.split_last() else {
                // The root itself: its owner and mode count.
                let root = self.root.try_clone().map_err(UnpackError::Write)?;
                set(&root, &entry.attributes)?;
                continue;
            };
            if *name == OPAQUE.as_bytes() {
                self.hide_all(parent, layer)?;
            } else if name.starts_with(b".wh..wh.") {
                // Notes of an old file system to itself.
            } else if let Some(hidden) = name.strip_prefix(WHITEOUT.as_bytes()) {
                if matches!(hidden, b"" | b"." | b"..") {
                    return Err(refused());
                }
                self.hide(parent, hidden, layer)?;
            } else {
                self.entry(parent, name, &entry, archive, layer)?;
                layer.note(&path);
            }
        }
        self.finish(layer)
    }

    fn entry(
        &mut self,
        parent: &[&[u8]],
        name: &[u8],
        entry: &Entry,
        archive: &mut Archive<impl Read>,
        layer: &mut Layer,
    ) -> Result<(), UnpackError> {
        let path = || [parent, &[name]].concat();
        let failed = |error: Errno| unmade(&path(), error);
        let folder = self.folder(parent)?;
        let Attributes { mode, uid, gid, modified, target, capability: _ } = &entry.attributes;
        let is_folder_there = entry.kind == Kind::Directory && is_folder(&folder, name);
        if !is_folder_there && entry.kind != Kind::Device {
            remove(&folder, name, &self.work).map_err(UnpackError::Write)?;
        }
        match entry.kind {
            Kind::Directory => {
                if !is_folder_there {
                    mkdirat(&folder, name, Mode::RWXU).map_err(failed)?;
                }
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                set(&openat(&folder, name, flags, Mode::empty()).map_err(failed)?, &entry.attributes)?;
                layer.folders.push((joined(&path()), *modified));
            }
            Kind::File => self.file(&folder, name, entry, archive).map_err(|error| named(error, &path()))?,
            Kind::Symlink => {
                symlinkat(target.as_slice(), &folder, name).map_err(failed)?;
                own(&folder, name, *uid, *gid, *modified).map_err(failed)?;
            }
            Kind::Hardlink => self.hardlink(&folder, name, target, &path())?,
            Kind::Pipe => {
                mknodat(&folder, name, FileType::Fifo, Mode::from_raw_mode(*mode & 0o777), 0).map_err(failed)?;
                own(&folder, name, *uid, *gid, *modified).map_err(failed)?;
            }
            Kind::Device => {}
            Kind::Other => {
                return Err(UnpackError::Kind { path: shown(&path()), found: entry.kind.describe() });
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        entry: &Entry,
        archive: &mut Archive<impl Read>,
    ) -> Result<(), UnpackError> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        let file = File::from(openat(folder, name, flags, Mode::RUSR | Mode::WUSR).map_err(write)?);
        self.bytes = self.bytes.saturating_add(sparse::copy(archive, &file)?);
        let file = OwnedFd::from(file);
        set(&file, &entry.attributes)?;
        if let Some(capability) = &entry.attributes.capability {
            // Not every file system has a place for them; a program that needs them fails by itself.
            let _ = fsetxattr(&file, c"security.capability", capability, XattrFlags::empty());
        }
        futimens(&file, &times(entry.attributes.modified)).map_err(write)
    }

    /// The other name is looked for in the directory too. A link to it, not to where it leads.
    fn hardlink(&self, folder: &OwnedFd, name: &[u8], target: &[u8], path: &[&[u8]]) -> Result<(), UnpackError> {
        let refused = || UnpackError::Name(String::from_utf8_lossy(target).into_owned());
        let other = parts(target).ok_or_else(refused)?;
        let (other_name, other_parent) = other.split_last().ok_or_else(refused)?;
        let other_folder = self.open(other_parent).map_err(|error| unmade(path, error))?;
        linkat(&other_folder, *other_name, folder, name, AtFlags::empty()).map_err(|error| unmade(path, error))
    }

    /// Opens a directory, and makes what lacks on the way.
    fn folder(&self, path: &[&[u8]]) -> Result<OwnedFd, UnpackError> {
        match self.open(path) {
            Err(Errno::NOENT) => {}
            opened => return opened.map_err(|error| unmade(path, error)),
        }
        let mut folder = self.open(&[]).map_err(write)?;
        for length in 1..=path.len() {
            let (way, failed) = (&path[..length], |error| unmade(&path[..length], error));
            folder = match self.open(way) {
                Err(Errno::NOENT) => {
                    // A link that leads nowhere has the name; it is not followed to make something there.
                    mkdirat(&folder, path[length - 1], Mode::from_raw_mode(0o755)).map_err(failed)?;
                    self.open(way).map_err(failed)?
                }
                opened => opened.map_err(failed)?,
            };
        }
        Ok(folder)
    }

    /// Links are followed, but never out of the root.
    fn open(&self, path: &[&[u8]]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        let joined = joined(path);
        let path = if joined.is_empty() { b".".as_slice() } else { &joined };
        loop {
            match openat2(&self.root, path, flags, Mode::empty(), resolve) {
                // Something was renamed elsewhere while the kernel looked.
                Err(Errno::AGAIN) => {}
                opened => return opened,
            }
        }
    }

    /// Removes what lower layers have at a name.
    fn hide(&self, parent: &[&[u8]], name: &[u8], layer: &Layer) -> Result<(), UnpackError> {
        let path = [parent, &[name]].concat();
        if layer.has(&path) {
            // What the layer itself has there stays, and in a directory only that.
            return self.hide_all(&path, layer);
        }
        match self.open(parent) {
            Ok(folder) => remove(&folder, name, &self.work).map_err(UnpackError::Write),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(error) => Err(unmade(parent, error)),
        }
    }

    /// Removes what lower layers have in a directory.
    fn hide_all(&self, path: &[&[u8]], layer: &Layer) -> Result<(), UnpackError> {
        let mut folders = vec![path.iter().map(|part| part.to_vec()).collect::<Vec<_>>()];
        while let Some(path) = folders.pop() {
            let path: Vec<&[u8]> = path.iter().map(Vec::as_slice).collect();
            let folder = match self.open(&path) {
                // Such as one that a layer hides to be sure.
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                opened => opened.map_err(|error| unmade(&path, error))?,
            };
            for name in names(&folder).map_err(write)? {
                let below = [path.as_slice(), &[name.as_slice()]].concat();
                if !layer.has(&below) {
                    remove(&folder, &name, &self.work).map_err(UnpackError::Write)?;
                } else if is_folder(&folder, &name) {
                    folders.push(below.iter().map(|part| part.to_vec()).collect());
                }
            }
        }
        Ok(())
    }

    /// The deepest last: setting a directory's times does not change those of the directory it is in.
    fn finish(&self, layer: &Layer) -> Result<(), UnpackError> {
        for (path, modified) in &layer.folders {
            let path = parts(path).unwrap_or_default();
            let Some((name, parent)) = path.split_last() else { continue };
            // A later entry may have replaced it.
            if let Ok(folder) = self.open(parent)
                && is_folder(&folder, name)
            {
                utimensat(&folder, *name, &times(*modified), AtFlags::SYMLINK_NOFOLLOW).map_err(write)?;
            }
        }
        Ok(())
    }
}

impl Target for Tree {
    fn layer(&mut self, stored: impl Read) -> Result<(), UnpackError> {
        let limit = self.limits.max_unpacked_bytes.saturating_sub(self.unpacked);
        let decoded = decode::reader(stored).map_err(UnpackError::Archive)?;
        let mut archive = Archive::new(Limited::new(decoded, limit));
        let result = self.entries(&mut archive, &mut Layer::default());
        let counter = archive.into_inner();
        self.unpacked += counter.count();
        if counter.is_exhausted() {
            return Err(UnpackError::Unpacked(self.limits.max_unpacked_bytes));
        }
        result
    }
}

/// Owner before mode: a change of owner takes some bits of the mode away.
fn set(file: &OwnedFd, attributes: &Attributes) -> Result<(), UnpackError> {
    let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.gid));
    fchown(file, Some(uid), Some(gid)).map_err(write)?;
    fchmod(file, Mode::from_raw_mode(attributes.mode)).map_err(write)
}

fn own(folder: &OwnedFd, name: &[u8], uid: u32, gid: u32, modified: i64) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    utimensat(folder, name, &times(modified), AtFlags::SYMLINK_NOFOLLOW)
}

fn times(seconds: i64) -> Timestamps {
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

fn is_folder(parent: &OwnedFd, name: &[u8]) -> bool {
    statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
}

fn names(folder: &OwnedFd) -> Result<Vec<Vec<u8>>, Errno> {
    let readable = openat(folder, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::new(readable)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// `/a//./b/` as `a` and `b`; none if it leads upwards. A leading slash means the image's root, as links do.
fn parts(name: &[u8]) -> Option<Vec<&[u8]>> {
    let parts: Vec<_> = name.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b".")).collect();
    (!parts.contains(&b"..".as_slice()) && !name.contains(&0)).then_some(parts)
}

fn joined(path: &[&[u8]]) -> Vec<u8> {
    path.join(&b'/')
}

fn shown(path: &[&[u8]]) -> String {
    String::from_utf8_lossy(&joined(path)).into_owned()
}

fn hash(path: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

fn write(error: Errno) -> UnpackError {
    UnpackError::Write(error.into())
}

/// What is wrong with the machine is told from what is wrong with the image.
fn unmade(path: &[&[u8]], error: Errno) -> UnpackError {
    match error {
        Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::ROFS => write(error),
        _ => UnpackError::Entry { path: shown(path), source: io::Error::from(error) },
    }
}

/// A name that the file system refuses, such as a longer one than it has, is the image's fault.
fn named(error: UnpackError, path: &[&[u8]]) -> UnpackError {
    match error {
        UnpackError::Write(source) => match source.raw_os_error() {
            Some(code) => unmade(path, Errno::from_raw_os_error(code)),
            None => UnpackError::Write(source),
        },
        other => other,
    }
}

#[cfg(test)]
mod tests;
