//! What is written about a launcher that has ended: a kubelet would.

use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};
use manager::writing::whole_second;
use serde_json::{Value, json};

/// The pod's phase.
pub(super) fn phase_of(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Whether the pod's containers have ended for good.
pub(super) fn has_ended(pod: &Pod) -> bool {
    matches!(phase_of(pod), "Succeeded" | "Failed")
}

/// A strategic patch that ends a pod as its guest has ended.
pub(super) fn ended(pod: &Pod, vmi: &VirtualMachineInstance, now: Timestamp) -> Value {
    let well = *vmi.phase() == Phase::Succeeded;
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let statuses: Vec<ContainerStatus> = statuses.iter().map(|one| terminated(one, well, now)).collect();
    let reason = if well { "PodCompleted" } else { "PodFailed" };
    let falls = |kind: &str| json!({ "type": kind, "status": "False", "reason": reason, "lastTransitionTime": whole_second(now) });
    json!({
        "metadata": { "uid": pod.metadata.uid },
        "status": {
            "phase": if well { "Succeeded" } else { "Failed" },
            "conditions": [falls("Ready"), falls("ContainersReady")],
            "containerStatuses": statuses,
        },
    })
}

fn terminated(old: &ContainerStatus, well: bool, now: Timestamp) -> ContainerStatus {
    let running = old.state.as_ref().and_then(|state| state.running.as_ref());
    let end = ContainerStateTerminated {
        exit_code: i32::from(!well),
        reason: Some(if well { "Completed" } else { "Error" }.to_owned()),
        started_at: running.and_then(|running| running.started_at.clone()),
        finished_at: Some(whole_second(now)),
        ..ContainerStateTerminated::default()
    };
    let state = Some(ContainerState { terminated: Some(end), ..ContainerState::default() });
    ContainerStatus { ready: false, started: Some(false), state, ..old.clone() }
}

#[cfg(test)]
mod tests;
