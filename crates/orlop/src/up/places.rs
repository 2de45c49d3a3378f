//! Where things are in the folder of `orlop up`.

use std::path::{Path, PathBuf};

/// The kubelet's folder: pods and their volumes, device plugins.
pub(crate) fn kubelet(data: &Path) -> PathBuf {
    data.join("kubelet")
}

/// A folder per pod that runs: its shim's state.
pub(crate) fn shims(data: &Path) -> PathBuf {
    data.join("shims")
}

/// Logs of containers.
pub(crate) fn logs(data: &Path) -> PathBuf {
    data.join("logs")
}

/// The log of `orlop up` itself, beside those of containers: one search finds all that is told of a VM.
pub(crate) fn own_log(data: &Path) -> PathBuf {
    logs(data).join("orlop.log")
}

/// Images, unpacked.
pub(crate) fn images(data: &Path) -> PathBuf {
    data.join("images")
}

/// Images as root has put them there, in OCI's layout: VMs may use them.
pub(crate) fn own_images(data: &Path) -> PathBuf {
    data.join("oci")
}

/// A folder per claim.
pub(crate) fn volumes(data: &Path) -> PathBuf {
    data.join("volumes")
}

/// Records of pods' networks.
pub(crate) fn network(data: &Path) -> PathBuf {
    data.join("network")
}

/// What virt-handler must not forget.
pub(crate) fn handler(data: &Path) -> PathBuf {
    data.join("virt-handler")
}
