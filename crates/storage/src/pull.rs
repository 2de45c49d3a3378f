//! Pulls an image and extracts one file.
//!
//! ```text
//! Reference ── open ──> Image: manifest, digest checked
//!                         │ layers, the topmost first
//!                         ▼
//!     registry or layout ── bytes ──> hash and count ──> unpack: gzip, zstd, tar ──> the wanted file
//! ```
//!
//! # Guarantees
//! - [`Image::fetch`] succeeds only if every blob it read had the length and the digest that the manifest names, and
//!   the manifest the digest that the reference names, if it names one. Until then the target is the caller's secret:
//!   it is for the caller to make it visible afterwards, as [`crate::cache`] does.
//! - An image is hostile until proven otherwise. For a disk it is not unpacked: names in it are compared, not
//!   followed. [`Image::unpack`] follows them within the directory it is given, and never out of it.
//! - Memory stays small whatever the image: layers are streamed, and everything else is bounded.

mod digest;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod layer;
mod layout;
mod manifest;
mod pace;
mod registries;
mod registry;
mod tar;
mod transfer;
mod tree;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::image::{Reference, Version};
use crate::qcow2::{self, Format};

pub(crate) use tree::remove;

pub use digest::{Digest, DigestError};
pub use error::PullError;
pub use layer::UnpackError;
pub use manifest::ManifestError;
pub use pace::Pace;
pub use registries::{Credentials, Registries, RegistriesError};
pub use registry::RegistryError;

use layer::Search;
use layout::Layout;
use manifest::{Descriptor, Manifest, Parsed};
use registry::Session;
use transfer::{Blob, Target};
use tree::Tree;

/// How much an image may cost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// The most bytes of the one file that is kept.
    pub max_disk_bytes: u64,
    /// The most bytes of all layers after decompression. What is not kept is skipped, but skipping takes time too.
    pub max_unpacked_bytes: u64,
    /// The largest disk that a qcow2 image may show to a guest; it is sparse and costs little until it is written.
    pub max_virtual_size: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_disk_bytes: 128 << 30, max_unpacked_bytes: 256 << 30, max_virtual_size: 16 << 40 }
    }
}

/// Which file of an image.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Wanted {
    /// The disk at this path, or else the only file below `/disk/`.
    Disk(Option<String>),
    /// Any file, such as a kernel; its content is not looked at.
    File(String),
}

/// Watches a pull, for whoever draws it.
pub trait Progress: Send + Sync {
    /// So many bytes of all layers are done. Called often, from the task that pulls: it must not block.
    fn update(&self, image: &Reference, done: u64, total: u64);
}

/// Nobody watches.
impl Progress for () {
    fn update(&self, _image: &Reference, _done: u64, _total: u64) {}
}

/// What a pull brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pulled {
    /// How to read it. Told from its first bytes here and only here, before any guest could write them.
    pub format: Format,
    /// The size of the disk that a guest sees.
    pub virtual_size: u64,
    /// The length of the file.
    pub bytes: u64,
}

/// An image whose manifest is known.
pub struct Image {
    reference: Reference,
    digest: Digest,
    manifest: Manifest,
    source: Source,
}

/// Where blobs come from.
enum Source {
    /// Mirrors first, the registry itself last.
    Registry(Vec<Session>),
    Layout(Layout),
}

/// Asks for an image's manifest; for an image of several platforms, the one of Linux on this machine's architecture.
///
/// # Errors
/// When the image cannot be found, or its manifest cannot be used.
pub async fn open(reference: &Reference, registries: &Registries) -> Result<Image, PullError> {
    let (source, bytes, expected) = match reference {
        Reference::Registry { host, repository, version } => {
            let sessions = registry::sessions(host, repository, registries)
                .map_err(|source| PullError::Registry { image: reference.to_string(), source })?;
            let (name, expected) = match version {
                Version::Tag(tag) => (tag.clone(), None),
                Version::Digest(digest) => (digest.to_string(), Some(*digest)),
            };
            let bytes = registry::manifest(&sessions, reference, &name).await?;
            (Source::Registry(sessions), bytes, expected)
        }
        Reference::Layout { path, .. } if !registries.may_be(path) => {
            return Err(PullError::Folder(reference.to_string()));
        }
        Reference::Layout { path, tag } => {
            let layout = Layout::new(path.clone());
            let digest = layout.find(reference, tag.as_deref()).await?;
            let bytes = layout.manifest(digest).await?;
            (Source::Layout(layout), bytes, Some(digest))
        }
    };
    let mut digest = verified(&bytes, expected)?;
    let refused = |source| PullError::Manifest { image: reference.to_string(), source };
    let manifest = match manifest::parse(&bytes).map_err(refused)? {
        Parsed::Image(manifest) => manifest,
        Parsed::Index(index) => {
            let chosen = index.for_this_machine().map_err(refused)?;
            let bytes = match &source {
                Source::Registry(sessions) => registry::manifest(sessions, reference, &chosen.to_string()).await?,
                Source::Layout(layout) => layout.manifest(chosen).await?,
            };
            digest = verified(&bytes, Some(chosen))?;
            match manifest::parse(&bytes).map_err(refused)? {
                Parsed::Image(manifest) => manifest,
                Parsed::Index(_) => return Err(refused(ManifestError::Nested)),
            }
        }
    };
    Ok(Image { reference: reference.clone(), digest, manifest, source })
}

fn verified(bytes: &[u8], expected: Option<Digest>) -> Result<Digest, PullError> {
    let found = Digest::of(bytes);
    match expected {
        Some(expected) if expected != found => Err(PullError::Digest { expected, found }),
        _ => Ok(found),
    }
}

impl Image {
    /// The digest of the manifest for this machine's platform. It names the content of every file in the image.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Writes the wanted file to `target`, which must be empty and known to nobody else yet.
    ///
    /// Runs of zeros become holes.
    ///
    /// # Errors
    /// When the image lacks the file, is hostile, or does not arrive whole. What `target` holds then is of no use.
    pub async fn fetch(
        &self,
        wanted: &Wanted,
        limits: &Limits,
        target: &File,
        progress: &dyn Progress,
    ) -> Result<Pulled, PullError> {
        let unpack = |source| PullError::Unpack { image: self.reference.to_string(), source };
        let failed = |source| unpack(UnpackError::Write(source));
        let target_of_search = target.try_clone().map_err(failed)?;
        let mut search = Search::new(wanted, limits, target_of_search).map_err(unpack)?;
        let total = self.stored_bytes();
        let mut done = 0;
        // The topmost first: what is found there is what counts, and lower layers need not even be asked for.
        for layer in self.manifest.layers.iter().rev() {
            search = self.layer(layer, search, done, progress).await?;
            done += layer.size;
            if search.is_over() {
                break;
            }
        }
        let bytes = search.finish().map_err(unpack)?;
        progress.update(&self.reference, total, total);
        match wanted {
            Wanted::Disk(_) => self.inspect(target, bytes, limits),
            Wanted::File(_) => Ok(Pulled { format: Format::Raw, virtual_size: bytes, bytes }),
        }
    }

    /// The bytes of all layers, as they are stored.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.manifest.layers.iter().map(|layer| layer.size).fold(0, u64::saturating_add)
    }

    /// The image's configuration, and its digest, which is the image's ID.
    ///
    /// # Errors
    /// When the image has none, or it does not arrive whole.
    pub async fn config(&self) -> Result<(Digest, Vec<u8>), PullError> {
        let refused = |source| PullError::Manifest { image: self.reference.to_string(), source };
        let descriptor = self.manifest.config.as_ref().ok_or_else(|| refused(ManifestError::Config))?;
        let blob = self.blob(descriptor.digest).await?;
        let bytes = transfer::bytes(blob, descriptor, &self.reference).await?;
        Ok((descriptor.digest, bytes))
    }

    /// Unpacks all layers into a directory, which must be empty and known to nobody else yet, and says how many bytes
    /// its files have. `work` is another such directory beside it. What `hold` is stays as long as a thread may write
    /// there, which may be longer than the call if that is cancelled.
    ///
    /// # Errors
    /// When the image is hostile, does not arrive whole, or there is no room for it. The directory is of no use then.
    pub async fn unpack(
        &self,
        limits: &Limits,
        folder: &Path,
        work: &Path,
        hold: impl Send + 'static,
        progress: &dyn Progress,
    ) -> Result<u64, PullError> {
        let unpack = |source| PullError::Unpack { image: self.reference.to_string(), source };
        let mut tree = Tree::new(folder, work, limits, hold).map_err(unpack)?;
        let mut done = 0;
        // The lowest first: each changes what is there.
        for layer in &self.manifest.layers {
            tree = self.layer(layer, tree, done, progress).await?;
            done += layer.size;
        }
        Ok(tree.bytes())
    }

    async fn layer<T: Target>(
        &self,
        layer: &Descriptor,
        target: T,
        done: u64,
        progress: &dyn Progress,
    ) -> Result<T, PullError> {
        let total = self.stored_bytes();
        let blob = self.blob(layer.digest).await?;
        let report = |bytes: u64| progress.update(&self.reference, done + bytes, total);
        transfer::layer(blob, layer, target, &self.reference, &report).await
    }

    async fn blob(&self, digest: Digest) -> Result<Blob, PullError> {
        match &self.source {
            Source::Registry(sessions) => registry::blob(sessions, &self.reference, digest).await,
            Source::Layout(layout) => layout.blob(digest).await,
        }
    }

    /// A qcow2 that refers to other files would show the host's files to the guest.
    fn inspect(&self, target: &File, bytes: u64, limits: &Limits) -> Result<Pulled, PullError> {
        let info = match qcow2::inspect(target) {
            Ok(info) => info,
            Err(qcow2::Qcow2Error::Magic) => return Ok(Pulled { format: Format::Raw, virtual_size: bytes, bytes }),
            Err(source) => return Err(PullError::Inspect { image: self.reference.to_string(), source }),
        };
        match objection(&info, limits) {
            None => Ok(Pulled { format: Format::Qcow2, virtual_size: info.virtual_size, bytes }),
            Some(reason) => Err(PullError::Refused { image: self.reference.to_string(), reason }),
        }
    }
}

/// Bytes that may be compressed with gzip or zstd, as they were before. Their first bytes decide.
///
/// # Errors
/// When the first bytes cannot be read.
pub fn decompressed<'a>(stored: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    layer::decode::reader(stored)
}

/// Why a qcow2 image that somebody else made must not be opened, if so.
#[must_use]
pub fn objection(info: &qcow2::Info, limits: &Limits) -> Option<String> {
    if info.backing_file.is_some() {
        Some("it has a backing file".to_owned())
    } else if info.data_file {
        Some("its data is in another file".to_owned())
    } else if info.encrypted {
        Some("it is encrypted".to_owned())
    } else if info.corrupt {
        Some("it is marked as corrupt".to_owned())
    } else if info.virtual_size == 0 || info.virtual_size > limits.max_virtual_size {
        Some(format!("its virtual size is {} bytes; the limit is {}", info.virtual_size, limits.max_virtual_size))
    } else {
        None
    }
}
