//! Devices, as the machine has them now.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::runtime::spec::Device;

/// Directories of `/dev` that every container has its own of.
const OWN_FOLDERS: [&str; 4] = ["fd", "mqueue", "pts", "shm"];
/// What the runtime makes by itself.
const OWN_NODES: [&str; 8] = ["console", "full", "null", "ptmx", "random", "tty", "urandom", "zero"];
/// Deeper than `/dev` goes.
const MAX_DEPTH: usize = 5;

/// Why a device cannot be given to a container.
#[derive(Debug, thiserror::Error)]
pub(in crate::shim) enum DeviceError {
    #[error("look at {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is not a device", .0.display())]
    Kind(PathBuf),
}

/// A device's node.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::shim) struct Node {
    pub(super) target: String,
    pub(super) access: String,
    pub(super) is_block: bool,
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Node {
    pub(super) fn describe(&self) -> Value {
        json!({"path": self.target, "type": self.kind(), "major": self.major, "minor": self.minor,
            "fileMode": self.mode, "uid": self.uid, "gid": self.gid})
    }

    /// What the container's cgroup allows.
    pub(super) fn rule(&self) -> Value {
        json!({"allow": true, "type": self.kind(), "major": self.major, "minor": self.minor, "access": self.access})
    }

    fn kind(&self) -> &'static str {
        if self.is_block { "b" } else { "c" }
    }
}

/// The nodes of these devices.
pub(in crate::shim) fn find(devices: &[Device]) -> Result<Vec<Node>, DeviceError> {
    devices.iter().map(|device| node(&device.path, &device.target, &device.access)).collect()
}

/// All devices of the machine, for a privileged container.
pub(in crate::shim) fn all() -> Vec<Node> {
    let mut found = Vec::new();
    walk(Path::new("/dev"), 0, &mut found);
    found
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<Node>) {
    let mut paths: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_own = |names: &[&str]| depth == 0 && names.contains(&name.as_str());
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        if metadata.is_dir() && depth < MAX_DEPTH && !is_own(&OWN_FOLDERS) {
            walk(&path, depth + 1, found);
        } else if !metadata.is_symlink() && !is_own(&OWN_NODES) {
            // What is no device is left out.
            found.extend(node(&path, &path.to_string_lossy(), "rwm"));
        }
    }
}

fn node(path: &Path, target: &str, access: &str) -> Result<Node, DeviceError> {
    let metadata = std::fs::metadata(path).map_err(|source| DeviceError::Io { path: path.to_owned(), source })?;
    let kind = metadata.file_type();
    if !kind.is_block_device() && !kind.is_char_device() {
        return Err(DeviceError::Kind(path.to_owned()));
    }
    Ok(Node {
        target: target.to_owned(),
        access: access.to_owned(),
        is_block: kind.is_block_device(),
        major: rustix::fs::major(metadata.rdev()),
        minor: rustix::fs::minor(metadata.rdev()),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_described_by_its_numbers() {
        let device = Device { path: "/dev/null".into(), target: "/dev/nothing".to_owned(), access: "rw".to_owned() };
        let found = find(&[device]).unwrap();
        assert_eq!((found[0].major, found[0].minor, found[0].is_block), (1, 3, false));
        assert_eq!(found[0].rule()["access"], "rw");
        assert_eq!(found[0].describe()["path"], "/dev/nothing");
    }

    #[test]
    fn a_file_is_no_device() {
        let device = Device { path: "/etc/passwd".into(), target: "/dev/x".to_owned(), access: "r".to_owned() };
        assert!(matches!(find(&[device]), Err(DeviceError::Kind(_))));
    }
}
