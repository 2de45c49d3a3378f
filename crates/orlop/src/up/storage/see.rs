//! What there is of a machine's storage.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use hypervisor::programs::find;
use storage::volumes::Capacity;

use super::OWN;
use super::decide::{Means, Place, Seen, Wish};
use crate::up::paths;

/// Where volumes keep snapshots of themselves.
const SNAPSHOTS: &str = ".snapshots";
/// Says whose volumes are in a directory.
const OWNER: &str = ".owner";

/// What records where volumes are.
pub(super) fn record(data: &Path) -> PathBuf {
    paths::storage(data).join("place.json")
}

/// The file with the XFS.
pub(super) fn file(data: &Path) -> PathBuf {
    paths::storage(data).join("volumes.xfs")
}

/// Where it is mounted.
pub(super) fn mount_point(data: &Path) -> PathBuf {
    paths::storage(data).join("mounted")
}

/// Says whose volumes are below this directory.
pub(super) fn owner_file(directory: &Path) -> PathBuf {
    directory.join(OWN).join(OWNER)
}

/// Where volumes were recorded to be.
pub(super) fn place(data: &Path) -> anyhow::Result<Place> {
    let path = record(data);
    match std::fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| format!("read {}", path.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Place::Data),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

pub(super) fn see(data: &Path, wish: &Wish) -> anyhow::Result<Seen> {
    let place = place(data)?;
    let mounted = mounted_from(&std::fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?, data);
    let file = file(data);
    let size = match std::fs::metadata(&file) {
        Ok(metadata) => Some(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("look at {}", file.display())),
    };
    let path = match &place {
        Place::Data => paths::volumes(data),
        Place::Directory { path } => path.join(OWN),
        Place::File { .. } => mount_point(data).join("volumes"),
    };
    let is_here = match &place {
        Place::Data => true,
        Place::Directory { path } => owner_file(path).exists(),
        Place::File { .. } => mounted.is_some(),
    };
    let directory = match (wish, &place) {
        (Wish::Directory(path), _) | (Wish::AsBefore, Place::Directory { path }) => Some(path),
        (Wish::AsBefore | Wish::Size(_), _) => None,
    };
    let owner = directory.map(|path| owner(path)).transpose()?.flatten();
    let stat = rustix::fs::statvfs(data).with_context(|| format!("measure {}", data.display()))?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Seen {
        volumes: if is_here { Some(count(&path)?) } else { None },
        place,
        path,
        file: (file, size),
        mounted: mounted.is_some(),
        disk: Capacity { total: bytes(stat.f_blocks), free: bytes(stat.f_bavail) },
        owner,
        data: std::path::absolute(data).context("find the data directory")?,
        means: means(),
    })
}

/// A file that was used once keeps its room until somebody deletes it.
pub(super) fn tell_of_unused(seen: &Seen) {
    if let (Some(bytes), Place::Data | Place::Directory { .. }) = (seen.file.1, &seen.place) {
        let file = seen.file.0.display();
        tracing::warn!(%file, bytes, "a file has no volumes of this machine any more, and still takes its room; delete it");
    }
}

fn owner(directory: &Path) -> anyhow::Result<Option<PathBuf>> {
    let path = owner_file(directory);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(PathBuf::from(text.trim_end_matches('\n')))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

/// Volumes and snapshots in a directory of volumes.
fn count(root: &Path) -> anyhow::Result<usize> {
    let mut all = 0;
    for directory in [root.to_owned(), root.join(SNAPSHOTS)] {
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.with_context(|| format!("read {}", directory.display()))?,
        };
        for entry in entries {
            let name = entry.with_context(|| format!("read {}", directory.display()))?.file_name();
            all += usize::from(!name.to_string_lossy().starts_with('.'));
        }
    }
    Ok(all)
}

/// The device that is mounted at our mount point.
pub(super) fn mounted_from(mounts: &str, data: &Path) -> Option<String> {
    let point = std::path::absolute(mount_point(data)).ok()?;
    let point = point.canonicalize().unwrap_or(point);
    mounts.lines().rev().find_map(|line| {
        let (own, source) = line.split_once(" - ")?;
        let place = own.split(' ').nth(4)?;
        (unescaped(place) == point.to_string_lossy()).then(|| source.split(' ').nth(1).map(unescaped))?
    })
}

/// Mounts are listed with spaces and the like as octal numbers.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (octal, meant)| text.replace(octal, meant))
}

fn means() -> Means {
    let has = |name: &str| find(Path::new(name)).is_some();
    Means { kernel: kernel_has_xfs(), make: has("mkfs.xfs"), grow: has("xfs_growfs") && has("losetup") }
}

/// Whether the kernel knows XFS, perhaps after its module was loaded.
fn kernel_has_xfs() -> bool {
    let knows = || {
        let all = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        all.lines().any(|line| line.trim_start_matches("nodev").trim() == "xfs")
    };
    let load = || {
        let mut command = Command::new("modprobe");
        command.arg("xfs").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    knows() || (load() && knows())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_found_by_its_place() {
        let data = Path::new("/var/lib/or lop");
        let mounts = "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      90 24 7:0 / /var/lib/or\\040lop/storage/mounted rw,noatime shared:1 - xfs /dev/loop3 rw\n";
        assert_eq!(mounted_from(mounts, data).as_deref(), Some("/dev/loop3"));
        assert_eq!(mounted_from(mounts, Path::new("/var/lib/orlop")), None);
    }

    #[test]
    fn snapshots_count_and_what_is_hidden_does_not() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(count(&root.path().join("none")).unwrap(), 0);
        for name in [".work", ".snapshots", ".snapshots/s", "v", "w"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        assert_eq!(count(root.path()).unwrap(), 3);
    }
}
