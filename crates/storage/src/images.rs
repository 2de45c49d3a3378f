//! Whole images, each unpacked once.
//!
//! ```text
//! images/KEY/root         what a container sees as `/`; never changed        KEY: digest of the manifest
//! images/KEY/image.json   what it is, locked while it is in use; its time of change is when it was last used
//! work/KEY                an image in the making, or what is removed; gone when the directory is opened next
//! locks/KEY               held while KEY is made or removed
//! references/HASH         which manifest a reference led to, for starting without the network
//! ```
//!
//! # Guarantees
//! - An image is complete and verified when it has its name.
//! - Any number of processes share a directory: one pulls, the others wait, and get the same image.
//! - An [`Image`] is not removed while it is held. A process that ends lets go of what it held.
//! - What could not be unpacked, for want of room or else, leaves nothing.
//!
//! # Assumptions
//! The directory is on a local file system that belongs to root, and only Orlop writes there. An image's name for
//! someone who may not pull it is no protection: see [`crate::cache`].

mod config;
mod store;
mod users;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::cache::lock::Lock;
use crate::cache::{CacheError, PullPolicy};
use crate::image::Reference;
use crate::pull::{self, Digest, Limits, Progress, PullError, Registries, RegistryError, UnpackError};

pub use config::Config;
use config::ConfigError;
use store::{Record, Store};
pub use users::{Account, UserError};

/// Why there is no such image.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// It is not there, and must not be pulled.
    #[error("{0} is not on this machine, and its pull policy is Never")]
    Absent(Reference),
    /// It could not be pulled.
    #[error(transparent)]
    Pull(PullError),
    /// There is no room for it.
    #[error("not enough disk space for {image}: it needs at least {needed} bytes, {free} are free")]
    NoSpace {
        image: String,
        /// What its layers have when they are packed: the least that is known.
        needed: u64,
        /// What is free.
        free: u64,
    },
    /// Its configuration cannot be used.
    #[error("configuration of {image}")]
    Config {
        image: String,
        /// What is wrong with it.
        source: ConfigError,
    },
    /// The directory or a file in it could not be used.
    #[error("{action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// A thread ended early.
    #[error("the work on an image was interrupted")]
    Interrupted,
}

/// What kind of thing went wrong, for whoever tells users.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Failure {
    /// It must not be pulled, and is not there.
    NeverPull,
    /// There is no such image.
    Missing,
    /// Its registry does not give it to this user.
    Unauthorized,
    /// Its registry cannot be reached, or is busy.
    Unreachable,
    /// It is not what its digest says, or is none.
    Corrupt,
    /// There is no room for it.
    NoSpace,
    /// This machine is at fault.
    Other,
}

impl ImagesError {
    /// What kind of thing went wrong.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            Self::Absent(_) => Failure::NeverPull,
            Self::NoSpace { .. } => Failure::NoSpace,
            Self::Config { .. } => Failure::Corrupt,
            Self::Io { .. } | Self::Interrupted => Failure::Other,
            Self::Pull(error) => match error {
                PullError::Registry { source: RegistryError::NotFound { .. }, .. } | PullError::LayoutTag { .. } => {
                    Failure::Missing
                }
                PullError::Registry { source: RegistryError::Denied { .. }, .. } | PullError::Folder(_) => {
                    Failure::Unauthorized
                }
                PullError::Registry { .. } => Failure::Unreachable,
                PullError::Layout { source, .. } if source.kind() == io::ErrorKind::NotFound => Failure::Missing,
                PullError::Unpack { source: UnpackError::Write(_), .. }
                | PullError::Layout { .. }
                | PullError::Interrupted => Failure::Other,
                PullError::Manifest { .. }
                | PullError::Digest { .. }
                | PullError::Length { .. }
                | PullError::Unpack { .. }
                | PullError::Refused { .. }
                | PullError::Inspect { .. } => Failure::Corrupt,
            },
        }
    }

    /// Whether the same call can succeed later without anyone changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Pull(error) => error.is_retryable(),
            Self::Absent(_) | Self::Config { .. } => false,
            Self::NoSpace { .. } | Self::Io { .. } | Self::Interrupted => true,
        }
    }
}

impl From<CacheError> for ImagesError {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::Io { action, path, source } => Self::Io { action, path, source },
            CacheError::Pull(error) => Self::Pull(error),
            CacheError::Absent(reference) => Self::Absent(reference),
            CacheError::Interrupted => Self::Interrupted,
        }
    }
}

/// An unpacked image that stays as long as this value does.
#[derive(Debug)]
pub struct Image {
    record: Record,
    id: String,
    digest: String,
    root: PathBuf,
    _lock: File,
}

impl Image {
    /// The digest of its configuration, `sha256:` and 64 digits: what the CRI calls the image's ID.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The digest of its manifest.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// What a container sees as `/`. It must not be written to, and paths in it not be followed: links in it may
    /// lead anywhere.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How it wants to be run.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.record.config
    }

    /// The bytes of its files.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.record.bytes
    }

    /// Who a text such as `nginx`, `1000:1000` or `app:staff` means in this image; root if it is empty.
    ///
    /// # Errors
    /// When the image does not know such a user or group.
    pub fn account(&self, user: &str) -> Result<Account, UserError> {
        users::find(&self.root, user)
    }
}

/// A directory of unpacked images.
#[derive(Clone, Debug)]
pub struct Images {
    store: Store,
    limits: Limits,
}

impl Images {
    /// Opens a directory, creates it if need be, and removes what interrupted pulls have left.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn open(folder: &Path, limits: Limits) -> Result<Self, ImagesError> {
        let store = Store::create(folder)?;
        store.remove_leftovers()?;
        Ok(Self { store, limits })
    }

    /// Pulls or finds an image and unpacks it once.
    ///
    /// # Errors
    /// When it is not there and cannot be pulled or unpacked, or must not be.
    pub async fn image(
        &self,
        reference: &Reference,
        policy: PullPolicy,
        registries: &Registries,
        progress: &dyn Progress,
    ) -> Result<Image, ImagesError> {
        let is_local = matches!(reference, Reference::Layout { .. });
        let may_skip_the_source = match policy {
            PullPolicy::Never => true,
            PullPolicy::IfNotPresent => !is_local,
            PullPolicy::Always => false,
        };
        if may_skip_the_source && let Some(image) = self.remembered(reference).await? {
            return Ok(image);
        }
        if policy == PullPolicy::Never {
            return Err(ImagesError::Absent(reference.clone()));
        }
        let source = pull::open(reference, registries).await.map_err(ImagesError::Pull)?;
        let image = match self.find(source.digest()).await? {
            Some(image) => image,
            None => self.pull(&source, reference, progress).await?,
        };
        let (store, reference, manifest) = (self.store.clone(), reference.clone(), source.digest());
        blocking(move || store.remember(&reference, manifest)).await?;
        Ok(image)
    }

    /// Removes images that nobody holds and whose IDs are not in `keep`, those that were not used for the longest
    /// time first, until so many bytes are free on the disk. Says which IDs are gone.
    ///
    /// # Errors
    /// When the directory cannot be read, or an image not be removed.
    pub fn collect(&self, keep: &BTreeSet<String>, bytes: u64) -> Result<Vec<String>, ImagesError> {
        self.store.collect(keep, bytes)
    }

    /// What the reference led to last time, if that is still there.
    async fn remembered(&self, reference: &Reference) -> Result<Option<Image>, ImagesError> {
        let (store, reference) = (self.store.clone(), reference.clone());
        match blocking(move || store.recall(&reference)).await? {
            Some(manifest) => self.find(manifest).await,
            None => Ok(None),
        }
    }

    async fn find(&self, manifest: Digest) -> Result<Option<Image>, ImagesError> {
        let store = self.store.clone();
        blocking(move || store.find(manifest)).await
    }

    /// Pulls an image, or waits for the one who does.
    async fn pull(
        &self,
        source: &pull::Image,
        reference: &Reference,
        progress: &dyn Progress,
    ) -> Result<Image, ImagesError> {
        let manifest = source.digest();
        // Held until the shared lock on the image is: in between, a collector could take it for unused.
        let lock = Lock::wait(self.store.lock_path(manifest)).await?;
        if let Some(image) = self.find(manifest).await? {
            return Ok(image);
        }
        let no_space =
            |free| ImagesError::NoSpace { image: reference.to_string(), needed: source.stored_bytes(), free };
        let free = self.store.free()?;
        if free < source.stored_bytes() {
            return Err(no_space(free));
        }
        let (id, config) = source.config().await.map_err(ImagesError::Pull)?;
        let config =
            Config::parse(&config).map_err(|source| ImagesError::Config { image: reference.to_string(), source })?;
        let temporary = self.store.temporary(manifest)?;
        let (root, work) = (temporary.root(), temporary.trash());
        // The thread that unpacks holds both, so that nobody else begins while it is at work.
        let (alive, gone) = oneshot::channel::<()>();
        let hold = Arc::new((Arc::clone(&temporary), lock, alive));
        let bytes = match source.unpack(&self.limits, &root, &work, Arc::clone(&hold), progress).await {
            Ok(bytes) => bytes,
            Err(error) => {
                drop((temporary, hold));
                // The thread may be a moment behind. When it has ended, what it wrote is gone too.
                let _ = gone.await;
                let free = || self.store.free().unwrap_or_default();
                return Err(if is_full(&error) { no_space(free()) } else { ImagesError::Pull(error) });
            }
        };
        let record = Record { reference: reference.clone(), id, manifest, config, bytes };
        let store = self.store.clone();
        blocking(move || {
            store.publish(&temporary, &record)?;
            let found = store.find(manifest)?;
            drop(hold);
            found.ok_or(ImagesError::Interrupted)
        })
        .await
    }
}

/// Whether the disk was full, or the part of it that is given to this user.
fn is_full(error: &PullError) -> bool {
    let PullError::Unpack { source: UnpackError::Write(source), .. } = error else { return false };
    matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// File work in a thread of its own: a slow disk must not hold up other tasks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImagesError> + Send + 'static,
) -> Result<T, ImagesError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| ImagesError::Interrupted)?
}
