//! Serves what a VirtualMachineExport exports, from inside a pod that has the claims mounted; and leads clients of the API server to
//! such a pod.
//!
//! ```text
//! client ── HTTPS, token ──> server ──> routes ──┬─> image: disk.img with ranges, disk.img.gz
//!              ^                                 ├─> tree: dir/, disk.tar.gz
//!              │                                 └─> manifests: the VM, the token as a secret
//! client ── API server ── proxy (TLS, checked) ──┘
//! ```
//!
//! - Reads: claims that are mounted read-only, and the files of its secrets.
//! - Owns: nothing.
//! - Emits: bytes.
//!
//! # Guarantees
//! - Without the token nobody learns anything but that a server is there. The token is compared in a time that does not depend on it.
//! - No link is followed, inside the volume or out of it.
//! - Memory does not depend on the size of a volume, nor on how slowly a client reads.
//! - An answer that could not be sent whole is broken off, so that no client takes it for the whole.
//! - Nobody is served after the deadline.
//!
//! Absent on purpose: Kubernetes; who asks for a server passes plain values.

mod answer;
mod below;
mod image;
mod manifests;
pub mod proxy;
mod range;
mod routes;
mod server;
mod token;
mod tree;

use std::path::PathBuf;

pub use server::{Listening, ServerError};

/// The header, and the parameter of a query, that the token comes in.
pub const TOKEN: &str = "x-kubevirt-export-token";

/// What is served, and to whom.
#[derive(Clone, Debug)]
pub struct Export {
    /// The export's name, which manifests name.
    pub name: String,
    /// What is exported.
    pub volumes: Vec<Volume>,
    /// The file with the token. It is read for each request: a secret may be changed.
    pub token: PathBuf,
    /// The file with the manifests, if there are some: lists of objects under `internal` and `external`.
    pub manifests: Option<PathBuf>,
}

/// One volume.
#[derive(Clone, Debug)]
pub struct Volume {
    /// As it is called in addresses.
    pub name: String,
    /// Its directory or block device.
    pub path: PathBuf,
    /// What it holds.
    pub content: Content,
}

/// What a volume holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The disk of a VM: a block device, or the file `disk.img`.
    Disk,
    Files,
}
