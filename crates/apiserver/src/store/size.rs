//! How large the store is, and how large it may become.
//!
//! What counts is the JSON of the objects. Beyond its quota the store takes what makes it smaller, and from a small reserve
//! what keeps a cluster alive and lets objects go: leases, nodes, and objects that are being deleted.

use std::fmt;

use super::{Draft, Table, WriteError};

/// The reserve is this part of the quota, beyond it.
const RESERVE: u64 = 20;

/// How large a store is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// What its objects have, as JSON.
    pub bytes: u64,
    /// What they may have.
    pub quota: Option<u64>,
}

impl Size {
    /// Whether less than a tenth of the quota is left, and it is time to do something.
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        self.quota.is_some_and(|quota| self.bytes > quota - quota / 10)
    }

    /// Whether an object of a table may take so many bytes more.
    pub(super) fn check(self, table: &Table, draft: &Draft, more: u64) -> Result<(), WriteError> {
        let Some(quota) = self.quota else { return Ok(()) };
        let after = self.bytes.saturating_add(more);
        let most = quota.saturating_add(quota / RESERVE);
        if after <= quota || (after <= most && is_vital(table, draft)) { Ok(()) } else { Err(WriteError::Full(self)) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its objects have {} bytes", self.bytes)?;
        self.quota.map_or(Ok(()), |quota| write!(f, ", and its quota is {quota}"))
    }
}

/// Whether what is reserved is there for it.
pub(super) fn is_vital(table: &Table, draft: &Draft) -> bool {
    matches!(&**table, "leases.coordination.k8s.io" | "nodes")
        || draft.life().is_some_and(|life| life.deletion_timestamp.is_some())
}
