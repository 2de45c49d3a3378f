//! Bundles: what an OCI runtime is told about a container, as `config.json`.
//!
//! What is asked of the machine is asked before, by [`facts`], [`devices`] and [`root`]; [`config`] only computes.

pub(super) mod devices;
pub(super) mod facts;
mod filter;
mod mounts;
pub(super) mod root;

use serde_json::{Value, json};

use crate::runtime::cgroup;
use crate::runtime::spec::{Container, Resources};

use devices::Node;
use facts::Facts;
use mounts::{Base, MountsError};

/// What programs are looked for in when the container does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What would show or change the machine: files hidden by all runtimes alike.
const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Why a container cannot be described.
#[derive(Debug, thiserror::Error)]
pub(super) enum BundleError {
    #[error("the container has no command")]
    Command,
    #[error(transparent)]
    Mounts(#[from] MountsError),
}

/// Where things are for one container.
#[derive(Clone, Debug)]
pub(super) struct ContainerPaths {
    /// Its root, mounted.
    pub(super) root: std::path::PathBuf,
    /// The pod's shared memory.
    pub(super) shared_memory: std::path::PathBuf,
    pub(super) cgroup: String,
    /// What its kind of root needs beside it.
    pub(super) mounts: Vec<mounts::Entry>,
}

/// `config.json`. Namespaces that are not named are those of the caller, the pod's shim: network, IPC, host name.
pub(super) fn config(
    container: &Container,
    nodes: &[Node],
    places: &ContainerPaths,
    facts: &Facts,
) -> Result<Value, BundleError> {
    if container.args.is_empty() {
        return Err(BundleError::Command);
    }
    let base = Base {
        is_privileged: container.privileged,
        has_cgroups: matches!(container.root, crate::runtime::spec::Root::Image(_)),
        shared_memory: &places.shared_memory,
        of_root: &places.mounts,
    };
    let mut namespaces = vec![json!({"type": "pid"}), json!({"type": "mount"})];
    if facts.has_unified_cgroups {
        namespaces.push(json!({"type": "cgroup"}));
    }
    let none: [&str; 0] = [];
    let (masked, read_only) = if container.privileged { (&none[..], &none[..]) } else { (&MASKED[..], &READ_ONLY[..]) };
    let mut config = json!({
        "ociVersion": "1.0.2",
        "process": process(container, facts),
        "root": {"path": places.root, "readonly": container.read_only_root},
        "mounts": mounts::all(container, &base)?,
        "linux": {
            "namespaces": namespaces,
            "cgroupsPath": places.cgroup,
            "devices": nodes.iter().map(Node::describe).collect::<Vec<_>>(),
            "resources": resources(container, nodes),
            "maskedPaths": masked,
            "readonlyPaths": read_only,
        },
    });
    if let Some(filter) = filter::filter(container) {
        config["linux"]["seccomp"] = filter;
    }
    Ok(config)
}

fn process(container: &Container, facts: &Facts) -> Value {
    let user = &container.user;
    let mut process = json!({
        "terminal": container.tty,
        "user": {"uid": user.uid, "gid": user.gid, "additionalGids": user.groups},
        "args": container.args,
        "env": environment(&container.env),
        "cwd": if container.cwd.is_empty() { "/" } else { &container.cwd },
        "noNewPrivileges": container.no_new_privileges,
        "capabilities": capabilities(container, facts),
        "rlimits": [{"type": "RLIMIT_NOFILE", "soft": facts.open_files, "hard": facts.open_files}],
    });
    if let Some(score) = container.oom_score {
        process["oomScoreAdj"] = json!(score.clamp(facts.least_oom_score, 1000));
    }
    process
}

/// Later entries over earlier ones; a path for programs in any case.
fn environment(env: &[(String, String)]) -> Vec<String> {
    let is_last = |index: usize, name: &str| !env[index + 1..].iter().any(|(later, _)| later == name);
    let mut list: Vec<_> = env
        .iter()
        .enumerate()
        .filter(|(index, (name, _))| is_last(*index, name))
        .map(|(_, (name, value))| format!("{name}={value}"))
        .collect();
    if !env.iter().any(|(name, _)| name == "PATH") {
        list.insert(0, format!("PATH={DEFAULT_PATH}"));
    }
    list
}

/// Other users than root keep theirs only as ambient ones, which must be inheritable too.
fn capabilities(container: &Container, facts: &Facts) -> Value {
    let mut all = if container.privileged { facts.capabilities.clone() } else { container.capabilities.clone() };
    all.sort();
    all.dedup();
    let none = Vec::new();
    let ambient = if container.user.uid == 0 { &none } else { &all };
    json!({"bounding": all, "effective": all, "permitted": all, "inheritable": ambient, "ambient": ambient})
}

fn resources(container: &Container, nodes: &[Node]) -> Value {
    let Resources { cpu_shares, cpu_quota_us: _, cpu_period_us: _, memory, pids } = &container.resources;
    let mut rules = vec![json!({"allow": container.privileged, "access": "rwm"})];
    if !container.privileged {
        rules.extend(nodes.iter().map(Node::rule));
    }
    let mut all = json!({"devices": rules});
    if let Some(shares) = cpu_shares.filter(|shares| *shares > 0) {
        all["cpu"]["shares"] = json!(shares.clamp(2, 262_144));
    }
    if let Some((quota, period)) = cgroup::quota(&container.resources) {
        all["cpu"]["quota"] = json!(quota);
        all["cpu"]["period"] = json!(signed(period));
    }
    if let Some(limit) = memory.filter(|limit| *limit > 0) {
        all["memory"]["limit"] = json!(signed(limit));
    }
    if let Some(limit) = pids.filter(|limit| *limit > 0) {
        all["pids"]["limit"] = json!(signed(limit));
    }
    all
}

/// Runtimes read limits as signed numbers.
fn signed(limit: u64) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
