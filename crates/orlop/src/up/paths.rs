//! The paths in the data directory.

use std::path::{Path, PathBuf};

/// The kubelet's directory: pods and their volumes, device plugins.
pub(crate) fn kubelet(data: &Path) -> PathBuf {
    data.join("kubelet")
}

/// One directory per pod that runs: its shim's state.
pub(crate) fn shims(data: &Path) -> PathBuf {
    data.join("shims")
}

/// Logs of containers.
pub(crate) fn logs(data: &Path) -> PathBuf {
    data.join("logs")
}

/// The log of `orlop up` itself, beside those of containers: one search finds every line about a VM.
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

/// One directory per claim.
pub(crate) fn volumes(data: &Path) -> PathBuf {
    data.join("volumes")
}

/// Where volumes are, if it is not the directory above: a record of it, and the XFS that `--storage-size` makes.
pub(crate) fn storage(data: &Path) -> PathBuf {
    data.join("storage")
}

/// Records of pods' networks.
pub(crate) fn network(data: &Path) -> PathBuf {
    data.join("network")
}

/// The state that virt-handler keeps across restarts.
pub(crate) fn handler(data: &Path) -> PathBuf {
    data.join("virt-handler")
}

/// The authority by which the virt-handlers of several nodes know each other.
pub(crate) fn handlers(data: &Path) -> PathBuf {
    data.join("pki").join("virt-handlers")
}

/// A directory per node, where there are several on this machine.
pub(crate) fn nodes(data: &Path) -> PathBuf {
    data.join("nodes")
}

/// Everything that one of several nodes has to itself.
pub(crate) fn node(data: &Path, name: &str) -> PathBuf {
    nodes(data).join(name)
}

/// The log of the agent of one of several nodes, beside all others.
pub(crate) fn agent_log(data: &Path, name: &str) -> PathBuf {
    logs(data).join(format!("{name}.log"))
}

/// Every directory of a node in the directory of `orlop up`: its own, where the machine is one node, and those of several.
pub(crate) fn homes(data: &Path) -> Vec<PathBuf> {
    let several = std::fs::read_dir(nodes(data)).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut homes: Vec<PathBuf> = several.filter(|path| path.is_dir()).collect();
    homes.sort();
    homes.insert(0, data.to_owned());
    homes
}
