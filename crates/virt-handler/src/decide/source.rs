//! The launcher that a guest is about to leave. It says how the guest is, and no more than that is changed: a guest that is on its
//! way stays what it is until it has arrived.
//!
//! | instance | launcher | guest | what is done |
//! |---|---|---|---|
//! | live | not reached yet | | nothing |
//! | live | gone | ended here | Succeeded or Failed |
//! | live | gone | nobody knows | nothing: it may have left before |
//! | live | reached | ended here | Succeeded or Failed |
//! | live | reached | has left, moved, or ended on the way | nothing: whoever has it says how it is |
//! | live, to be deleted | reached | alive and here | shut down; kill when the grace period is over |
//! | Scheduled | reached | absent | nothing: it is started when the migration is over |
//! | Running | reached | absent | Failed: the guest is lost |
//! | live | reached | runs or is paused | Running; after an I/O error, resume with a growing wait |

use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use launcher_api::rpc::{End, State};

use super::{Action, Launcher, Observed, Plan, enter, phase_after, stop_deleted, when_due};

pub(super) fn decide(vmi: &VirtualMachineInstance, seen: &Observed<'_>, now: Timestamp) -> Plan {
    let (state, end) = match seen.launcher {
        Launcher::None | Launcher::Connecting | Launcher::Gone { end: None } => return Plan::default(),
        Launcher::Gone { end: Some(end) } => (State::Ended, end),
        Launcher::Connected { state, end } => (state, end),
    };
    match state {
        State::Ended if matches!(end, End::Moved | End::NotTaken | End::OnTheWay) => Plan::default(),
        State::Ended => enter(phase_after(end, vmi)),
        State::Absent if vmi.phase().is_running() => enter(Phase::Failed),
        State::Absent | State::Awaiting | State::Loaded | State::Left => Plan::default(),
        _ if vmi.is_marked_for_deletion() => stop_deleted(vmi, state, seen.efforts, now),
        State::Starting | State::Unspecified => Plan::default(),
        State::PausedByIoError => Plan { phase: Some(Phase::Running), ..when_due(Action::Resume, seen.efforts, now) },
        State::Running | State::PausedByUser | State::PausedByQemu | State::Stopping => enter(Phase::Running),
    }
}
