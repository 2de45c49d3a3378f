//! Volumes as directories of one file system, in which a disk is the raw file `disk.img`.
//!
//! ```text
//!  ROOT/NAME              a volume
//!  ROOT/.snapshots/NAME   a snapshot
//!  ROOT/.work             intents, copies that are not finished, and what is being removed
//! ```
//!
//! A copy is: the intent, the copy under a name of its own, all of it on disk, the rename, and the directory on disk. Whatever is
//! in `.work` when storage is opened was cut off: copies and removals go, and intents stay of what got its name.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustix::fs::{FileType, Mode, OFlags};

use super::copy;
use super::intent::{self, Intent, entries, key, sync};
use super::{Capacity, Copies, Filling, Name, Stored, VolumeError, Volumes};
use crate::disk;

/// The raw disk in a volume, as KubeVirt's users know it.
pub const DISK: &str = "disk.img";
const SNAPSHOTS: &str = ".snapshots";
const WORK: &str = ".work";

/// What is about to be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Intend,
    Copy,
    Grow,
    Rename,
    SyncName,
    /// A removal takes the name away.
    TakeName,
    /// Of what has no name any more.
    Remove,
    Settle,
}

/// Lets a step be done, or stops there: so tests cut at each.
type Gate = dyn Fn(Step) -> io::Result<()> + Send + Sync;

/// Volumes below a directory.
pub struct Files {
    root: PathBuf,
    copies: Copies,
    /// What is being copied, and how many times.
    sources: Mutex<BTreeMap<Stored, usize>>,
    gate: Arc<Gate>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("root", &self.root).field("copies", &self.copies).finish_non_exhaustive()
    }
}

/// Keeps what is being copied from being removed.
struct Reading<'a> {
    files: &'a Files,
    what: &'a Stored,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut sources = self.files.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = sources.get_mut(self.what) {
            *count -= 1;
            if *count == 0 {
                sources.remove(self.what);
            }
        }
    }
}

impl Files {
    /// Opens volumes below a directory, which is made if it is missing, and removes what was cut off. Only one process may have
    /// it open.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn open(root: &Path) -> Result<Self, VolumeError> {
        Self::open_with(root, Arc::new(|_| Ok(())))
    }

    pub(super) fn open_with(root: &Path, gate: Arc<Gate>) -> Result<Self, VolumeError> {
        for (folder, mode) in [(root.to_owned(), 0o755), (root.join(SNAPSHOTS), 0o700), (root.join(WORK), 0o700)] {
            let made = DirBuilder::new().recursive(true).mode(mode).create(&folder);
            made.map_err(|source| VolumeError::Io { action: "create", path: folder, source })?;
        }
        let work = root.join(WORK);
        let mut files = Self { root: root.to_owned(), copies: Copies::Shared, sources: Mutex::default(), gate };
        files.sweep(&work)?;
        files.copies = probe(&work)?;
        Ok(files)
    }

    fn work(&self) -> PathBuf {
        self.root.join(WORK)
    }

    fn place(&self, stored: &Stored) -> PathBuf {
        match stored {
            Stored::Volume(name) => self.root.join(name.as_str()),
            Stored::Snapshot(name) => self.root.join(SNAPSHOTS).join(name.as_str()),
        }
    }

    /// Removes what was cut off, and what is intended of things that never got their names.
    fn sweep(&self, work: &Path) -> Result<(), VolumeError> {
        let named = self.unfinished()?.iter().map(|stored| intent::path(work, stored)).collect::<Vec<_>>();
        for path in entries(work)?.into_iter().filter(|path| !named.contains(path)) {
            self.step(Step::Remove, &path)?;
            remove(&path)?;
        }
        Ok(())
    }

    fn step(&self, step: Step, path: &Path) -> Result<(), VolumeError> {
        (self.gate)(step).map_err(|source| VolumeError::Io { action: "go on with", path: path.to_owned(), source })
    }

    fn reading<'a>(&'a self, what: &'a Stored) -> Reading<'a> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        *sources.entry(what.clone()).or_default() += 1;
        Reading { files: self, what }
    }

    /// Makes something that is there with all its bytes, or not at all.
    fn make(&self, makes: &Stored, filling: Filling<'_>, size: Option<u64>) -> Result<(), VolumeError> {
        let place = self.place(makes);
        if is_there(&place)? {
            // Whoever made it may have been cut off before its name was on disk.
            return self.sync_names(&place);
        }
        let from = match filling {
            Filling::Copy(from) => Some(from),
            Filling::Nothing | Filling::Disk => None,
        };
        let reading = from.map(|from| self.reading(from));
        if let Some(from) = from {
            let source = self.place(from);
            if !is_there(&source)? {
                return Err(VolumeError::Missing(from.clone()));
            }
            self.check_room(&source)?;
        }
        let made = self.fill(makes, filling, size);
        drop(reading);
        if made.is_err() {
            // The first error is the one to report; what stays is swept when storage is opened next.
            let _ = self.abandon(makes);
        }
        made
    }

    fn fill(&self, makes: &Stored, filling: Filling<'_>, size: Option<u64>) -> Result<(), VolumeError> {
        let (work, place) = (self.work(), self.place(makes));
        let copy = work.join(key(makes));
        self.step(Step::Intend, &copy)?;
        let from = if let Filling::Copy(from) = filling { Some(from.clone()) } else { None };
        intent::write(&work, &Intent { makes: makes.clone(), from })?;
        self.step(Step::Copy, &copy)?;
        // An earlier attempt may have left something.
        remove(&copy)?;
        match filling {
            Filling::Copy(from) => copy::tree(&self.place(from), &copy)?,
            Filling::Disk => make_blank(&copy, size.unwrap_or_default())?,
            Filling::Nothing => make_empty(&copy)?,
        }
        if let Some(size) = size {
            self.step(Step::Grow, &copy)?;
            grow(&copy, size)?;
        }
        self.step(Step::Rename, &place)?;
        std::fs::rename(&copy, &place).map_err(failed("rename", &copy))?;
        self.step(Step::SyncName, &place)?;
        self.sync_names(&place)
    }

    fn abandon(&self, makes: &Stored) -> Result<(), VolumeError> {
        let copy = self.work().join(key(makes));
        self.step(Step::Remove, &copy)?;
        remove(&copy)?;
        if is_there(&self.place(makes))? { Ok(()) } else { intent::remove(&self.work(), makes) }
    }

    fn sync_names(&self, place: &Path) -> Result<(), VolumeError> {
        place.parent().map_or(Ok(()), sync)?;
        sync(&self.work())
    }

    fn check_room(&self, source: &Path) -> Result<(), VolumeError> {
        if self.copies == Copies::Shared {
            return Ok(());
        }
        let (needed, free) = (measure(source)?, self.capacity()?.free);
        if needed <= free { Ok(()) } else { Err(VolumeError::Room { needed, free }) }
    }
}

impl Volumes for Files {
    fn create(&self, name: &Name, filling: Filling<'_>, size: u64) -> Result<(), VolumeError> {
        self.make(&Stored::Volume(name.clone()), filling, Some(size))
    }

    fn snapshot(&self, name: &Name, volume: &Name) -> Result<SystemTime, VolumeError> {
        let makes = Stored::Snapshot(name.clone());
        self.make(&makes, Filling::Copy(&Stored::Volume(volume.clone())), None)?;
        self.found(&makes)?.ok_or(VolumeError::Missing(makes))
    }

    fn delete(&self, stored: &Stored) -> Result<(), VolumeError> {
        let (work, place) = (self.work(), self.place(stored));
        let gone = work.join(format!("gone-{}", key(stored)));
        // Held while the name is taken: a copy that begins later finds nothing.
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.contains_key(stored) {
            return Err(VolumeError::Copied(stored.clone()));
        }
        self.step(Step::TakeName, &place)?;
        remove(&gone)?;
        match std::fs::rename(&place, &gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed.map_err(failed("rename", &place))?,
        }
        drop(sources);
        self.sync_names(&place)?;
        self.step(Step::Remove, &gone)?;
        remove(&gone)?;
        intent::remove(&work, stored)
    }

    fn grow(&self, name: &Name, size: u64) -> Result<(), VolumeError> {
        let stored = Stored::Volume(name.clone());
        let place = self.place(&stored);
        if !is_there(&place)? {
            return Err(VolumeError::Missing(stored));
        }
        self.step(Step::Grow, &place)?;
        grow(&place, size)
    }

    fn settle(&self, stored: &Stored) -> Result<(), VolumeError> {
        self.step(Step::Settle, &self.place(stored))?;
        intent::remove(&self.work(), stored)
    }

    fn unfinished(&self) -> Result<Vec<Stored>, VolumeError> {
        let mut found = Vec::new();
        for intent in intent::all(&self.work())? {
            if is_there(&self.place(&intent.makes))? {
                found.push(intent.makes);
            }
        }
        Ok(found)
    }

    fn found(&self, stored: &Stored) -> Result<Option<SystemTime>, VolumeError> {
        let place = self.place(stored);
        if !is_there(&place)? {
            return Ok(None);
        }
        // The directory was last written to when the copy was made into it.
        let metadata = std::fs::symlink_metadata(&place).and_then(|metadata| metadata.modified());
        metadata.map(Some).map_err(failed("look at", &place))
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.root.join(name.as_str())
    }

    fn usage(&self, stored: &Stored) -> Result<u64, VolumeError> {
        let place = self.place(stored);
        if is_there(&place)? { measure(&place) } else { Err(VolumeError::Missing(stored.clone())) }
    }

    fn capacity(&self) -> Result<Capacity, VolumeError> {
        let stat = rustix::fs::statvfs(&self.root).map_err(copy::failed("measure", &self.root))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Capacity { total: bytes(stat.f_blocks), free: bytes(stat.f_bavail) })
    }

    fn copies(&self) -> &Copies {
        &self.copies
    }
}

/// Whether files here can share their bytes, found out by trying.
fn probe(work: &Path) -> Result<Copies, VolumeError> {
    let (one, other) = (work.join("probe-source"), work.join("probe-copy"));
    std::fs::write(&one, [1; 4096]).map_err(failed("write", &one))?;
    let source = File::open(&one).map_err(failed("open", &one))?;
    let target = File::create(&other).map_err(failed("create", &other))?;
    let shared = copy::share(&source, &target);
    for path in [one, other] {
        remove(&path)?;
    }
    Ok(match shared {
        Ok(()) => Copies::Shared,
        Err(error) => Copies::Plain { why: io::Error::from(error).to_string() },
    })
}

/// An empty volume, which pods of any user can get through to what is given to them in it.
fn make_empty(path: &Path) -> Result<(), VolumeError> {
    DirBuilder::new().mode(0o755).create(path).map_err(failed("create", path))?;
    sync(path)
}

/// A volume with a disk that has no byte yet.
fn make_blank(path: &Path, size: u64) -> Result<(), VolumeError> {
    make_empty(path)?;
    disk::create_raw(&path.join(DISK), size).map(drop).map_err(VolumeError::Disk)
}

/// Grows the disk in a volume, if there is one. The launcher makes one that is missing, of the claim's size.
fn grow(volume: &Path, size: u64) -> Result<(), VolumeError> {
    let path = volume.join(DISK);
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::open(&path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::ISDIR | rustix::io::Errno::NXIO) => {
            return Err(VolumeError::Kind(path));
        }
        opened => opened.map_err(copy::failed("open", &path))?,
    };
    let stat = rustix::fs::fstat(&file).map_err(copy::failed("look at", &path))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(VolumeError::Kind(path));
    }
    if u64::try_from(stat.st_size).is_ok_and(|now| now < size) {
        rustix::fs::ftruncate(&file, size).map_err(copy::failed("grow", &path))?;
        rustix::fs::fsync(&file).map_err(copy::failed("sync", &path))?;
    }
    Ok(())
}

fn measure(path: &Path) -> Result<u64, VolumeError> {
    let metadata = std::fs::symlink_metadata(path).map_err(failed("look at", path))?;
    let own = metadata.blocks().saturating_mul(512);
    if !metadata.is_dir() {
        return Ok(own);
    }
    let inner: Result<Vec<u64>, VolumeError> = entries(path)?.iter().map(|entry| measure(entry)).collect();
    Ok(inner?.into_iter().fold(own, u64::saturating_add))
}

fn is_there(path: &Path) -> Result<bool, VolumeError> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(VolumeError::Io { action: "look at", path: path.to_owned(), source }),
    }
}

/// Removes a file or a directory with all that is in it.
fn remove(path: &Path) -> Result<(), VolumeError> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(failed("remove", path)),
    }
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VolumeError + use<> {
    let path = path.to_owned();
    move |source| VolumeError::Io { action, path, source }
}
