//! The files of the cache. Everything here may block.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::lock::{Lock, has_name};
use super::record::{Record, Remembered};
use super::{CacheError, CachedFile, Usage};
use crate::image::Reference;
use crate::pull::{Digest, Wanted};

/// The name of a file: what it is made of.
#[derive(Clone, Debug)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn new(manifest: Digest, wanted: &Wanted) -> Self {
        // Disks and files differ: a disk was looked into, and a file of the same name was not.
        let wanted = match wanted {
            Wanted::Disk(None) => "disk".to_owned(),
            Wanted::Disk(Some(path)) => format!("disk {}", path.trim_start_matches('/')),
            Wanted::File(path) => format!("file {}", path.trim_start_matches('/')),
        };
        Self(Digest::of(format!("{manifest}\n{wanted}").as_bytes()).hex())
    }
}

#[derive(Clone, Debug)]
pub(super) struct Folder {
    files: PathBuf,
    locks: PathBuf,
    references: PathBuf,
}

/// A file in the making, removed unless it is published.
pub(super) struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a success there is nothing to remove; what cannot be removed now is when the cache is opened next.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Folder {
    pub(super) fn create(path: &Path) -> Result<Self, CacheError> {
        let part = |name: &str| -> Result<PathBuf, CacheError> {
            let path = path.join(name);
            // Launchers of other users reach the files; the locks are for this program alone.
            let mode = if name == "files" { 0o755 } else { 0o700 };
            DirBuilder::new().recursive(true).mode(mode).create(&path).map_err(failed("create", &path))?;
            Ok(path)
        };
        Ok(Self { files: part("files")?, locks: part("locks")?, references: part("references")? })
    }

    pub(super) fn lock_path(&self, key: &Key) -> PathBuf {
        self.locks.join(&key.0)
    }

    pub(super) fn reference_lock(&self, reference: &Reference) -> PathBuf {
        self.locks.join(format!("reference-{}", name_of(reference)))
    }

    /// A new file for a pull. The caller holds the key's lock.
    pub(super) fn temporary(&self, key: &Key) -> Result<Temporary, CacheError> {
        let path = self.files.join(format!("{}.tmp", key.0));
        // Never the file of an earlier pull: that one's threads may still be at it.
        remove_if_there(&path)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
        Ok(Temporary { file: file.map_err(failed("create", &path))?, path })
    }

    /// Gives a file its name: first what it is, then the file itself. The caller holds the key's lock.
    pub(super) fn publish(&self, key: &Key, temporary: &Temporary, record: &Record) -> Result<(), CacheError> {
        let file = temporary.file();
        file.set_permissions(Permissions::from_mode(0o444))
            .and_then(|()| file.sync_all())
            .map_err(failed("write", &temporary.path))?;
        write_json(&self.record_path(key), record)?;
        let path = self.files.join(&key.0);
        std::fs::rename(&temporary.path, &path).map_err(failed("rename", &path))?;
        File::open(&self.files).and_then(|folder| folder.sync_all()).map_err(failed("write", &self.files))
    }

    /// The file, held. One without a record, or of another length than recorded, counts as absent.
    pub(super) fn find(&self, key: &Key) -> Result<Option<CachedFile>, CacheError> {
        let path = self.files.join(&key.0);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed("open", &path))?,
        };
        // Only a cleaner holds an exclusive lock, and not for long.
        file.lock_shared().map_err(failed("lock", &path))?;
        if !has_name(&file).map_err(failed("open", &path))? {
            return Ok(None);
        }
        let record_path = self.record_path(key);
        let Some(record) = read_json::<Record>(&record_path)? else { return Ok(None) };
        if file.metadata().map_err(failed("open", &path))?.len() != record.bytes {
            return Ok(None);
        }
        touch(&record_path);
        Ok(Some(CachedFile { path, record, file }))
    }

    pub(super) fn remember(&self, reference: &Reference, manifest: Digest) -> Result<(), CacheError> {
        if self.recall(reference)? == Some(manifest) {
            return Ok(());
        }
        let _lock = self.lock_references()?;
        write_json(&self.remembered_path(reference), &Remembered { reference: reference.clone(), manifest })
    }

    pub(super) fn recall(&self, reference: &Reference) -> Result<Option<Digest>, CacheError> {
        let remembered = read_json::<Remembered>(&self.remembered_path(reference))?;
        Ok(remembered.filter(|it| it.reference == *reference).map(|it| it.manifest))
    }

    /// Temporary files of pulls that nobody is at any more.
    pub(super) fn remove_leftovers(&self) -> Result<(), CacheError> {
        let is_temporary = |name: &String| name.ends_with(".tmp");
        for name in names(&self.files)?.into_iter().filter(is_temporary) {
            let key = name.split('.').next().unwrap_or_default();
            if let Some(_lock) = Lock::attempt(&self.locks.join(key))? {
                remove_if_there(&self.files.join(name))?;
            }
        }
        let _lock = self.lock_references()?;
        let references = names(&self.references)?;
        references
            .iter()
            .filter(|name| is_temporary(name))
            .try_for_each(|name| remove_if_there(&self.references.join(name)))
    }

    pub(super) fn usage(&self) -> Result<Usage, CacheError> {
        let entries = self.entries()?;
        Ok(Usage { files: entries.len() as u64, bytes: entries.iter().map(|entry| entry.bytes).sum() })
    }

    pub(super) fn clean(&self, keep_bytes: u64) -> Result<Usage, CacheError> {
        let mut entries = self.entries()?;
        entries.sort_by(|a, b| (a.last_used, &a.key.0).cmp(&(b.last_used, &b.key.0)));
        let mut kept: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut removed = Usage::default();
        for entry in entries {
            if kept <= keep_bytes {
                break;
            }
            if self.remove_unused(&entry.key)? {
                kept -= entry.bytes;
                removed = Usage { files: removed.files + 1, bytes: removed.bytes + entry.bytes };
            }
        }
        if removed.files > 0 {
            self.forget()?;
        }
        Ok(removed)
    }

    /// Whether nobody used it, and it is gone.
    fn remove_unused(&self, key: &Key) -> Result<bool, CacheError> {
        let Some(lock) = Lock::attempt(&self.lock_path(key))? else { return Ok(false) };
        let path = self.files.join(&key.0);
        let file = match File::open(&path) {
            // Another cleaner was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(failed("open", &path))?,
        };
        if file.try_lock().is_err() {
            return Ok(false);
        }
        // The file first: a record without a file is nothing, a file without a record would be pulled again.
        remove_if_there(&path)?;
        remove_if_there(&self.record_path(key))?;
        lock.remove()?;
        Ok(true)
    }

    /// Drops what is remembered of images that are gone, so that this directory does not grow for ever.
    fn forget(&self) -> Result<(), CacheError> {
        let _lock = self.lock_references()?;
        let mut manifests = BTreeSet::new();
        for entry in self.entries()? {
            manifests.extend(read_json::<Record>(&self.record_path(&entry.key))?.map(|record| record.manifest));
        }
        for name in names(&self.references)? {
            let path = self.references.join(name);
            let is_kept = read_json::<Remembered>(&path)?.is_some_and(|it| manifests.contains(&it.manifest));
            if !is_kept {
                remove_if_there(&path)?;
            }
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<Listed>, CacheError> {
        let mut entries = Vec::new();
        for name in names(&self.files)?.into_iter().filter(|name| !name.contains('.')) {
            let key = Key(name);
            // Another process may be cleaning.
            let Ok(metadata) = std::fs::symlink_metadata(self.files.join(&key.0)) else { continue };
            let used = std::fs::metadata(self.record_path(&key)).map(|record| (record.mtime(), record.mtime_nsec()));
            // In 512 bytes each, whatever the file system's blocks.
            let bytes = metadata.blocks() * 512;
            entries.push(Listed { key, bytes, last_used: used.unwrap_or_default() });
        }
        Ok(entries)
    }

    /// Held for the time of a small write.
    fn lock_references(&self) -> Result<Lock, CacheError> {
        Lock::block(&self.locks.join("references"))
    }

    fn record_path(&self, key: &Key) -> PathBuf {
        self.files.join(format!("{}.json", key.0))
    }

    fn remembered_path(&self, reference: &Reference) -> PathBuf {
        self.references.join(name_of(reference))
    }
}

struct Listed {
    key: Key,
    bytes: u64,
    last_used: (i64, i64),
}

pub(crate) fn name_of(reference: &Reference) -> String {
    Digest::of(reference.to_string().as_bytes()).hex()
}

/// The kernel's clock says when: the order of use is all that matters. A lost stamp costs a pull at worst.
pub(crate) fn touch(path: &Path) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: unchanged, last_modification: now };
    let _ = rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
}

/// Whole or not at all. The caller holds a lock, so that no two writers use one temporary name.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), CacheError> {
    let bytes = serde_json::to_vec(value).map_err(io::Error::from).map_err(failed("encode", path))?;
    // Keys have no dots: the name is the key's up to the first one.
    let temporary = path.with_added_extension("tmp");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(failed("write", path))
}

/// `None` if it is not there, or is not what it should be: then it is renewed.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, CacheError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(failed("read", path)(source)),
    }
}

pub(crate) fn names(folder: &Path) -> Result<BTreeSet<String>, CacheError> {
    let list =
        || std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect();
    let listed: io::Result<BTreeSet<String>> = list();
    listed.map_err(failed("list", folder))
}

pub(crate) fn remove_if_there(path: &Path) -> Result<(), CacheError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

pub(crate) fn failed<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> CacheError + 'a {
    move |source| CacheError::Io { action, path: path.to_owned(), source }
}
