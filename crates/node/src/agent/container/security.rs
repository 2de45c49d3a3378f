//! What a container's process may do.

use std::collections::BTreeSet;

use super::{MakeError, Making, Source};

/// What root in a container may do without asking.
const USUAL: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const ALL: [&str; 41] = [
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

pub(super) struct Security {
    pub(super) capabilities: Vec<String>,
    pub(super) no_new_privileges: bool,
    pub(super) read_only_root: bool,
    pub(super) privileged: bool,
    pub(super) filtered: bool,
}

/// Other users than root get only what they ask for by name: it would be theirs at once, not after an `exec` of a setuid program.
pub(super) fn security(making: &Making<'_>, uid: u32) -> Result<Security, MakeError> {
    let context = making.container.security_context.as_ref();
    let privileged = context.and_then(|context| context.privileged) == Some(true);
    let read_only_root = context.and_then(|context| context.read_only_root_filesystem) == Some(true);
    let of_pod = making.spec.security_context.as_ref().and_then(|context| context.seccomp_profile.as_ref());
    let profile = context.and_then(|context| context.seccomp_profile.as_ref()).or(of_pod);
    let filtered = profile.is_some_and(|profile| profile.type_ == "RuntimeDefault") && !privileged;
    if let Source::Machine { .. } = making.source {
        if privileged {
            return Err(MakeError::Privileged);
        }
        return Ok(Security {
            capabilities: Vec::new(),
            no_new_privileges: true,
            read_only_root,
            privileged,
            filtered,
        });
    }
    let asked = context.and_then(|context| context.capabilities.as_ref());
    let add = asked.and_then(|asked| asked.add.as_deref()).unwrap_or_default();
    let drop = asked.and_then(|asked| asked.drop.as_deref()).unwrap_or_default();
    let usual: &[&str] = if uid == 0 { &USUAL } else { &[] };
    let capabilities = if privileged { ALL.map(str::to_owned).into() } else { capabilities(usual, add, drop) };
    let escalates = context.and_then(|context| context.allow_privilege_escalation) != Some(false);
    Ok(Security {
        capabilities: capabilities.into_iter().map(|name| format!("CAP_{name}")).collect(),
        no_new_privileges: !escalates && !privileged,
        read_only_root,
        privileged,
        filtered,
    })
}

fn capabilities(usual: &[&str], add: &[String], drop: &[String]) -> BTreeSet<String> {
    let plain = |name: &String| name.to_ascii_uppercase().trim_start_matches("CAP_").to_owned();
    let names = |list: &[String]| -> BTreeSet<String> {
        let list: BTreeSet<String> = list.iter().map(plain).collect();
        if list.contains("ALL") { ALL.map(str::to_owned).into() } else { list }
    };
    let kept: BTreeSet<String> = usual.iter().map(|name| (*name).to_owned()).collect();
    let (added, dropped) = (names(add), names(drop));
    let all_added = add.iter().any(|name| plain(name) == "ALL");
    let all_dropped = drop.iter().any(|name| plain(name) == "ALL");
    // What is named beats what is meant by ALL, on either side.
    match (all_added, all_dropped) {
        (true, false) => &added - &dropped,
        (_, true) => added,
        (false, false) => &(&kept | &added) - &dropped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(add: &[&str], drop: &[&str]) -> Vec<String> {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        capabilities(&["CHOWN", "KILL"], &list(add), &list(drop)).into_iter().collect()
    }

    #[test]
    fn capabilities_are_added_and_dropped() {
        assert_eq!(of(&[], &[]), ["CHOWN", "KILL"]);
        assert_eq!(of(&["net_admin"], &["CAP_KILL"]), ["CHOWN", "NET_ADMIN"]);
        assert_eq!(of(&["NET_ADMIN"], &["ALL"]), ["NET_ADMIN"]);
        assert_eq!(of(&["ALL"], &["KILL"]).len(), ALL.len() - 1);
        assert!(of(&["KILL"], &["KILL"]).iter().all(|name| name != "KILL"));
    }
}
