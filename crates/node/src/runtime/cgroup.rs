//! Control groups, of version 1, 2, or both at once: the pod's limits, and who is in it.
//!
//! Everything here may block.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::spec::Resources;

/// Below it, one group per pod.
const ALL: &str = "orlop";
/// How long ended processes may take to leave; what hangs in the kernel longer is told about.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at a group that cannot be removed yet: the kernel does not say when it can.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// What a group of version 2 hands down to those below it.
const HANDED_DOWN: [&str; 5] = ["+cpu", "+cpuset", "+io", "+memory", "+pids"];

/// Why a group could not be used.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// A file or a directory of it.
    #[error("{action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// Processes do not end.
    #[error("{0} processes of {1} did not end")]
    Stuck(usize, String),
}

/// The hierarchies that are mounted on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    hierarchies: Vec<Hierarchy>,
}

#[derive(Clone, Debug, PartialEq)]
struct Hierarchy {
    mounted: PathBuf,
    /// None for version 2.
    controllers: Option<BTreeSet<String>>,
}

/// The group of a pod.
pub(crate) fn of_pod(uid: &str) -> String {
    format!("/{ALL}/pod{uid}")
}

/// The group of a pod's OCI runtime while it is at work. Outside of the pod's, whose limits are not for it.
fn of_runtime(uid: &str) -> String {
    format!("/{ALL}/runtime-{uid}")
}

impl Cgroups {
    pub(crate) fn find() -> Result<Self, CgroupError> {
        let path = Path::new("/proc/self/mountinfo");
        std::fs::read_to_string(path).map(|text| Self::parse(&text)).map_err(failed("read", path))
    }

    fn parse(mountinfo: &str) -> Self {
        Self { hierarchies: mountinfo.lines().filter_map(hierarchy).collect() }
    }

    /// Whether all controllers are version 2's.
    pub(crate) fn is_unified(&self) -> bool {
        self.hierarchies.iter().all(|it| it.controllers.is_none())
    }

    /// Makes a group with limits. One that is there gets the limits anew.
    pub(crate) fn create(&self, group: &str, resources: &Resources) -> Result<(), CgroupError> {
        if self.is_unified() {
            self.hierarchies.first().map_or(Ok(()), |it| it.create_unified(group, resources))
        } else {
            self.hierarchies.iter().try_for_each(|it| it.create_by_controller(group, resources))
        }
    }

    /// Makes the group of a pod's runtime. Who writes `0` to the file enters it, with all children to come.
    pub(crate) fn create_for_runtime(&self, uid: &str) -> Result<File, CgroupError> {
        // In one hierarchy only: it is to find processes, not to limit them. Version 2's, if it is there, has the
        // fewest rules of its own.
        let unified = self.hierarchies.iter().find(|it| it.controllers.is_none());
        let missing = || failed("find", Path::new("/sys/fs/cgroup"))(io::ErrorKind::NotFound.into());
        let folder = unified.or(self.hierarchies.first()).ok_or_else(missing)?.folder(&of_runtime(uid));
        create_folder(&folder)?;
        let path = folder.join("cgroup.procs");
        OpenOptions::new().write(true).open(&path).map_err(failed("open", &path))
    }

    /// Ends all that a pod's shim has started, containers and what was about to become one.
    pub(crate) fn end_pod(&self, uid: &str) -> Result<(), CgroupError> {
        // The runtime first: when it has ended nobody enters the pod any more.
        self.end_all(&of_runtime(uid))?;
        self.end_all(&of_pod(uid))
    }

    /// Removes all groups of a pod.
    pub(crate) fn remove_pod(&self, uid: &str) -> Result<(), CgroupError> {
        self.remove(&of_runtime(uid))?;
        self.remove(&of_pod(uid))
    }

    /// Ends every process in a group and below it, and waits until they have ended.
    pub(crate) fn end_all(&self, group: &str) -> Result<(), CgroupError> {
        let mut rounds_left = 100;
        loop {
            let ended = self.kill(group);
            if ended.is_empty() && self.processes(group).is_empty() {
                return Ok(());
            }
            rounds_left -= 1;
            let stuck = ended.into_iter().filter(|process| !wait(process)).count();
            if stuck > 0 || rounds_left == 0 {
                return Err(CgroupError::Stuck(stuck.max(1), group.to_owned()));
            }
        }
    }

    /// Removes a group and those below it. None of it being there is fine.
    pub(crate) fn remove(&self, group: &str) -> Result<(), CgroupError> {
        self.hierarchies.iter().try_for_each(|it| remove_tree(&it.folder(group)))?;
        // The group of all pods goes with the last one. Others may be making theirs, and it stays.
        for hierarchy in &self.hierarchies {
            let _ = std::fs::remove_dir(hierarchy.mounted.join(ALL));
        }
        Ok(())
    }

    /// How often the kernel ended a process of this group for want of memory.
    pub(crate) fn memory_kills(&self, group: &str) -> u64 {
        let counts = self.hierarchies.iter().filter_map(|it| {
            let folder = it.folder(group);
            let text = ["memory.events", "memory.oom_control"].iter().find_map(|name| read(&folder.join(name)))?;
            text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok())
        });
        counts.sum()
    }

    /// Processes in a group and below it, in whatever hierarchy.
    fn processes(&self, group: &str) -> BTreeSet<i32> {
        let mut found = BTreeSet::new();
        for hierarchy in &self.hierarchies {
            for folder in tree(&hierarchy.folder(group)) {
                let listed = read(&folder.join("cgroup.procs")).unwrap_or_default();
                // Zero stands for processes of other PID namespaces.
                found.extend(listed.lines().filter_map(|pid| pid.parse::<i32>().ok()).filter(|pid| *pid > 0));
            }
        }
        found
    }

    /// Sends SIGKILL to all. A number is only a hint: what is signalled is what was seen to be in the group.
    fn kill(&self, group: &str) -> Vec<OwnedFd> {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let others = self.processes(group).into_iter().filter(|pid| *pid != own);
        others
            .filter_map(|number| {
                let process = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
                let groups = read(Path::new(&format!("/proc/{number}/cgroup")))?;
                if !is_member(&groups, group) {
                    return None;
                }
                pidfd_send_signal(&process, Signal::KILL).ok().map(|()| process)
            })
            .collect()
    }
}

impl Hierarchy {
    fn folder(&self, group: &str) -> PathBuf {
        self.mounted.join(group.trim_start_matches('/'))
    }

    fn create_by_controller(&self, group: &str, resources: &Resources) -> Result<(), CgroupError> {
        let has = |name: &str| self.controllers.as_ref().is_some_and(|all| all.contains(name));
        let mut settings = Vec::new();
        if has("cpu") {
            settings.extend(resources.cpu_shares.filter(|it| *it > 0).map(|it| ("cpu.shares", it.max(2).to_string())));
            if let Some((quota, period)) = quota(resources) {
                settings.extend([("cpu.cfs_period_us", period.to_string()), ("cpu.cfs_quota_us", quota.to_string())]);
            }
        }
        if has("memory") {
            let limit = resources.memory.filter(|it| *it > 0);
            settings.extend(limit.map(|it| ("memory.limit_in_bytes", it.to_string())));
        }
        if has("pids") {
            settings.extend(resources.pids.filter(|it| *it > 0).map(|it| ("pids.max", it.to_string())));
        }
        // Also where there is nothing to set: the group of all pods stays as long as there is one below it, and the
        // runtime relies on that.
        let folder = self.folder(group);
        create_folder(&folder)?;
        write_all(&folder, &settings)
    }

    fn create_unified(&self, group: &str, resources: &Resources) -> Result<(), CgroupError> {
        let folder = self.folder(group);
        create_folder(&folder)?;
        let above: Vec<_> = folder.ancestors().skip(1).take_while(|it| it.starts_with(&self.mounted)).collect();
        for parent in above.into_iter().rev() {
            for controller in HANDED_DOWN {
                // One that this machine lacks is missed when a limit is set, not before.
                let _ = std::fs::write(parent.join("cgroup.subtree_control"), controller);
            }
        }
        let mut settings = Vec::new();
        let weight = resources.cpu_shares.filter(|it| *it > 0).map(weight);
        settings.extend(weight.map(|it| ("cpu.weight", it.to_string())));
        settings.extend(quota(resources).map(|(quota, period)| ("cpu.max", format!("{quota} {period}"))));
        settings.extend(resources.memory.filter(|it| *it > 0).map(|it| ("memory.max", it.to_string())));
        settings.extend(resources.pids.filter(|it| *it > 0).map(|it| ("pids.max", it.to_string())));
        write_all(&folder, &settings)
    }
}

/// The quota, and the period it is for.
pub(crate) fn quota(resources: &Resources) -> Option<(i64, u64)> {
    let quota = resources.cpu_quota_us.filter(|it| *it > 0)?;
    Some((quota, resources.cpu_period_us.filter(|it| *it > 0).unwrap_or(100_000)))
}

/// Version 1's shares, 2 to 262144, as version 2's weight, 1 to 10000.
pub(crate) fn weight(shares: u64) -> u64 {
    let shares = shares.clamp(2, 262_144);
    1 + (shares - 2) * 9999 / 262_142
}

/// From a line such as `30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory`.
fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (before, after) = line.split_once(" - ")?;
    let mut after = after.split(' ');
    let (kind, _, options) = (after.next()?, after.next()?, after.next()?);
    let controllers = match kind {
        "cgroup" => Some(options.split(',').map(str::to_owned).collect()),
        "cgroup2" => None,
        _ => return None,
    };
    Some(Hierarchy { mounted: PathBuf::from(before.split(' ').nth(4)?), controllers })
}

/// Whether `/proc/PID/cgroup` names the group or one below it.
fn is_member(groups: &str, group: &str) -> bool {
    groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|path| {
        // Seen from within a group of our own, paths may begin with that.
        path.find(group).is_some_and(|at| matches!(path.as_bytes().get(at + group.len()), None | Some(b'/')))
    })
}

/// Whether a process has ended in time.
fn wait(process: &OwnedFd) -> bool {
    let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&patience)) {
            Err(Errno::INTR) => {}
            polled => return polled.is_ok_and(|ready| ready > 0),
        }
    }
}

/// A directory and all below it, itself first.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        let folders: Vec<_> = entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_dir())).collect();
        found.extend(folders.into_iter().map(|it| it.path()));
        next += 1;
    }
    found
}

fn remove_tree(folder: &Path) -> Result<(), CgroupError> {
    for path in tree(folder).into_iter().rev() {
        let mut rounds_left = PATIENCE.as_millis() / 2;
        loop {
            match std::fs::remove_dir(&path) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                // Who has ended has not always left.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && rounds_left > 0 => {
                    rounds_left -= 1;
                    let _ = poll(&mut [], Some(&PAUSE));
                }
                Err(source) => return Err(failed("remove", &path)(source)),
            }
        }
    }
    Ok(())
}

/// The group of all pods may be removed by another while its first one is made.
fn create_folder(folder: &Path) -> Result<(), CgroupError> {
    let mut result = Ok(());
    for _ in 0..10 {
        result = std::fs::create_dir_all(folder);
        if !result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            break;
        }
    }
    result.map_err(failed("create", folder))
}

fn write_all(folder: &Path, settings: &[(&str, String)]) -> Result<(), CgroupError> {
    settings.iter().try_for_each(|(name, value)| {
        let path = folder.join(name);
        std::fs::write(&path, value).map_err(failed("write", &path))
    })
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl Fn(io::Error) -> CgroupError + 'a {
    move |source| CgroupError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
        26 22 0:24 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        27 26 0:25 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        30 26 0:26 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n\
        31 26 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let found = Cgroups::parse(HYBRID);
        let paths: Vec<_> = found.hierarchies.iter().filter_map(|it| it.mounted.to_str()).collect();
        assert_eq!(paths, ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"]);
        assert!(!found.is_unified());
        assert!(Cgroups::parse("31 26 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw").is_unified());
    }

    /// What a pod's group holds on a machine with these hierarchies: directory, kind, options.
    fn written(mounts: &[(&str, &str, &str)]) -> Vec<(String, String)> {
        let root = tempfile::tempdir().unwrap();
        let line = |(folder, kind, options): &(&str, &str, &str)| {
            let path = root.path().join(folder);
            std::fs::create_dir_all(&path).unwrap();
            format!("30 25 0:26 / {} rw - {kind} {kind} {options}\n", path.display())
        };
        let cgroups = Cgroups::parse(&mounts.iter().map(line).collect::<String>());
        let resources = Resources {
            cpu_shares: Some(1024),
            cpu_quota_us: Some(50_000),
            memory: Some(1 << 20),
            pids: Some(64),
            ..Resources::default()
        };
        cgroups.create(&of_pod("a"), &resources).unwrap();
        let mut found = Vec::new();
        for folder in tree(root.path()).into_iter().filter(|folder| folder.ends_with("orlop/poda")) {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root.path()).unwrap().display().to_string();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn limits_are_written_as_each_version_wants_them() {
        let texts = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        let first = [
            ("cpu/orlop/poda/cpu.cfs_period_us", "100000"),
            ("cpu/orlop/poda/cpu.cfs_quota_us", "50000"),
            ("cpu/orlop/poda/cpu.shares", "1024"),
            ("memory/orlop/poda/memory.limit_in_bytes", "1048576"),
            ("pids/orlop/poda/pids.max", "64"),
        ];
        let by_controller =
            [("cpu", "cgroup", "rw,cpu,cpuacct"), ("memory", "cgroup", "rw,memory"), ("pids", "cgroup", "rw,pids")];
        assert_eq!(written(&by_controller), texts(&first));
        // Version 2 beside version 1 has no controllers to itself.
        let hybrid = [by_controller.as_slice(), &[("unified", "cgroup2", "rw")]].concat();
        assert_eq!(written(&hybrid), texts(&first));
        let unified = [
            ("orlop/poda/cpu.max", "50000 100000"),
            ("orlop/poda/cpu.weight", "39"),
            ("orlop/poda/memory.max", "1048576"),
            ("orlop/poda/pids.max", "64"),
        ];
        assert_eq!(written(&[("", "cgroup2", "rw,nsdelegate")]), texts(&unified));
        assert_eq!(written(&[]), []);
    }

    #[test]
    fn a_group_is_not_mistaken_for_one_whose_name_begins_alike() {
        let member = "4:memory:/orlop/podab/main\n0::/\n";
        assert!(is_member(member, "/orlop/podab"));
        assert!(!is_member(member, "/orlop/poda"));
        assert!(!is_member("0::/user.slice\n", "/orlop/podab"));
    }

    #[test]
    fn shares_become_weights_from_end_to_end() {
        assert_eq!((weight(0), weight(2), weight(1024), weight(262_144)), (1, 1, 39, 10_000));
    }
}
