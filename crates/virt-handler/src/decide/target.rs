//! A launcher that a guest may come to. Nothing boots in it, and whatever it says is not the instance's phase: that is said where the
//! guest is. It is let go with its instance, or when it has become an orphan.
//!
//! | launcher | what else is seen | what is done |
//! |---|---|---|
//! | any | its migration was not handed over yet | nothing: it waits for its turn |
//! | absent | | prepare |
//! | absent | refused, or tried too often | failed |
//! | awaits the guest | nobody was told | tell where it can be reached |
//! | awaits the guest, or ended without it | the source has ended | failed: the guest is lost |
//! | ended without it | nothing was sent | failed |
//! | has all of the guest | the source is there | nothing: the source hands it over |
//! | has all of the guest | the source has ended | take it: a guest that has parted has not run since |
//! | the guest runs, is paused, or has ended after that | | it has arrived |

use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use launcher_api::rpc::{End, State};

use super::moving::{Milestone, Moving, tell};
use super::{Action, Launcher, Observed, Plan};

/// Why a guest is lost whose source has ended too early.
const LOST: &str = "the source ended before the whole guest had arrived";

pub(super) fn decide(vmi: &VirtualMachineInstance, seen: &Observed<'_>, now: Timestamp) -> Plan {
    let moving = Moving::of(vmi).filter(|moving| moving.state.target_node.as_deref() == Some(seen.node));
    let Some(moving) = moving else { return Plan::default() };
    let attempts = seen.efforts.moving.with(moving.uid);
    let (state, end) = match seen.launcher {
        Launcher::None | Launcher::Connecting => return Plan::default(),
        Launcher::Gone { end } => (State::Ended, end.unwrap_or_default()),
        Launcher::Connected { state, end } => (state, end),
    };
    let source_is_gone = moving.source.is_none();
    match state {
        State::Absent if attempts.are_over() && !moving.has_begun() => moving.failed(attempts.why()),
        State::Absent if vmi.is_marked_for_deletion() || moving.is_unwanted() => Plan::default(),
        State::Absent => attempts.when_due(Action::Prepare, now),
        State::Awaiting if source_is_gone => moving.failed(LOST),
        State::Awaiting if moving.state.target_node_address.is_none() => tell(Milestone::Prepared),
        State::Loaded if source_is_gone => attempts.when_due(Action::Take, now),
        State::Awaiting | State::Loaded | State::Starting | State::Left | State::Unspecified => Plan::default(),
        State::Running | State::PausedByUser | State::PausedByIoError | State::PausedByQemu | State::Stopping => {
            tell(Milestone::Arrived)
        }
        State::Ended if !has_run(end) && source_is_gone => moving.failed(LOST),
        State::Ended if !has_run(end) && !moving.has_begun() => moving.failed("QEMU ended on the target"),
        State::Ended if !has_run(end) => Plan::default(),
        State::Ended => tell(Milestone::Arrived),
    }
}

/// Whether a guest that ended like this had gone on here before.
fn has_run(end: End) -> bool {
    match end {
        End::PoweredOff
        | End::Rebooted
        | End::Panicked
        | End::Killed
        | End::KilledFromOutside
        | End::OutOfMemory
        | End::Crashed
        | End::InternalError
        | End::KvmFailed => true,
        End::Unspecified | End::FailedToStart | End::Moved | End::NotTaken | End::OnTheWay => false,
    }
}
