//! The records beside the files of the cache.

use serde::{Deserialize, Serialize};

use crate::image::Reference;
use crate::pull::Digest;
use crate::qcow2::Format;

/// What a file is. It is read in place of the file's own bytes ever after.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// The reference that it was first pulled by.
    pub(super) reference: Reference,
    pub(super) manifest: Digest,
    /// The wanted path; none for the only disk.
    pub(super) path: Option<String>,
    pub(super) format: Format,
    pub(super) virtual_size: u64,
    pub(super) bytes: u64,
}

/// What a reference led to.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Remembered {
    pub(super) reference: Reference,
    pub(super) manifest: Digest,
}
