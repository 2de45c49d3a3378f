//! Disks: where their bytes come from, and which files stand behind a virtual machine.
//!
//! ```text
//!  registry, OCI layout ── pull ──> cache ──> CachedFile (read-only) ── qcow2::create_overlay ──> the VM's disk
//!                          digests            one copy per image
//!
//!                       └──> images ──> Image: an unpacked root and its configuration
//!
//!  user data, Secret, ConfigMap ── cloud_init ── iso ──> a small CD image, 0600
//!  PVC, hostDisk, emptyDisk ────── disk ───────────────> a raw file or a block device
//! ```
//!
//! - Reads: registries over HTTPS, OCI layout directories, files and block devices that the caller names.
//! - Owns: the directories of the [`cache`] and of [`images`], and the files that the caller asked it to create.
//! - Emits: [`pull::Progress`].
//!
//! # Guarantees
//! - Nothing that was pulled becomes visible before the digest of every blob it came from has matched.
//! - The format of a disk is written down when the disk is created or pulled. It is never guessed from bytes that a
//!   guest can write: a guest could otherwise turn its raw disk into a qcow2 whose backing file is the host's.
//! - Everything that is read from an image is bounded by [`pull::Limits`].
//!
//! Deliberately absent: QEMU (not one of its programs is run), Kubernetes (callers pass plain values), compression
//! of disks, and mounts.

pub mod cache;
pub mod cloud_init;
pub mod disk;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod image;
pub mod images;
pub mod iso;
pub mod mounted;
pub mod pull;
pub mod qcow2;
pub mod volumes;
