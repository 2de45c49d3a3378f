//! Moving a guest to another launcher, its memory and the disks that only this node has.
//!
//! ```text
//! source's QEMU ──> launcher (lanes) ──> virt-handler ==mutual TLS==> virt-handler ──> target's QEMU
//! ```
//! - [`source`]: sends, and follows QEMU until it has decided.
//! - [`target`]: listens, and serves disks to be filled.
//! - [`lanes`]: the bytes on their way out of the source.
//! - [`mirror`]: disks that are copied beside the memory.
//! - [`pace`]: when a migration that does not end is helped, or given up.
//!
//! Where the guest goes on is not decided here but by the two launchers' grants; see [`crate::lifecycle`].

pub mod lanes;
pub mod mirror;
pub mod pace;
pub mod source;
pub mod target;
