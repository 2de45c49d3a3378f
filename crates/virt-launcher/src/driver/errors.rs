//! Errors of the driver.

use hypervisor::qmp::QmpError;
use launcher_api::Outcome;

use crate::errors::chain;
use crate::grant;
use crate::lifecycle::Denied;

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The guest is in no state for it.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// QEMU did not do it.
    #[error(transparent)]
    Qemu(#[from] QmpError),
    /// Who may write could not be written down.
    #[error(transparent)]
    Grant(#[from] grant::StoreError),
    /// The driver is gone, and the guest with it.
    #[error("the launcher has ended")]
    Gone,
}

impl RequestError {
    /// What its caller does about it: a guest comes to another state, a disk has room again.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Denied(_) | Self::Qemu(_) | Self::Grant(_) | Self::Gone => Outcome::retry(chain(self)),
        }
    }
}
