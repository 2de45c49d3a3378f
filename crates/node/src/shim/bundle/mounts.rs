//! What a container sees beside its root, in the order in which it must be mounted.

use std::path::Path;

use serde::Serialize;

use crate::runtime::spec::{Container, Mount, Propagation};

/// Why a mount cannot be made.
#[derive(Debug, thiserror::Error)]
pub(in crate::shim) enum MountsError {
    #[error("mounts: {0:?} must be an absolute path without `..`")]
    Target(String),
    #[error("mounts: {0}: Bidirectional mounts are not supported")]
    Bidirectional(String),
}

/// One mount, as runtimes read it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(in crate::shim) struct Entry {
    #[serde(rename = "destination")]
    pub(in crate::shim) target: String,
    #[serde(rename = "type")]
    pub(in crate::shim) kind: String,
    pub(in crate::shim) source: String,
    pub(in crate::shim) options: Vec<String>,
}

impl Entry {
    pub(super) fn new(target: &str, kind: &str, source: &str, options: &[&str]) -> Self {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Self { target: target.to_owned(), kind: kind.to_owned(), source: source.to_owned(), options }
    }

    /// Something of the machine's, without what is mounted below it.
    pub(super) fn read_only(source: &Path, target: &str) -> Self {
        Self::new(target, "bind", &source.to_string_lossy(), &["bind", "ro", "nosuid", "nodev", "rprivate"])
    }
}

/// What the mounts that nobody asks for depend on.
pub(super) struct Base<'a> {
    pub(super) is_privileged: bool,
    pub(super) has_cgroups: bool,
    pub(super) shared_memory: &'a Path,
    pub(super) of_root: &'a [Entry],
}

/// All mounts: parents before what lies below them, of two at the same place the one that was asked for.
pub(super) fn all(container: &Container, base: &Base<'_>) -> Result<Vec<Entry>, MountsError> {
    let asked: Vec<_> = container.mounts.iter().map(asked).collect::<Result<_, _>>()?;
    let mut all: Vec<Entry> = Vec::new();
    for entry in given(base).into_iter().chain(asked) {
        all.retain(|earlier| earlier.target != entry.target);
        all.push(entry);
    }
    // Stable, so that the order among equals stays.
    all.sort_by_key(|entry| depth(&entry.target));
    Ok(all)
}

fn given(base: &Base<'_>) -> Vec<Entry> {
    let write = if base.is_privileged { "rw" } else { "ro" };
    let mut entries = base.of_root.to_vec();
    entries.extend([
        Entry::new("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        Entry::new("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        Entry::new(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        Entry::new("/dev/shm", "bind", &base.shared_memory.to_string_lossy(), &["bind", "rw", "nosuid", "nodev"]),
        Entry::new("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        Entry::new("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", write]),
    ]);
    if base.has_cgroups {
        let options = ["nosuid", "noexec", "nodev", "relatime", write];
        entries.push(Entry::new("/sys/fs/cgroup", "cgroup", "cgroup", &options));
    }
    entries
}

fn asked(mount: &Mount) -> Result<Entry, MountsError> {
    let target = normalized(&mount.target).ok_or_else(|| MountsError::Target(mount.target.clone()))?;
    let propagation = match mount.propagation {
        Propagation::Private => "rprivate",
        Propagation::HostToContainer => "rslave",
        Propagation::Bidirectional => return Err(MountsError::Bidirectional(target)),
    };
    let write = if mount.read_only { "ro" } else { "rw" };
    Ok(Entry::new(&target, "bind", &mount.source.to_string_lossy(), &["rbind", write, propagation]))
}

/// `/a//b/` as `/a/b`; none for relative paths, the root itself, and those that lead upwards.
pub(super) fn normalized(path: &str) -> Option<String> {
    let parts: Vec<_> = path.strip_prefix('/')?.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let is_refused = parts.is_empty() || parts.contains(&"..") || path.contains('\0');
    (!is_refused).then(|| format!("/{}", parts.join("/")))
}

fn depth(path: &str) -> usize {
    path.split('/').filter(|part| !part.is_empty()).count()
}
