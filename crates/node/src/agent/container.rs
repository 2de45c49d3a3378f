//! From a container of a pod to what the runtime is given: nothing is looked up any more.

pub(super) mod environment;
pub(super) mod expand;
pub(super) mod fields;
pub(super) mod resources;
mod security;
mod unsupported;
pub(super) mod user;

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use storage::images::Config;

use super::parts::{Failure, Held};
use crate::runtime::spec::{self, Device, Mount, Root};

/// The search path of a container whose image has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const SIGTERM: i32 = 15;

/// Why a container cannot be made as it is asked for. Trying again helps only after something else changes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MakeError {
    #[error("no command specified")]
    NoCommand,
    #[error("container has runAsNonRoot and image will run as root (pod: {pod:?}, container: {container})")]
    Root { pod: String, container: String },
    #[error("{0}")]
    User(Failure),
    #[error("{kind} {name:?} not found")]
    NoSource { kind: &'static str, name: String },
    #[error("couldn't find key {key} in {kind} {name}")]
    NoKey { kind: &'static str, name: String, key: String },
    #[error("env {name}: unsupported fieldPath {path:?}")]
    Field { name: String, path: String },
    #[error("env {name}: unsupported resource {resource:?}")]
    Resource { name: String, resource: String },
    #[error("containers of the machine's own programs cannot be privileged")]
    Privileged,
    #[error("{0} is not supported on this node")]
    Unsupported(String),
}

/// What it is made from.
pub(super) struct Making<'a> {
    pub(super) pod: &'a Pod,
    pub(super) spec: &'a PodSpec,
    pub(super) container: &'a Container,
    pub(super) attempt: u32,
    pub(super) source: Source<'a>,
    /// Its own variables, from [`environment::environment`].
    pub(super) env: Vec<(String, String)>,
    pub(super) hostname: String,
    pub(super) mounts: Vec<Mount>,
    pub(super) devices: Vec<Device>,
    /// The node's memory, for its place among those that are ended when memory is short.
    pub(super) memory: u64,
    /// The file of its last words.
    pub(super) termination: PathBuf,
}

/// What is in it.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Image(&'a Held),
    /// This machine's own programs, as a user of the pod's own.
    Machine {
        files: &'a [(PathBuf, PathBuf)],
        user: u32,
    },
}

/// Makes it.
pub(super) fn make(making: Making<'_>) -> Result<spec::Container, MakeError> {
    let machine = Config::default();
    let config = match making.source {
        Source::Image(held) => &held.config,
        Source::Machine { .. } => &machine,
    };
    let container = making.container;
    if let Some(path) = unsupported::unsupported(making.pod, making.spec, container) {
        return Err(MakeError::Unsupported(path));
    }
    let user = user::user(&making)?;
    let security = security::security(&making, user.uid)?;
    let args = arguments(container, config, &making.env)?;
    let cwd = container.working_dir.clone().filter(|folder| !folder.is_empty());
    let fallback = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
    Ok(spec::Container {
        name: container.name.clone(),
        attempt: making.attempt,
        root: match making.source {
            Source::Image(held) => Root::Image(held.root.clone()),
            Source::Machine { files, .. } => Root::Machine { files: files.to_vec() },
        },
        args,
        cwd: cwd.unwrap_or_else(|| config.working_dir.clone()),
        user,
        capabilities: security.capabilities,
        no_new_privileges: security.no_new_privileges,
        read_only_root: security.read_only_root,
        privileged: security.privileged,
        filtered: security.filtered,
        resources: resources::of_container(container),
        oom_score: Some(resources::oom_score(making.pod, container, making.memory)),
        tty: container.tty == Some(true),
        termination_message: Some(making.termination),
        message_from_log: fallback,
        env: with_defaults(config, &making.hostname, making.env),
        mounts: making.mounts,
        devices: making.devices,
    })
}

fn arguments(container: &Container, config: &Config, env: &[(String, String)]) -> Result<Vec<String>, MakeError> {
    let own = |list: &Option<Vec<String>>| {
        let list = list.as_deref().filter(|list| !list.is_empty());
        list.map(|list| list.iter().map(|text| expand::expand(text, env)).collect::<Vec<_>>())
    };
    let args = match (own(&container.command), own(&container.args)) {
        (Some(command), args) => [command, args.unwrap_or_default()].concat(),
        (None, Some(args)) => [config.entrypoint.clone(), args].concat(),
        (None, None) => [config.entrypoint.clone(), config.cmd.clone()].concat(),
    };
    if args.is_empty() { Err(MakeError::NoCommand) } else { Ok(args) }
}

/// The image's variables, those that every container has, and its own over both.
fn with_defaults(config: &Config, hostname: &str, own: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        vec![("PATH".to_owned(), PATH.to_owned()), ("HOSTNAME".to_owned(), hostname.to_owned())];
    for (name, value) in config.env.iter().cloned().chain(own) {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => all.push((name, value)),
        }
    }
    all
}

/// The signal that asks a container to end: what its image says, or SIGTERM.
pub(super) fn stop_signal(config: &Config) -> i32 {
    let name = config.stop_signal.as_deref().unwrap_or_default().trim().trim_start_matches("SIG");
    let known = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("KILL", 9),
        ("USR1", 10),
        ("USR2", 12),
        ("TERM", SIGTERM),
        ("WINCH", 28),
        ("PWR", 30),
        ("RTMIN+3", 37),
    ];
    let by_name = known.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
    by_name.or_else(|| name.parse().ok().filter(|signal| (1..=64).contains(signal))).unwrap_or(SIGTERM)
}

#[cfg(test)]
mod tests;
