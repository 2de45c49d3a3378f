//! The only launcher of an instance.
//!
//! | instance | launcher | guest | what is done |
//! |---|---|---|---|
//! | live | not reached yet | | nothing |
//! | live | gone | | Succeeded or Failed by how the guest ended, Failed if nobody knows |
//! | live | reached | ended | Succeeded or Failed |
//! | live, to be deleted | reached | alive | shut down; kill when the grace period is over |
//! | live, to be deleted | reached | absent | Failed: it never ran |
//! | Scheduled | reached | absent | start; Failed if that cannot succeed |
//! | Running | reached | absent | Failed: the guest is lost |
//! | live | reached | runs or is paused | Running; after an I/O error, resume with a growing wait; sync what has changed |
//! | live | reached | cut off on its way | it goes on here: the migration is on record as failed |
//! | live, to be deleted | reached | cut off on its way | the same, so that it can shut down; kill when the grace period is over |
//! | live | reached | between two launchers | nothing: the one that holds it says its phase |

use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use launcher_api::Outcome;
use launcher_api::rpc::{End, State};

use super::moving::Way;
use super::{Action, Efforts, Launcher, Observed, Plan, enter, phase_after, stop_deleted, time_left, when_due};

pub(super) fn decide(vmi: &VirtualMachineInstance, seen: &Observed<'_>, now: Timestamp) -> Plan {
    let (state, end) = match seen.launcher {
        Launcher::None | Launcher::Connecting => return Plan::default(),
        Launcher::Gone { end } => return enter(end.map_or(Phase::Failed, |end| phase_after(end, vmi))),
        Launcher::Connected { state, end } => (state, end),
    };
    let started = vmi.phase().is_running();
    match state {
        // It lives on in another launcher.
        State::Ended if matches!(end, End::Moved | End::NotTaken) => Plan::default(),
        State::Ended => enter(phase_after(end, vmi)),
        State::Absent if started || vmi.is_marked_for_deletion() => enter(Phase::Failed),
        State::Absent => start(seen.efforts, now),
        State::Left if *seen.way == Way::Cut && time_left(vmi, now) != Some(Duration::ZERO) => {
            come_back(vmi, seen, now)
        }
        _ if vmi.is_marked_for_deletion() => stop_deleted(vmi, state, seen.efforts, now),
        // A word of a newer launcher says nothing to us.
        State::Starting | State::Unspecified => Plan::default(),
        // Whoever holds the guest says how it is.
        State::Awaiting | State::Loaded | State::Left => Plan::default(),
        State::PausedByIoError => Plan { phase: Some(Phase::Running), ..when_due(Action::Resume, seen.efforts, now) },
        State::Running | State::PausedByUser | State::PausedByQemu if !seen.is_synced => {
            Plan { phase: Some(Phase::Running), ..when_due(Action::Sync, seen.efforts, now) }
        }
        State::Running | State::PausedByUser | State::PausedByQemu | State::Stopping => enter(Phase::Running),
    }
}

/// A guest that was cut off denies its shutdown until it is back.
fn come_back(vmi: &VirtualMachineInstance, seen: &Observed<'_>, now: Timestamp) -> Plan {
    let named = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref()?.migration_uid.as_deref());
    let back = seen.efforts.moving.with(named.unwrap_or_default()).when_due(Action::Return, now);
    Plan { again: back.again.into_iter().chain(time_left(vmi, now)).min(), ..back }
}

fn start(efforts: &Efforts, now: Timestamp) -> Plan {
    if matches!(efforts.outcome, Some(Outcome::Never(_))) {
        return enter(Phase::Failed);
    }
    when_due(Action::Start, efforts, now)
}
