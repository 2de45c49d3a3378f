//! Errors of the driver.

use hypervisor::qmp::QmpError;

use crate::grant;
use crate::lifecycle::Denied;
use crate::start::StartError;

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

/// Why an action was not carried out.
#[derive(Debug, thiserror::Error)]
pub(super) enum ActError {
    #[error(transparent)]
    Qemu(#[from] QmpError),
    #[error(transparent)]
    Keep(#[from] grant::StoreError),
}

impl From<ActError> for RequestError {
    fn from(error: ActError) -> Self {
        match error {
            ActError::Qemu(error) => Self::Qemu(error),
            ActError::Keep(error) => Self::Grant(error),
        }
    }
}

impl From<ActError> for StartError {
    fn from(error: ActError) -> Self {
        match error {
            ActError::Qemu(error) => Self::Monitor(error),
            ActError::Keep(error) => Self::Grant(error),
        }
    }
}
