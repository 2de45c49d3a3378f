//! What a restore says, in KubeVirt's words.

pub(super) const WAIT_EVENTUALLY: &str =
    "Waiting for target VM to be powered off. Please stop the restore target to proceed with restore";
pub(super) const WAIT_GRACE: &str = "Waiting for target VM to be powered off. Please stop the restore target to proceed with restore, or the operation will fail after 5m0s";
pub(super) const GRACE_EXCEEDED: &str =
    "Restore target failed to be ready within 5m0s. Please power off the target VM before attempting restore";
pub(super) const STOPPING: &str = "Automatically stopping restore target for restore operation";
pub(super) const STILL_THERE: &str =
    "Restore target VMI still exists, please stop the restore target to proceed with restore";
pub(super) const MUST_BE_OFF: &str = "Restore target VMI must be powered off before restore operation";
pub(super) const OTHER_TARGET: &str =
    "restore source and restore target are different but restore target already exists";
pub(super) const OTHER_PLACE: &str = "volumeRestorePolicy InPlace replaces the claims of the VM that the snapshot is of, and the target is another; use RandomizeNames or PrefixTargetName";
