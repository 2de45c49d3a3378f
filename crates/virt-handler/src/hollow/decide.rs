//! What a hollow handler does about an instance.

use std::time::Duration;

use api::conditions::{self, ConditionStatus};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Behaviour;
use super::fate::{Fate, Life};
use super::status::{has_ended, phase_of};

/// What is known of an instance on one of our nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) vmi: &'a VirtualMachineInstance,
    /// Its launcher.
    pub(super) pod: Option<&'a Pod>,
    pub(super) life: Life,
    pub(super) behaviour: &'a Behaviour,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Nothing,
    /// Look again after this long.
    Later(Duration),
    /// The guest is in another phase.
    Enter(Phase),
    /// The guest has ended, and so has its launcher.
    EndPod,
}

/// What a guest has to shut down, if its spec does not say.
const GRACE: Duration = Duration::from_secs(30);

/// # Guarantees
/// - An instance before `Scheduled` is left alone.
/// - A guest that has ended never runs again.
/// - A guest starts only in a launcher that runs and is to stay.
pub(super) fn decide(seen: &Seen<'_>, now: Timestamp) -> Plan {
    match seen.vmi.phase() {
        Phase::Scheduled | Phase::Running => live(seen, now),
        Phase::Succeeded | Phase::Failed => over(seen),
        Phase::Unset
        | Phase::Pending
        | Phase::Scheduling
        | Phase::WaitingForSync
        | Phase::Unknown
        | Phase::Other(_) => Plan::Nothing,
    }
}

fn live(seen: &Seen<'_>, now: Timestamp) -> Plan {
    let Seen { vmi, pod, .. } = *seen;
    if let Some(pod) = pod.filter(|pod| has_ended(pod)) {
        return Plan::Enter(if phase_of(pod) == "Succeeded" { Phase::Succeeded } else { Phase::Failed });
    }
    if let Some(Time(asked)) = &vmi.metadata.deletion_timestamp {
        return stopping(seen, *asked, now);
    }
    // A pod that is gone is virt-controller's to see.
    let Some(pod) = pod else { return Plan::Nothing };
    if let Some(Time(end)) = &pod.metadata.deletion_timestamp {
        return match vmi.phase() {
            Phase::Running => stopping(seen, *end - grace_of(pod), now),
            _ => Plan::Nothing,
        };
    }
    match vmi.phase() {
        Phase::Running => running(seen, now),
        _ if phase_of(pod) == "Running" => starting(seen, now),
        _ => Plan::Nothing,
    }
}

fn starting(seen: &Seen<'_>, now: Timestamp) -> Plan {
    let fails = seen.life.fate == Fate::FailToStart;
    let phase = if fails { Phase::Failed } else { Phase::Running };
    after(since(seen.vmi, now), seen.behaviour.start_delay, now, phase)
}

fn running(seen: &Seen<'_>, now: Timestamp) -> Plan {
    let listed = seen.vmi.status.as_ref().and_then(|status| status.conditions.as_deref());
    if conditions::has(listed, "Paused", &ConditionStatus::True) {
        return Plan::Nothing;
    }
    let phase = match seen.life.fate {
        Fate::Succeed => Phase::Succeeded,
        Fate::Crash => Phase::Failed,
        // One that runs has not failed to start, whatever its fate was.
        Fate::Stay | Fate::FailToStart | Fate::Hang => return Plan::Nothing,
    };
    after(since(seen.vmi, now), seen.life.run_for, now, phase)
}

/// A guest that is to shut down ends well, unless it has to be killed when its grace period is over. Without a grace period
/// it is killed at once, as was asked for.
fn stopping(seen: &Seen<'_>, asked: Timestamp, now: Timestamp) -> Plan {
    let grace = seen.vmi.spec.termination_grace_period_seconds;
    let grace = grace.map_or(GRACE, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    let takes = Some(seen.behaviour.stop_delay).filter(|_| seen.life.fate != Fate::Hang);
    let (takes, killed) = match takes {
        Some(takes) if takes <= grace => (takes, false),
        _ => (grace, !grace.is_zero()),
    };
    after(asked, takes, now, if killed { Phase::Failed } else { Phase::Succeeded })
}

/// An instance that is deleted takes its pod with it; any other leaves one that has ended.
fn over(seen: &Seen<'_>) -> Plan {
    let live = |pod: &&Pod| !has_ended(pod) && pod.metadata.deletion_timestamp.is_none();
    if seen.vmi.is_marked_for_deletion() || seen.pod.filter(live).is_none() { Plan::Nothing } else { Plan::EndPod }
}

/// When it came into its phase.
fn since(vmi: &VirtualMachineInstance, now: Timestamp) -> Timestamp {
    let listed = vmi.status.as_ref().and_then(|status| status.phase_transition_timestamps.as_deref());
    let entered = listed.unwrap_or_default().iter().rfind(|one| one.phase.as_ref() == Some(vmi.phase()));
    let entered = entered.and_then(|one| one.phase_transition_timestamp.as_ref());
    entered.or(vmi.metadata.creation_timestamp.as_ref()).map_or(now, |Time(at)| *at)
}

fn grace_of(pod: &Pod) -> Duration {
    let seconds = pod.metadata.deletion_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

fn after(since: Timestamp, delay: Duration, now: Timestamp, phase: Phase) -> Plan {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    match delay.checked_sub(passed).filter(|rest| !rest.is_zero()) {
        Some(rest) => Plan::Later(rest),
        None => Plan::Enter(phase),
    }
}

#[cfg(test)]
mod tests;
