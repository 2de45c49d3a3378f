//! The mounts of this process.

/// A mount.
pub(super) struct Mount {
    pub(super) place: String,
    pub(super) kind: String,
    /// What of the file system is shown.
    pub(super) root: String,
    /// Options of the file system.
    pub(super) options: Vec<String>,
}

/// All, in the order in which they were made.
pub(super) fn all() -> Vec<Mount> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().map(|line| parse(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

fn parse(line: &str) -> Option<Mount> {
    let (of_mount, of_files) = line.split_once(" - ")?;
    let mut of_mount = of_mount.split(' ').skip(3);
    let (root, place) = (of_mount.next()?, of_mount.next()?);
    let mut of_files = of_files.split(' ');
    let (kind, _, options) = (of_files.next()?, of_files.next()?, of_files.next()?);
    Some(Mount {
        place: place.to_owned(),
        kind: kind.to_owned(),
        root: root.to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
    })
}

impl Mount {
    /// Whether it is a hierarchy of control groups.
    pub(super) fn is_groups(&self) -> bool {
        ["cgroup", "cgroup2"].contains(&self.kind.as_str())
    }

    /// What makes up a hierarchy: its controllers, or its name.
    pub(super) fn controllers(&self) -> String {
        let flags = ["rw", "ro", "xattr", "clone_children", "noprefix", "nsdelegate", "memory_recursiveprot"];
        let is_setting = |option: &str| option.contains('=') && !option.starts_with("name=");
        let own = self.options.iter().filter(|option| !flags.contains(&option.as_str()) && !is_setting(option));
        own.cloned().collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_known_by_controllers_or_name() {
        let line = |options: &str| format!("32 31 0:29 / /sys/fs/cgroup/x rw shared:9 - cgroup cgroup rw,{options}");
        let of = |options: &str| parse(&line(options)).unwrap();
        assert_eq!(of("cpu,cpuacct").controllers(), "cpu,cpuacct");
        assert_eq!(of("xattr,release_agent=/lib/agent,name=systemd").controllers(), "name=systemd");
        assert_eq!((of("cpu").place.as_str(), of("cpu").is_groups()), ("/sys/fs/cgroup/x", true));
    }
}
