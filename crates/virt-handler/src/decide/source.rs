//! The launcher that a guest is about to leave. It says how the guest is, and sends it; nothing else about the guest is changed
//! until it has arrived or stays.
//!
//! How the guest is:
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
//!
//! And its way. A guest whose instance is to be deleted does not leave any more; one that has left is brought to where it goes on, and
//! shut down there.
//!
//! | on its way | what else is seen | what is done |
//! |---|---|---|
//! | no | the instance is to be deleted | nothing: it ends here |
//! | no | refused, or tried too often, or unwanted | failed: it stays |
//! | no | the target can be reached | that it begins is written first |
//! | no | that is written | send |
//! | under way | unwanted | cancel, once |
//! | under way | the instance is to be deleted | nothing: its shutdown gives the migration up |
//! | under way or parted | | nothing: QEMU decides |
//! | cut | the target is there | settle |
//! | cut | the target has ended, or was asked too often | failed; only then it goes on here |
//! | given | the target is there | hand over, until the target has it |
//! | given | the target has ended | Failed: nobody can tell whether it had gone on there |
//! | stayed | | failed, with the reason |

use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use launcher_api::rpc::{End, State};

use super::moving::{Milestone, Moving, Way, tell};
use super::{Action, Launcher, Observed, Plan, act, enter, phase_after, stop_deleted, when_due};

pub(super) fn decide(vmi: &VirtualMachineInstance, seen: &Observed<'_>, now: Timestamp) -> Plan {
    let here = here(vmi, seen, now);
    let is_here = matches!(seen.way, Way::None | Way::Sending | Way::Stayed { .. });
    let is_over = here.phase.as_ref().is_some_and(Phase::is_final) || (vmi.is_marked_for_deletion() && is_here);
    let is_reached = matches!(seen.launcher, Launcher::Connected { .. });
    let Some(moving) = Moving::of(vmi).filter(|_| is_reached && !is_over) else { return here };
    let on_its_way = leave(&moving, seen, now);
    let action = if on_its_way.action == Action::Nothing { here.action } else { on_its_way.action };
    let again = here.again.into_iter().chain(on_its_way.again).min();
    Plan { action, phase: on_its_way.phase.or(here.phase), again, milestone: on_its_way.milestone }
}

/// How the guest is, and what keeps it well.
fn here(vmi: &VirtualMachineInstance, seen: &Observed<'_>, now: Timestamp) -> Plan {
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

/// The guest's way to the target.
fn leave(moving: &Moving<'_>, seen: &Observed<'_>, now: Timestamp) -> Plan {
    let attempts = seen.efforts.moving.with(moving.uid);
    match seen.way {
        Way::None if moving.is_unwanted() => moving.failed("the migration was cancelled"),
        Way::None if attempts.are_over() => moving.failed(attempts.why()),
        Way::None if moving.has_begun() => attempts.when_due(Action::Send, now),
        Way::None if moving.state.target_node_address.is_some() => tell(Milestone::Begun),
        Way::Sending if moving.is_unwanted() && !attempts.is_cancelled => act(Action::Cancel),
        Way::None | Way::Sending | Way::Parted => Plan::default(),
        Way::Cut if moving.target.is_none() => moving.failed("the target ended before it had the whole guest"),
        Way::Cut if attempts.are_over() => moving.failed(format!("the target cannot be reached: {}", attempts.why())),
        Way::Cut => attempts.when_due(Action::Settle, now),
        Way::Given { .. } if moving.target.is_none() => enter(Phase::Failed),
        Way::Given { .. } => attempts.when_due(Action::HandOver, now),
        Way::Stayed { why } => moving.failed(why),
    }
}
