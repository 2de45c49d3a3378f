//! Errors of the driver.

use hypervisor::qmp::QmpError;

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
