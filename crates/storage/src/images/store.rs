//! The files of unpacked images. Everything here may block.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Config, Image, ImagesError};
use crate::cache::folder::{name_of, names, read_json, remove_if_there, touch, write_json};
use crate::cache::lock::{Lock, has_name};
use crate::image::Reference;
use crate::pull::{self, Digest};

/// What an image is.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// The reference that it was first pulled by.
    pub(super) reference: Reference,
    pub(super) id: Digest,
    pub(super) manifest: Digest,
    pub(super) config: Config,
    pub(super) bytes: u64,
}

/// What a reference led to.
#[derive(Debug, Deserialize, Serialize)]
struct Remembered {
    reference: Reference,
    manifest: Digest,
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    images: PathBuf,
    work: PathBuf,
    locks: PathBuf,
    references: PathBuf,
}

/// An image in the making; what was not published is removed with it.
#[derive(Debug)]
pub(super) struct Temporary(PathBuf);

impl Temporary {
    pub(super) fn root(&self) -> PathBuf {
        self.0.join("image").join("root")
    }

    pub(super) fn trash(&self) -> PathBuf {
        self.0.join("trash")
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed now is when the directory is opened next.
        let _ = remove_tree(&self.0);
    }
}

impl Store {
    pub(super) fn create(folder: &Path) -> Result<Self, ImagesError> {
        let make = |name: &str| {
            let path = folder.join(name);
            create(&path).map(|()| path)
        };
        Ok(Self {
            images: make("images")?,
            work: make("work")?,
            locks: make("locks")?,
            references: make("references")?,
        })
    }

    pub(super) fn lock_path(&self, manifest: Digest) -> PathBuf {
        self.locks.join(manifest.hex())
    }

    /// Bytes that can still be written.
    pub(super) fn free(&self) -> Result<u64, ImagesError> {
        let found = rustix::fs::statvfs(&self.images).map_err(|error| failed("look at", &self.images)(error.into()))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Empty directories for an image. The caller holds the image's lock.
    pub(super) fn temporary(&self, manifest: Digest) -> Result<Arc<Temporary>, ImagesError> {
        let path = self.work.join(manifest.hex());
        remove_tree(&path).map_err(failed("remove", &path))?;
        let temporary = Temporary(path);
        create(&temporary.root())?;
        create(&temporary.trash())?;
        // Whoever the image's own root entry does not say otherwise for must be able to enter it.
        let root = temporary.root();
        std::fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .map_err(failed("set the mode of", &root))?;
        Ok(Arc::new(temporary))
    }

    /// Gives an image its name: what it is, and its content, at once. The caller holds the image's lock.
    pub(super) fn publish(&self, temporary: &Temporary, record: &Record) -> Result<(), ImagesError> {
        let folder = temporary.0.join("image");
        write_json(&folder.join("image.json"), record)?;
        // All of its files before its name, so that a power cut does not leave a name without them.
        let opened = File::open(&folder).map_err(failed("open", &folder))?;
        rustix::fs::syncfs(&opened).map_err(|error| failed("write", &folder)(error.into()))?;
        let path = self.folder(record.manifest);
        // One that was found broken gives way.
        self.remove(record.manifest)?;
        std::fs::rename(&folder, &path).map_err(failed("rename", &path))
    }

    /// The image, held. One whose record is broken counts as absent.
    pub(super) fn find(&self, manifest: Digest) -> Result<Option<Image>, ImagesError> {
        let folder = self.folder(manifest);
        let path = folder.join("image.json");
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed("open", &path))?,
        };
        // Only a collector holds an exclusive lock, and not for long.
        file.lock_shared().map_err(failed("lock", &path))?;
        if !has_name(&file).map_err(failed("open", &path))? {
            return Ok(None);
        }
        let Some(record) = read_json::<Record>(&path)?.filter(|it| it.manifest == manifest) else { return Ok(None) };
        touch(&path);
        Ok(Some(Image {
            id: record.id.to_string(),
            digest: manifest.to_string(),
            root: folder.join("root"),
            record,
            _lock: file,
        }))
    }

    pub(super) fn remember(&self, reference: &Reference, manifest: Digest) -> Result<(), ImagesError> {
        if self.recall(reference)? == Some(manifest) {
            return Ok(());
        }
        let _lock = Lock::block(&self.locks.join("references"))?;
        let remembered = Remembered { reference: reference.clone(), manifest };
        Ok(write_json(&self.references.join(name_of(reference)), &remembered)?)
    }

    pub(super) fn recall(&self, reference: &Reference) -> Result<Option<Digest>, ImagesError> {
        let remembered = read_json::<Remembered>(&self.references.join(name_of(reference)))?;
        Ok(remembered.filter(|it| it.reference == *reference).map(|it| it.manifest))
    }

    /// Images in the making that nobody is at any more, and what was removed in part.
    pub(super) fn remove_leftovers(&self) -> Result<(), ImagesError> {
        for name in names(&self.work)? {
            // Keys have no dots: what is removed has the key's name up to the first one.
            let key = name.split('.').next().unwrap_or_default();
            if let Some(_lock) = Lock::attempt(&self.locks.join(key))? {
                let path = self.work.join(&name);
                remove_tree(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(())
    }

    pub(super) fn collect(&self, keep: &BTreeSet<String>, bytes: u64) -> Result<Vec<String>, ImagesError> {
        let mut candidates = Vec::new();
        for name in names(&self.images)? {
            let path = self.images.join(name).join("image.json");
            // Another process may be collecting.
            let Some(record) = read_json::<Record>(&path)? else { continue };
            let used = std::fs::metadata(&path).map(|it| (it.mtime(), it.mtime_nsec())).unwrap_or_default();
            if !keep.contains(&record.id.to_string()) {
                candidates.push((used, record));
            }
        }
        candidates.sort_by_key(|(used, record)| (*used, record.manifest));
        let mut removed = Vec::new();
        for (_, record) in candidates {
            if self.free()? >= bytes {
                break;
            }
            if self.remove_unused(record.manifest)? {
                removed.push(record.id.to_string());
            }
        }
        if !removed.is_empty() {
            self.forget()?;
        }
        Ok(removed)
    }

    /// Whether nobody used it, and it is gone.
    fn remove_unused(&self, manifest: Digest) -> Result<bool, ImagesError> {
        let Some(lock) = Lock::attempt(&self.lock_path(manifest))? else { return Ok(false) };
        let path = self.folder(manifest).join("image.json");
        let file = match File::open(&path) {
            // Another collector was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(failed("open", &path))?,
        };
        if file.try_lock().is_err() {
            return Ok(false);
        }
        self.remove(manifest)?;
        lock.remove()?;
        Ok(true)
    }

    /// The record first: content without a record is nothing, a record without content would be used.
    fn remove(&self, manifest: Digest) -> Result<(), ImagesError> {
        let folder = self.folder(manifest);
        remove_if_there(&folder.join("image.json"))?;
        let gone = self.work.join(format!("{}.gone", manifest.hex()));
        remove_tree(&gone).map_err(failed("remove", &gone))?;
        match std::fs::rename(&folder, &gone) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            renamed => renamed.and_then(|()| remove_tree(&gone)).map_err(failed("remove", &folder)),
        }
    }

    /// Drops what is remembered of images that are gone, so that this directory does not grow for ever.
    fn forget(&self) -> Result<(), ImagesError> {
        let _lock = Lock::block(&self.locks.join("references"))?;
        for name in names(&self.references)? {
            let path = self.references.join(name);
            let remembered = read_json::<Remembered>(&path)?;
            if !remembered.is_some_and(|it| self.folder(it.manifest).join("image.json").exists()) {
                remove_if_there(&path)?;
            }
        }
        Ok(())
    }

    fn folder(&self, manifest: Digest) -> PathBuf {
        self.images.join(manifest.hex())
    }
}

fn create(path: &Path) -> Result<(), ImagesError> {
    // Programs with other users' rights are in there: only root may enter.
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create", path))
}

/// However deep an image is. What is removed is taken apart in a directory beside it.
fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    if !path.try_exists()? {
        return Ok(());
    }
    let trash = path.with_added_extension("removed");
    DirBuilder::new().recursive(true).mode(0o700).create(&trash)?;
    let open = |path: &Path| File::open(path).map(OwnedFd::from);
    pull::remove(&open(parent)?, name.as_encoded_bytes(), &open(&trash)?)?;
    std::fs::remove_dir_all(&trash)
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> ImagesError + 'a {
    move |source| ImagesError::Io { action, path: path.to_owned(), source }
}
