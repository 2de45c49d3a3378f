//! A pod and its containers, as decisions look at them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::output;
use super::record::{End, Record};
use crate::runtime::spec::{ContainerState, PodState};

/// Where a container is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum At<'a> {
    /// Nobody asked for it, or the one who asked was cut short: it is to be started as this attempt.
    Absent {
        attempt: u32,
    },
    /// About to run.
    Created,
    Running {
        attempt: u32,
        id: &'a str,
        started_at: Timestamp,
    },
    /// It ran.
    Ended(&'a End),
}

impl At<'_> {
    pub(super) fn is_alive(self) -> bool {
        matches!(self, Self::Created | Self::Running { .. })
    }
}

/// Where a container is, by the record and what the shim tells.
pub(super) fn at<'a>(record: &'a Record, state: Option<&'a PodState>, name: &str) -> At<'a> {
    let Some(kept) = record.containers.get(name) else { return At::Absent { attempt: 0 } };
    if let Some(end) = &kept.end {
        return At::Ended(end);
    }
    let known = state.filter(|state| !state.lost).and_then(|state| state.containers.get(name));
    match known {
        Some(ContainerState::Created { attempt }) if *attempt == kept.attempt => At::Created,
        Some(ContainerState::Running { attempt, id, started_at, .. }) if *attempt == kept.attempt => {
            At::Running { attempt: *attempt, id, started_at: *started_at }
        }
        _ => At::Absent { attempt: kept.attempt },
    }
}

/// Init containers; not those that have no process, which nobody starts or waits for.
pub(super) fn init_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().filter(|container| !output::is_output(container))
}

/// All containers, in the order in which they start.
pub(super) fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    init_containers(spec).chain(&spec.containers)
}

/// An init container that goes on running beside the others.
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

pub(super) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

pub(super) fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// How long the pod may take to end.
pub(super) fn grace(pod: &Pod) -> Duration {
    let of_spec = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let seconds = pod.metadata.deletion_grace_period_seconds.or(of_spec).unwrap_or(30);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Whether a container that ended so is started again.
pub(super) fn restarts(spec: &PodSpec, container: &Container, end: &End) -> bool {
    let init = init_containers(spec).any(|one| one.name == container.name);
    if is_sidecar(container) {
        return true;
    }
    match spec.restart_policy.as_deref() {
        Some("Never") => false,
        Some("OnFailure") => end.exit_code != 0,
        _ => !init || end.exit_code != 0,
    }
}

/// Pods with the machine's network have its addresses.
pub(super) fn uses_host_network(spec: &PodSpec) -> bool {
    spec.host_network == Some(true)
}

/// What an image is fetched for: a volume.
pub(super) fn volume_key(volume: &str) -> String {
    format!("volume/{volume}")
}

/// Names of volumes that are images.
pub(super) fn image_volumes(spec: &PodSpec) -> impl Iterator<Item = &str> {
    let volumes = spec.volumes.iter().flatten();
    volumes.filter(|volume| volume.image.is_some()).map(|volume| volume.name.as_str())
}
