//! A group of processes that may have only so much memory.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// A memory cgroup with a limit, of either version; gone when dropped.
pub(crate) struct Limited(PathBuf);

impl Limited {
    pub(crate) fn new(name: &str, bytes: u64) -> Result<Self> {
        let (root, file) = match std::path::Path::new("/sys/fs/cgroup/memory").is_dir() {
            true => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            false => ("/sys/fs/cgroup", "memory.max"),
        };
        let group = Self(PathBuf::from(root).join(name));
        std::fs::create_dir_all(&group.0).context("make a cgroup; this test needs root")?;
        std::fs::write(group.0.join(file), bytes.to_string())?;
        Ok(group)
    }

    pub(crate) fn take(&self, pid: u32) -> Result<()> {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).context("join the cgroup")
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
