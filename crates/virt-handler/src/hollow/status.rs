//! What is written: the status of an instance in a new phase, and of a launcher that has ended.

use api::conditions::{self, ConditionStatus};
use api::vmi::{StartStrategy, VirtualMachineInstance};
use api::vmi_status::{
    VirtualMachineInstanceCondition as Condition, VirtualMachineInstanceNetworkInterface as InterfaceStatus,
    VirtualMachineInstancePhase as Phase, VirtualMachineInstancePhaseTransitionTimestamp as Transition,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

const READY: &str = "Ready";
const PAUSED: &str = "Paused";
/// Why an instance is not ready while its guest does not run.
const GUEST_NOT_RUNNING: &str = "GuestNotRunning";

/// The time as the API has it.
pub(super) fn whole_second(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The pod's phase.
pub(super) fn phase_of(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Whether the pod's containers have ended for good.
pub(super) fn has_ended(pod: &Pod) -> bool {
    matches!(phase_of(pod), "Succeeded" | "Failed")
}

/// A merge patch that takes an instance, as it was seen, into a phase.
///
/// # Guarantees
/// - It applies only to the version that was seen: what it replaces is what it was made from.
/// - What it does not name stays as it is, finalizers above all.
pub(super) fn enter(vmi: &VirtualMachineInstance, pod: Option<&Pod>, phase: &Phase, now: Timestamp) -> Value {
    let old = vmi.status.clone().unwrap_or_default();
    let mut transitions = old.phase_transition_timestamps.unwrap_or_default();
    transitions.push(Transition { phase: Some(phase.clone()), phase_transition_timestamp: Some(whole_second(now)) });
    let mut conditions = old.conditions;
    let mut status = json!({ "phase": phase, "phaseTransitionTimestamps": transitions });
    if *phase == Phase::Running {
        started(vmi, &mut conditions, now);
        status["interfaces"] = json!(interfaces(vmi, pod));
    } else {
        stopped(&mut conditions, now);
    }
    status["conditions"] = json!(conditions);
    json!({
        "metadata": { "uid": vmi.metadata.uid, "resourceVersion": vmi.metadata.resource_version },
        "status": status,
    })
}

/// An instance is handed over when its pod is ready: what it still waits for is the guest.
fn started(vmi: &VirtualMachineInstance, conditions: &mut Option<Vec<Condition>>, now: Timestamp) {
    if vmi.spec.start_strategy == Some(StartStrategy::Paused) {
        let paused = condition(PAUSED, ConditionStatus::True, "PausedByUser", "VMI was paused by user");
        set(conditions, paused, now);
        set(conditions, not_running(), now);
        return;
    }
    let waits = conditions::find(conditions.as_deref(), READY)
        .is_some_and(|one| one.status == ConditionStatus::False && one.reason.as_deref() == Some(GUEST_NOT_RUNNING));
    if waits {
        let ready = Condition { type_: READY.to_owned(), status: ConditionStatus::True, ..Condition::default() };
        set(conditions, ready, now);
    }
}

fn stopped(conditions: &mut Option<Vec<Condition>>, now: Timestamp) {
    conditions::remove(conditions, PAUSED);
    if conditions::has(conditions.as_deref(), READY, &ConditionStatus::True) {
        set(conditions, not_running(), now);
    }
}

fn not_running() -> Condition {
    condition(READY, ConditionStatus::False, GUEST_NOT_RUNNING, "Guest VM is not reported as running")
}

fn condition(kind: &str, status: ConditionStatus, reason: &str, message: &str) -> Condition {
    let (reason, message) = (Some(reason.to_owned()), Some(message.to_owned()));
    Condition { type_: kind.to_owned(), status, reason, message, ..Condition::default() }
}

fn set(conditions: &mut Option<Vec<Condition>>, condition: Condition, now: Timestamp) {
    conditions::set(conditions, condition, whole_second(now).0);
}

/// The interfaces of the spec; the one on the pod's network has the pod's addresses. What is known of one already stays.
fn interfaces(vmi: &VirtualMachineInstance, pod: Option<&Pod>) -> Vec<InterfaceStatus> {
    let known = vmi.status.as_ref().and_then(|status| status.interfaces.as_deref()).unwrap_or_default();
    let networks = vmi.spec.networks.as_deref().unwrap_or_default();
    let addresses = addresses(pod);
    let wanted = vmi.spec.domain.devices.interfaces.as_deref().unwrap_or_default();
    wanted
        .iter()
        .map(|interface| {
            let old = known.iter().find(|one| one.name.as_ref() == Some(&interface.name)).cloned().unwrap_or_default();
            let on_pod_network = networks.iter().any(|one| one.name == interface.name && one.pod.is_some());
            let own = if on_pod_network { addresses.clone() } else { Vec::new() };
            InterfaceStatus {
                name: Some(interface.name.clone()),
                mac: interface.mac_address.clone().or(old.mac),
                info_source: Some("domain".to_owned()),
                queue_count: old.queue_count.or(Some(1)),
                ip_address: own.first().cloned(),
                ip_addresses: Some(own).filter(|own| !own.is_empty()),
                ..old
            }
        })
        .collect()
}

fn addresses(pod: Option<&Pod>) -> Vec<String> {
    let Some(status) = pod.and_then(|pod| pod.status.as_ref()) else { return Vec::new() };
    let mut all: Vec<String> = status.pod_ips.iter().flatten().map(|one| one.ip.clone()).collect();
    if all.is_empty() {
        all.extend(status.pod_ip.clone());
    }
    all
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
            "conditions": [falls(READY), falls("ContainersReady")],
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
