//! The conditions of an instance that virt-controller writes. All others are the handler's, and stay as they are.

use api::conditions::{self, ConditionStatus};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::{VirtualMachineInstanceCondition, VirtualMachineInstancePhase as Phase};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use manager::writing::whole_second;

use super::pods;
use super::volumes::Readiness;

const READY: &str = "Ready";
const POD_SCHEDULED: &str = "PodScheduled";
const SYNCHRONIZED: &str = "Synchronized";
const PROVISIONING: &str = "Provisioning";
const DATA_VOLUMES_READY: &str = "DataVolumesReady";
const EVICTION_REQUESTED: &str = "EvictionRequested";

/// That nothing runs yet; what an instance is born with.
#[must_use]
pub(crate) fn not_running() -> (&'static str, &'static str) {
    ("GuestNotRunning", "Guest VM is not reported as running")
}

fn set(vmi: &mut VirtualMachineInstance, kind: &str, holds: bool, why: (&str, &str), now: Timestamp) -> bool {
    let (reason, message) = why;
    let condition = VirtualMachineInstanceCondition {
        type_: kind.to_owned(),
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
        message: Some(message.to_owned()).filter(|message| !message.is_empty()),
        ..VirtualMachineInstanceCondition::default()
    };
    let known = &mut vmi.status.get_or_insert_default().conditions;
    // Somebody else's way of saying the same, such as a time of the last probe, is no reason to write.
    let same = conditions::find(known.as_deref(), kind).is_some_and(|known| {
        known.status == condition.status && known.reason == condition.reason && known.message == condition.message
    });
    !same && conditions::set(known, condition, whole_second(now).0)
}

fn remove(vmi: &mut VirtualMachineInstance, kind: &str) {
    if let Some(status) = &mut vmi.status {
        conditions::remove(&mut status.conditions, kind);
    }
}

/// Whether the guest can be used.
pub(super) fn ready(vmi: &mut VirtualMachineInstance, pod: Option<&Pod>, now: Timestamp) {
    let young = matches!(vmi.phase(), Phase::Unset | Phase::Pending);
    let (holds, why) = match pod {
        None if young => (false, not_running()),
        None => (false, ("PodNotExists", "virt-launcher pod does not exist")),
        Some(pod) if pods::is_terminating(pod) => (false, ("PodTerminating", "virt-launcher pod is terminating")),
        Some(_) if !vmi.is_running() => (false, not_running()),
        Some(_) if pods::is_paused(vmi) => (false, ("ReadinessGatesNotReady", "the guest is paused")),
        Some(pod) if pods::waits_for_others(pod) => {
            (false, ("ReadinessGatesNotReady", "a readiness gate of the virt-launcher pod is not true"))
        }
        Some(pod) if !pods::are_containers_ready(pod) => {
            (false, ("ContainersNotReady", "containers of the virt-launcher pod are not ready"))
        }
        Some(_) => (true, ("", "")),
    };
    set(vmi, READY, holds, why, now);
}

/// What keeps the pod from a node, if anything does.
pub(super) fn pod_scheduled(vmi: &mut VirtualMachineInstance, pod: &Pod, now: Timestamp) {
    match pods::condition(pod, POD_SCHEDULED).filter(|condition| condition.status == "False") {
        Some(condition) => {
            let reason = condition.reason.as_deref().unwrap_or_default();
            let message = condition.message.as_deref().unwrap_or_default();
            set(vmi, POD_SCHEDULED, false, (reason, message), now);
        }
        None => remove(vmi, POD_SCHEDULED),
    }
}

/// That what is asked for cannot be done now. Returns whether that is news.
pub(super) fn not_synchronized(vmi: &mut VirtualMachineInstance, reason: &str, message: &str, now: Timestamp) -> bool {
    set(vmi, SYNCHRONIZED, false, (reason, message), now)
}

/// Nothing is in the way.
pub(super) fn forget_synchronized(vmi: &mut VirtualMachineInstance) {
    remove(vmi, SYNCHRONIZED);
}

/// The node takes over, or it is over: what was about the way there no longer matters.
pub(super) fn forget_start(vmi: &mut VirtualMachineInstance) {
    for kind in [POD_SCHEDULED, SYNCHRONIZED, PROVISIONING] {
        remove(vmi, kind);
    }
}

/// Whether the instance is to leave its node.
pub(super) fn eviction_requested(vmi: &mut VirtualMachineInstance, is_marked: bool, now: Timestamp) {
    match is_marked {
        true => _ = set(vmi, EVICTION_REQUESTED, true, (EVICTION_REQUESTED, "VMI is marked for eviction"), now),
        false => remove(vmi, EVICTION_REQUESTED),
    }
}

/// How the volumes are.
pub(super) fn volumes(vmi: &mut VirtualMachineInstance, readiness: &Readiness, now: Timestamp) {
    let has_data_volumes = vmi.spec.volumes.iter().flatten().any(|volume| volume.data_volume.is_some());
    if has_data_volumes {
        let ready = matches!(readiness, Readiness::Ready);
        let why = match ready {
            true => ("AllDVsReady", "All of the VMI's DVs are bound and not running"),
            false => ("NotAllDVsReady", "Not all of the VMI's DVs are ready"),
        };
        set(vmi, DATA_VOLUMES_READY, ready, why, now);
    }
    match readiness {
        Readiness::NeedsConsumer { message } | Readiness::Waits { message } => {
            set(vmi, PROVISIONING, true, ("VolumesNotReady", message), now);
        }
        Readiness::Ready | Readiness::Missing { .. } | Readiness::Failed { .. } => remove(vmi, PROVISIONING),
    }
    match readiness {
        Readiness::Missing { message } => {
            set(vmi, POD_SCHEDULED, false, ("Unschedulable", message), now);
        }
        _ => remove(vmi, POD_SCHEDULED),
    }
    if matches!(readiness, Readiness::NeedsConsumer { .. } | Readiness::Waits { .. }) {
        forget_synchronized(vmi);
    }
}
