//! The conditions of an instance that virt-handler writes. Whether it is ready is virt-controller's to say; what the start
//! and the end of the guest make of it is told here, so that it takes one write.

use api::conditions::{self, ConditionStatus};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstanceCondition as Condition;
use jiff::Timestamp;
use launcher_api::Outcome;
use launcher_api::rpc::State;
use manager::writing::whole_second;

use super::{Facts, cut, migration};

const READY: &str = "Ready";
const PAUSED: &str = "Paused";
const AGENT_CONNECTED: &str = "AgentConnected";
const LIVE_MIGRATABLE: &str = "LiveMigratable";
const STORAGE_LIVE_MIGRATABLE: &str = "StorageLiveMigratable";
const SOFTWARE_EMULATION: &str = "SoftwareEmulation";
const MIGRATION_REQUIRED: &str = "MigrationRequired";
/// KubeVirt has it on VMs, which take it over from their instance.
const RESTART_REQUIRED: &str = "RestartRequired";
const SYNCHRONIZED: &str = "Synchronized";
/// Why an instance is not ready while its guest does not run.
const GUEST_NOT_RUNNING: &str = "GuestNotRunning";
/// KubeVirt's own words, which others look for.
const PAUSED_BY_IO_ERROR: &str = "PausedIOError";
const IO_ERROR: &str = "VMI was paused, low-level IO error detected";
const SYNC_FAILED: &str = "Synchronizing with the Domain failed.";

/// Whether the guest could be made what the instance says.
pub(super) fn synchronized(vmi: &mut VirtualMachineInstance, outcome: Option<&Outcome>, now: Timestamp) {
    match outcome {
        Some(failed @ (Outcome::Retry { .. } | Outcome::Never(_))) => {
            set(vmi, SYNCHRONIZED, false, (SYNC_FAILED, &failed.to_string()), now);
        }
        None | Some(Outcome::Done | Outcome::NeedsMigration(_) | Outcome::NeedsRestart(_)) => {
            remove(vmi, SYNCHRONIZED);
        }
    }
}

/// What would make the guest what the instance says: a migration, or its next start.
pub(super) fn waiting(vmi: &mut VirtualMachineInstance, outcome: Option<&Outcome>, now: Timestamp) {
    let why = outcome.map(ToString::to_string).unwrap_or_default();
    let (migration, restart) = match outcome {
        Some(Outcome::NeedsMigration(_)) => (true, false),
        Some(Outcome::NeedsRestart(_)) => (false, true),
        Some(Outcome::Done | Outcome::Never(_)) => (false, false),
        // Until the launcher is asked again, what it said last counts, be it to another process of ours. A guest that has moved since
        // has had its migration.
        Some(Outcome::Retry { .. }) => return,
        None => return remove(vmi, MIGRATION_REQUIRED),
    };
    for (kind, reason, waits) in
        [(MIGRATION_REQUIRED, "NeedsMigration", migration), (RESTART_REQUIRED, "NeedsRestart", restart)]
    {
        if waits { set(vmi, kind, true, (reason, &why), now) } else { remove(vmi, kind) }
    }
}

/// What is true of a guest that runs.
pub(super) fn running(vmi: &mut VirtualMachineInstance, entered: bool, facts: &Facts<'_>, now: Timestamp) {
    let Some(domain) = facts.domain else { return };
    match domain.state() {
        State::PausedByUser => set(vmi, PAUSED, true, ("PausedByUser", "VMI was paused by user"), now),
        State::PausedByIoError => {
            let message = match domain.reason.as_str() {
                "" => IO_ERROR.to_owned(),
                why => format!("{IO_ERROR}: {why}"),
            };
            set(vmi, PAUSED, true, (PAUSED_BY_IO_ERROR, &message), now);
        }
        State::PausedByQemu => set(vmi, PAUSED, true, ("PausedByQEMU", "VMI was paused by QEMU"), now),
        _ => remove(vmi, PAUSED),
    }
    if domain.agent_connected {
        set(vmi, AGENT_CONNECTED, true, ("", ""), now);
    } else {
        remove(vmi, AGENT_CONNECTED);
    }
    if facts.is_emulated {
        let why = ("SoftwareEmulation", "the node has no usable KVM: the guest is emulated, which is slow");
        set(vmi, SOFTWARE_EMULATION, true, why, now);
    } else {
        remove(vmi, SOFTWARE_EMULATION);
    }
    match migration::why_not(vmi, facts) {
        Some((reason, message)) => set(vmi, LIVE_MIGRATABLE, false, (reason, &message), now),
        None => set(vmi, LIVE_MIGRATABLE, true, ("", ""), now),
    }
    // Whether its volumes can be moved to other claims while it runs.
    set(vmi, STORAGE_LIVE_MIGRATABLE, false, ("NotMigratable", "volumes cannot be moved to other claims yet"), now);
    if entered && is_paused(domain.state()) {
        set(vmi, READY, false, not_running(), now);
    } else if entered && waits_for_guest(vmi) {
        set(vmi, READY, true, ("", ""), now);
    }
}

/// Why a disk's failure has stopped the guest, if one has.
pub(super) fn io_error(vmi: &VirtualMachineInstance) -> Option<&str> {
    let paused = conditions::find(vmi.status.as_ref()?.conditions.as_deref(), PAUSED)?;
    let is_so = paused.status == ConditionStatus::True && paused.reason.as_deref() == Some(PAUSED_BY_IO_ERROR);
    paused.message.as_deref().filter(|_| is_so)
}

/// What is left when the guest has ended.
pub(super) fn ended(vmi: &mut VirtualMachineInstance, facts: &Facts<'_>, now: Timestamp) {
    remove(vmi, PAUSED);
    remove(vmi, AGENT_CONNECTED);
    let listed = vmi.status.as_ref().and_then(|status| status.conditions.as_deref());
    if conditions::has(listed, READY, &ConditionStatus::True) {
        set(vmi, READY, false, not_running(), now);
    }
    // Why it never ran is all that tells what to do about it.
    synchronized(vmi, facts.outcome, now);
}

fn is_paused(state: State) -> bool {
    matches!(state, State::PausedByUser | State::PausedByIoError | State::PausedByQemu)
}

/// Whether the guest is all that the instance still waits for: it was handed over when its pod was ready, but for a probe that
/// asks the guest.
fn waits_for_guest(vmi: &VirtualMachineInstance) -> bool {
    if vmi.spec.readiness_probe.is_some() {
        return false;
    }
    let listed = vmi.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions::find(listed, READY)
        .is_some_and(|one| one.status == ConditionStatus::False && one.reason.as_deref() == Some(GUEST_NOT_RUNNING))
}

fn not_running() -> (&'static str, &'static str) {
    (GUEST_NOT_RUNNING, "Guest VM is not reported as running")
}

fn set(vmi: &mut VirtualMachineInstance, kind: &str, holds: bool, (reason, message): (&str, &str), now: Timestamp) {
    let text = |text: &str| Some(cut(text)).filter(|text| !text.is_empty());
    let condition = Condition {
        type_: kind.to_owned(),
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        reason: text(reason),
        message: text(message),
        ..Condition::default()
    };
    let known = &mut vmi.status.get_or_insert_default().conditions;
    // Somebody else's way of saying the same, such as a time of the last probe, is no reason to write.
    let same = conditions::find(known.as_deref(), kind).is_some_and(|known| {
        known.status == condition.status && known.reason == condition.reason && known.message == condition.message
    });
    if !same {
        conditions::set(known, condition, whole_second(now).0);
    }
}

fn remove(vmi: &mut VirtualMachineInstance, kind: &str) {
    if let Some(status) = &mut vmi.status {
        conditions::remove(&mut status.conditions, kind);
    }
}
