//! Guest models that were stored by a launcher, on an instance or on a VM.

mod sane;

use super::{Guest, VERSION};

/// The oldest version of the model that this release reads.
pub const OLDEST: u32 = 1;

/// Why a text is not a model that this release can go on from.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// It is something else.
    #[error("it is not a valid guest model")]
    Unreadable(#[from] serde_json::Error),
    /// It was written by a newer release, or by one that is too old.
    #[error("its version is {0}; this release reads {OLDEST} to {VERSION}")]
    Version(u32),
    /// It names something that no guest of ours has.
    #[error("the {field} {value:?} is not valid for a guest")]
    Value { field: &'static str, value: String },
}

impl Guest {
    /// Reads a model that was kept. It may come from an object that people can write to: it says nothing that our own builder
    /// could not have said.
    ///
    /// # Errors
    /// When this release cannot go on from it.
    pub fn from_stored(text: &[u8]) -> Result<Self, StoredError> {
        #[derive(serde::Deserialize)]
        struct Versioned {
            version: u32,
        }
        // The version first: what else there is depends on it.
        let Versioned { version } = serde_json::from_slice(text)?;
        if !(OLDEST..=VERSION).contains(&version) {
            return Err(StoredError::Version(version));
        }
        let guest: Self = serde_json::from_slice(text)?;
        sane::check(&guest)?;
        Ok(guest)
    }

    /// A short name of everything that the guest is given: two models with the same one are the same. What its CPU was found to be
    /// is compared by itself, and releases that do not know it have the same name for the rest.
    ///
    /// # Errors
    /// Never in practice: every part of a model has a text.
    pub fn digest(&self) -> Result<String, serde_json::Error> {
        use sha2::Digest as _;
        let mut given = self.clone();
        given.cpu.found = None;
        let digest = sha2::Sha256::digest(given.to_stored()?.as_bytes());
        Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The text that is kept.
    ///
    /// # Errors
    /// Never in practice: every part of a model has a text.
    pub fn to_stored(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }
}
