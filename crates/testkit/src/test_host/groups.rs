//! The control groups that a machine takes for the roots of all.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::mounts::{self, Mount};

/// What names begin with; what follows is the process that made it.
pub(super) const PREFIX: &str = "orlop-t-";
/// How often a group is tried to be removed: the kernel lets go of processes a moment after they have ended.
const TRIES: usize = 200;

/// A group in every hierarchy, gone when dropped.
pub(super) struct Groups(Vec<Group>);

struct Group {
    folder: PathBuf,
    /// Where the processes of the tests are, if not in the group itself: in version 2, groups with limits below them
    /// have no processes of their own.
    leaf: Option<PathBuf>,
}

impl Groups {
    pub(super) fn make() -> Self {
        let mut hierarchies: Vec<Mount> = mounts::all().into_iter().filter(Mount::is_groups).collect();
        // One may be mounted in several places; the usual one comes first.
        hierarchies.sort_by_key(|mount| !mount.place.starts_with("/sys/fs/cgroup"));
        let mut seen = std::collections::BTreeSet::new();
        hierarchies.retain(|mount| seen.insert((mount.kind.clone(), mount.controllers())));
        let is_unified = hierarchies.iter().all(|mount| mount.kind == "cgroup2");
        Self(hierarchies.iter().map(|mount| Group::make(mount, is_unified)).collect())
    }

    /// The directories of all groups, apart by spaces.
    pub(super) fn all(&self) -> String {
        joined(self.0.iter().map(|group| &group.folder))
    }

    /// Where the processes are to go next.
    pub(super) fn leaves(&self) -> String {
        joined(self.0.iter().filter_map(|group| group.leaf.as_ref()))
    }
}

fn joined<'a>(folders: impl Iterator<Item = &'a PathBuf>) -> String {
    folders.map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(" ")
}

impl Group {
    fn make(hierarchy: &Mount, is_unified: bool) -> Self {
        let root = Path::new(&hierarchy.place);
        remove_abandoned(root, remove);
        let folder = root.join(format!("{PREFIX}{}", std::process::id()));
        if is_unified {
            let controllers = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            for controller in controllers.split_whitespace() {
                // Those that cannot be had are missed by whoever needs them.
                let _ = std::fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
            }
        }
        std::fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for file in ["cpuset.cpus", "cpuset.mems"] {
            // In version 1, a group without them takes no process.
            if let Ok(text) = std::fs::read_to_string(root.join(file))
                && hierarchy.kind == "cgroup"
            {
                std::fs::write(folder.join(file), text).unwrap();
            }
        }
        let leaf = (hierarchy.kind == "cgroup2").then(|| folder.join("tests"));
        if let Some(leaf) = &leaf {
            std::fs::create_dir(leaf).unwrap();
        }
        Self { folder, leaf }
    }
}

impl Drop for Group {
    #[expect(clippy::disallowed_methods, reason = "the kernel does not tell when a group may go")]
    fn drop(&mut self) {
        for _ in 0..TRIES {
            remove(&self.folder);
            if !self.folder.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Removes what tests left in a directory that were killed.
pub(super) fn remove_abandoned(root: &Path, remove: impl Fn(&Path)) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.parse::<u32>().ok());
        let is_alive = |pid: u32| pid != std::process::id() && Path::new("/proc").join(pid.to_string()).exists();
        if owner.is_some_and(|pid| !is_alive(pid)) {
            remove(&entry.path());
        }
    }
}

/// Removes a group and those below it, as far as that is possible.
fn remove(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(folder);
}
