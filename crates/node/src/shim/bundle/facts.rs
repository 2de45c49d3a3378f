//! The limits that this machine's kernel sets.

use std::io;

use rustix::process::{Resource, getrlimit};

use crate::runtime::cgroup::Cgroups;

/// The most open files that a container may have, as with other runtimes.
const OPEN_FILES: u64 = 1 << 20;
/// The number of `CAP_SYS_RESOURCE`.
const SYS_RESOURCE: usize = 24;
/// By number.
const CAPABILITIES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// What this machine allows.
#[derive(Clone, Debug)]
pub(in crate::shim) struct Facts {
    pub(in crate::shim) has_unified_cgroups: bool,
    /// The least OOM score that a child may get.
    pub(in crate::shim) least_oom_score: i32,
    pub(in crate::shim) open_files: u64,
    /// The most that a privileged container can have.
    pub(in crate::shim) capabilities: Vec<String>,
}

impl Facts {
    pub(in crate::shim) fn find(cgroups: &Cgroups) -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let can_lower = bits(&status, "CapEff:") & (1 << SYS_RESOURCE) != 0;
        let own_score = std::fs::read_to_string("/proc/self/oom_score_adj")?.trim().parse().unwrap_or(0);
        let known = bits(&status, "CapBnd:") & bits(&status, "CapPrm:");
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(OPEN_FILES);
        Ok(Self {
            has_unified_cgroups: cgroups.is_unified(),
            least_oom_score: if can_lower { -1000 } else { own_score },
            open_files: hard.min(OPEN_FILES),
            capabilities: names(known),
        })
    }
}

fn names(bits: u64) -> Vec<String> {
    let held = CAPABILITIES.iter().enumerate().filter(|(number, _)| bits & (1 << number) != 0);
    held.map(|(_, name)| (*name).to_owned()).collect()
}

fn bits(status: &str, key: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(key));
    value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_named_by_their_numbers() {
        let status = "Name:\tx\nCapEff:\t0000000001003000\n";
        assert_eq!(names(bits(status, "CapEff:")), ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_RESOURCE"]);
        assert_eq!(CAPABILITIES[SYS_RESOURCE], "CAP_SYS_RESOURCE");
        assert!(names(bits(status, "CapBnd:")).is_empty());
    }
}
