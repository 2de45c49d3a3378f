//! Fills the disk of a claim. It runs in a pod of the claim's namespace, so that it reaches what a pod there reaches.
//!
//! ```text
//! http(s) ── download: ranges, checksum ──> decompress ──┬─ raw ──────────────────────────> draft ─┐
//!                                                        └─ qcow2 ──> scratch ── qemu-img ──> draft ─┼─> disk.img
//! registry ── storage::pull: digests ─────────────────────────────> scratch ── qemu-img ──> draft ─┘
//! ```
//!
//! - Reads: one file of a web server, or one image of a registry.
//! - Owns: the draft and the disk in the claim's directory, and what it puts into its scratch directory.
//! - Emits: [`Progress`].
//!
//! # Guarantees
//! - `disk.img` appears whole or not at all: it is written under another name, flushed, and renamed.
//! - Never is more written than the claim has room for, whatever a server or an image says of its size.
//! - A server is hostile until proven otherwise: what it sends has an end, it must keep a pace, and it can send nobody to the
//!   machine's own addresses ([`Reach`]). So is an image: only formats that are known are converted, none that refers to
//!   another file, and `qemu-img` runs with limits on its memory, time, files and output.
//!
//! Absent on purpose: Kubernetes; who asks for an import passes plain values.

mod checksum;
mod convert;
mod disk;
mod download;
mod error;
mod progress;
mod reach;
mod receive;
mod registry;
mod web;

use std::path::PathBuf;
use std::sync::Arc;

use storage::image::Reference;
use storage::pull::Registries;

pub use checksum::{Checksum, ChecksumError};
pub use error::ImportError;
pub use progress::Progress;
pub use reach::Reach;
pub use web::Web;

use disk::Draft;

/// Where the data comes from.
#[derive(Debug)]
pub enum Source {
    /// A file of a web server.
    Web(Web),
    /// A container disk in a registry.
    Registry {
        image: Reference,
        /// How the registry is reached.
        registries: Box<Registries>,
    },
}

/// What is to be done.
#[derive(Debug)]
pub struct Import {
    /// Where the data comes from.
    pub source: Source,
    /// The claim's directory.
    pub target: PathBuf,
    /// A directory for what cannot be converted while it arrives.
    pub scratch: PathBuf,
    /// How many bytes the disk has.
    pub size: u64,
    /// Whether the disk's blocks are allocated up front.
    pub preallocate: bool,
}

/// Imports, unless the disk is there already.
///
/// # Errors
/// When the data does not arrive, or is refused; [`ImportError::is_final`] says whether another attempt can help. The disk is not
/// there then.
pub async fn run(import: &Import, progress: &Arc<Progress>) -> Result<(), ImportError> {
    let Import { source, target, scratch, size, preallocate } = import;
    // A container that was killed after its last step is run once more.
    let Some(draft) = Draft::create(target, *size)? else { return Ok(()) };
    match source {
        Source::Web(web) => web::fetch(web, &draft, scratch, progress).await?,
        Source::Registry { image, registries } => {
            registry::fetch(image, registries, &draft, scratch, progress).await?;
        }
    }
    draft.publish(*preallocate)?;
    progress.finish();
    Ok(())
}
