//! Pulled files, each kept once.
//!
//! ```text
//! files/KEY         the file, 0444        KEY: digest of the manifest and the wanted path
//! files/KEY.json    what it is; its time of change is when it was last used
//! files/KEY.tmp     a pull under way, removed when the cache is opened if nobody holds the lock
//! locks/KEY         held while KEY is pulled or removed
//! references/HASH   which manifest a reference led to, for starting without the network
//! ```
//!
//! # Guarantees
//! - A file is complete and verified when it has its name, also after a power cut, and is never changed after that.
//! - Any number of processes share a directory: one pulls, the others wait, and get the same file.
//! - A [`CachedFile`] is not removed while it is held. A process that ends lets go of what it held; whoever uses the
//!   file on must hold it too, by a [`CachedFile`] of its own or by a copy of [`CachedFile::lock`].
//!
//! # Assumptions
//! The directory is on a local file system, and only Orlop writes there. Who may start a VM with an image that is in the
//! cache already is not asked again: with a policy other than [`PullPolicy::Always`] no registry checks credentials.

pub(crate) mod folder;
pub(crate) mod lock;
mod record;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::image::Reference;
use crate::pull::{self, Digest, Image, Limits, Progress, PullError, Registries, Wanted};
use crate::qcow2::Format;

use folder::{Folder, Key};
use lock::Lock;
use record::Record;

/// When to ask the registry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PullPolicy {
    /// Each time, for what the tag means now; content that is there is not pulled again.
    Always,
    /// When the reference was never pulled, or its file is gone. An OCI layout is asked each time: it costs nothing.
    IfNotPresent,
    Never,
}

/// Why there is no such file.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It could not be pulled.
    #[error(transparent)]
    Pull(#[from] PullError),
    /// It is not there, and must not be pulled.
    #[error("{0} is not in the cache, and its pull policy is Never")]
    Absent(Reference),
    /// The directory or a file in it could not be used.
    #[error("{action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// A thread ended early.
    #[error("the work on the cache was interrupted")]
    Interrupted,
}

impl CacheError {
    /// Whether the same call can succeed later without anyone changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Pull(error) => error.is_retryable(),
            Self::Absent(_) => false,
            Self::Io { .. } | Self::Interrupted => true,
        }
    }
}

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// How many files.
    pub files: u64,
    /// How many bytes they take on the disk; holes take none.
    pub bytes: u64,
}

/// A file that stays as long as this value does.
#[derive(Debug)]
pub struct CachedFile {
    path: PathBuf,
    record: Record,
    file: File,
}

impl CachedFile {
    /// Where it is. It must be opened for reading only.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How to read it.
    #[must_use]
    pub fn format(&self) -> Format {
        self.record.format
    }

    /// The size of the disk that a guest sees.
    #[must_use]
    pub fn virtual_size(&self) -> u64 {
        self.record.virtual_size
    }

    /// The digest of the manifest that it came from.
    #[must_use]
    pub fn manifest(&self) -> Digest {
        self.record.manifest
    }

    /// The open file whose shared lock keeps it; to be handed to a process that outlives this one.
    #[must_use]
    pub fn lock(&self) -> &File {
        &self.file
    }
}

/// A directory of pulled files.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: Folder,
    limits: Limits,
}

impl Cache {
    /// Opens a directory, creates it if need be, and removes what interrupted pulls have left.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, CacheError> {
        let folder = Folder::create(path)?;
        folder.remove_leftovers()?;
        Ok(Self { folder, limits })
    }

    /// The disk in an image: the one at `path`, or else the only file below `/disk/`.
    ///
    /// # Errors
    /// When it is not there and cannot be pulled, or must not be.
    pub async fn disk(
        &self,
        reference: &Reference,
        path: Option<&str>,
        policy: PullPolicy,
        registries: &Registries,
        progress: &dyn Progress,
    ) -> Result<CachedFile, CacheError> {
        self.get(reference, Wanted::Disk(path.map(str::to_owned)), policy, registries, progress).await
    }

    /// Any file in an image, such as a kernel.
    ///
    /// # Errors
    /// When it is not there and cannot be pulled, or must not be.
    pub async fn file(
        &self,
        reference: &Reference,
        path: &str,
        policy: PullPolicy,
        registries: &Registries,
        progress: &dyn Progress,
    ) -> Result<CachedFile, CacheError> {
        self.get(reference, Wanted::File(path.to_owned()), policy, registries, progress).await
    }

    /// How much is kept now.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn usage(&self) -> Result<Usage, CacheError> {
        self.folder.usage()
    }

    /// Removes the files that were not used for the longest time, until at most `keep_bytes` are left or all others
    /// are in use. Says what was removed.
    ///
    /// # Errors
    /// When the directory cannot be read, or a file not be removed.
    pub fn clean(&self, keep_bytes: u64) -> Result<Usage, CacheError> {
        self.folder.clean(keep_bytes)
    }

    async fn get(
        &self,
        reference: &Reference,
        wanted: Wanted,
        policy: PullPolicy,
        registries: &Registries,
        progress: &dyn Progress,
    ) -> Result<CachedFile, CacheError> {
        let is_local = matches!(reference, Reference::Layout { .. });
        let may_skip_the_source = match policy {
            PullPolicy::Never => true,
            PullPolicy::IfNotPresent => !is_local,
            PullPolicy::Always => false,
        };
        if may_skip_the_source && let Some(file) = self.remembered(reference, &wanted).await? {
            return Ok(file);
        }
        if policy == PullPolicy::Never {
            return Err(CacheError::Absent(reference.clone()));
        }
        // A hundred VMs that start at once with one image must ask for its manifest once: registries count.
        let turn = if may_skip_the_source {
            let turn = Lock::wait(self.folder.reference_lock(reference)).await?;
            if let Some(file) = self.remembered(reference, &wanted).await? {
                return Ok(file);
            }
            Some(turn)
        } else {
            None
        };
        let image = pull::open(reference, registries).await?;
        let key = Key::new(image.digest(), &wanted);
        let file = match self.find(&key).await? {
            Some(file) => file,
            None => self.pull(&key, &image, reference, &wanted, progress).await?,
        };
        let (folder, reference) = (self.folder.clone(), reference.clone());
        blocking(move || folder.remember(&reference, image.digest())).await?;
        turn.map_or(Ok(()), Lock::remove)?;
        Ok(file)
    }

    /// What the reference led to last time, if that is still there.
    async fn remembered(&self, reference: &Reference, wanted: &Wanted) -> Result<Option<CachedFile>, CacheError> {
        let (folder, reference) = (self.folder.clone(), reference.clone());
        match blocking(move || folder.recall(&reference)).await? {
            Some(digest) => self.find(&Key::new(digest, wanted)).await,
            None => Ok(None),
        }
    }

    async fn find(&self, key: &Key) -> Result<Option<CachedFile>, CacheError> {
        let (folder, key) = (self.folder.clone(), key.clone());
        blocking(move || folder.find(&key)).await
    }

    /// Pulls a file, or waits for the one who does.
    async fn pull(
        &self,
        key: &Key,
        image: &Image,
        reference: &Reference,
        wanted: &Wanted,
        progress: &dyn Progress,
    ) -> Result<CachedFile, CacheError> {
        // Held until the shared lock on the file is: in between, a cleaner could take it for unused.
        let lock = Lock::wait(self.folder.lock_path(key)).await?;
        if let Some(file) = self.find(key).await? {
            return Ok(file);
        }
        let temporary = self.folder.temporary(key)?;
        let pulled = image.fetch(wanted, &self.limits, temporary.file(), progress).await?;
        let record = Record {
            reference: reference.clone(),
            manifest: image.digest(),
            path: match wanted {
                Wanted::Disk(path) => path.clone(),
                Wanted::File(path) => Some(path.clone()),
            },
            format: pulled.format,
            virtual_size: pulled.virtual_size,
            bytes: pulled.bytes,
        };
        let (folder, key) = (self.folder.clone(), key.clone());
        blocking(move || {
            folder.publish(&key, &temporary, &record)?;
            // Its name is the published one by now; the old name must be free before the lock is.
            drop(temporary);
            let found = folder.find(&key)?;
            drop(lock);
            found.ok_or(CacheError::Interrupted)
        })
        .await
    }
}

/// File work in a thread of its own: a slow disk must not hold up other tasks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CacheError> + Send + 'static,
) -> Result<T, CacheError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| CacheError::Interrupted)?
}
