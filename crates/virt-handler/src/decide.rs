//! What virt-handler does about one launcher of one instance: a table from what is seen to one action and, perhaps, another phase.
//!
//! What a launcher is to its instance (`virt_rules::launchers`) decides which table that is:
//!
//! | role | file | says the phase |
//! |---|---|---|
//! | sole | [`sole`] | yes |
//! | source | [`source`] | yes, as long as the guest is here |
//! | target | [`target`] | never |
//! | orphan, or the instance is gone | [`orphan`] | never |
//!
//! What all of them share is here: an instance that is final lets all its launchers go.
//!
//! | instance | launcher | guest | what is done |
//! |---|---|---|---|
//! | any | not reached yet | | nothing |
//! | final | reached | alive | kill |
//! | final | reached | ended or absent | let the launcher go |
//! | final | gone, or none | | clean up |

mod moving;
mod orphan;
mod sole;
mod source;
mod target;

use std::time::Duration;

use api::names::label;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use launcher_api::Outcome;
use launcher_api::rpc::{End, State};
use virt_rules::launchers::Role;

pub(crate) use moving::{Attempts, Milestone, Moving, Way};

/// What is known of a launcher and its instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed<'a> {
    /// The launcher's node.
    pub(crate) node: &'a str,
    /// What it is to its instance; an orphan without one.
    pub(crate) role: Role,
    /// None if the API server knows no instance of this UID.
    pub(crate) vmi: Option<&'a VirtualMachineInstance>,
    pub(crate) launcher: Launcher,
    pub(crate) efforts: &'a Efforts,
    /// What a guest has to shut down whose instance is gone.
    pub(crate) grace: Duration,
    /// The launcher was told the instance as it is now.
    pub(crate) is_synced: bool,
    /// How far the launcher has sent its guest with the migration that the instance names.
    pub(crate) way: &'a Way,
}

/// What is known of a launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// Nothing, and nothing is to be known.
    None,
    /// It was not reached yet, or not again.
    Connecting,
    Connected {
        state: State,
        end: End,
    },
    /// It ended or does not answer any more, and how its guest had ended, if it had.
    Gone {
        end: Option<End>,
    },
}

/// What this process did about a launcher so far, and must not do too often.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Efforts {
    /// When the instance was seen to be gone.
    pub(crate) gone_since: Option<Timestamp>,
    /// When the guest was last asked to power off.
    pub(crate) asked: Option<Timestamp>,
    /// When it was last killed.
    pub(crate) killed: Option<Timestamp>,
    /// Failures in a row to start or to resume the guest.
    pub(crate) failures: u32,
    /// Until when to wait after the last.
    pub(crate) retry_at: Option<Timestamp>,
    /// What came of the last attempt to make the guest what its instance says.
    pub(crate) outcome: Option<Outcome>,
    /// What was done about a migration.
    pub(crate) moving: Attempts,
    /// All is cleaned up.
    pub(crate) done: bool,
}

impl Efforts {
    /// Why the guest is not what its instance says, if the last attempt failed.
    pub(crate) fn failure(&self) -> Option<&Outcome> {
        self.outcome.as_ref().filter(|outcome| matches!(outcome, Outcome::Retry { .. } | Outcome::Never(_)))
    }
}

/// What to do; nothing at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) action: Action,
    /// The phase that the instance is in, if virt-handler can tell.
    pub(crate) phase: Option<Phase>,
    /// What the instance is to say about its migration, if that is news.
    pub(crate) milestone: Option<Milestone>,
    /// Look again after this long, even if nothing changes.
    pub(crate) again: Option<Duration>,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Action {
    #[default]
    Nothing,
    /// Connect the guest's network and start it.
    Start,
    /// Tell the launcher what the guest is to be now.
    Sync,
    /// Let a guest go on that an I/O error has paused.
    Resume,
    /// Ask the guest to power off within the time that is left.
    Shutdown {
        rest: Duration,
    },
    Kill,
    /// Let the launcher wait for a guest.
    Prepare,
    /// Let the guest leave, and carry it.
    Send,
    /// Ask the launcher to give the migration up.
    Cancel,
    /// The connection broke when the guest had parted: find out where it goes on.
    Settle,
    /// Tell the target that the guest is its own.
    HandOver,
    /// Let the guest go on that was cut off: the migration is on record as failed.
    Return,
    /// Let the guest go on that is here as a whole: the launcher that it came from has ended.
    Take,
    /// Let the launcher go, then clean up.
    Delete,
    /// Remove what this node still has of the instance.
    CleanUp,
}

/// What a guest has to shut down, if its spec does not say.
pub(crate) const GRACE: Duration = Duration::from_secs(30);
/// How often a guest is asked to shut down.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Waits between attempts to start a guest, the first and the longest.
const START_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Waits between attempts to resume a guest, the first and the longest.
const RESUME_BACKOFF: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(180));

/// # Guarantees
/// - An instance of another node, or one that was not handed over, is left alone.
/// - No guest is started for an instance that is final, gone or to be deleted, nor a second time for one that ran, nor in a launcher
///   that is not the instance's only one.
/// - A guest is killed only when its instance is final, or its grace period is over. One that does not hold the guest is killed when
///   nothing will come to it any more.
/// - A launcher is let go only when its instance is final or gone, or it is an orphan: how the guest ended is on record by then.
/// - A phase only goes forward, and only a launcher that holds the guest says it.
/// - A guest that was cut off goes on here only when its migration is on record as failed. One that has come goes on without a word of
///   the launcher that it came from only when that launcher has ended.
pub(crate) fn decide(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let Some(vmi) = seen.vmi else { return orphan::without_instance(seen, now) };
    if seen.role.holds() && !is_of(vmi, seen.node) {
        return Plan::default();
    }
    match (vmi.phase(), seen.role) {
        (Phase::Succeeded | Phase::Failed, _) => over(seen),
        (_, Role::Orphan) => orphan::decide(seen),
        (Phase::Scheduled | Phase::Running, Role::Sole) => sole::decide(vmi, seen, now),
        (Phase::Scheduled | Phase::Running, Role::Source) => source::decide(vmi, seen, now),
        (_, Role::Target) => target::decide(vmi, seen, now),
        (
            Phase::Unset
            | Phase::Pending
            | Phase::Scheduling
            | Phase::WaitingForSync
            | Phase::Unknown
            | Phase::Other(_),
            Role::Sole | Role::Source,
        ) => Plan::default(),
    }
}

/// Whether an instance was handed over to a node.
pub(crate) fn is_of(vmi: &VirtualMachineInstance, node: &str) -> bool {
    vmi.metadata.labels.as_ref().and_then(|labels| labels.get(label::NODE_NAME)).is_some_and(|name| name == node)
}

/// What an instance gives its guest to shut down.
pub(crate) fn grace_of(vmi: &VirtualMachineInstance) -> Duration {
    let seconds = vmi.spec.termination_grace_period_seconds;
    seconds.map_or(GRACE, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// When to try again after so many failures in a row.
pub(crate) fn start_again(failures: u32, now: Timestamp) -> Timestamp {
    now + backoff(START_BACKOFF, failures)
}

/// When to resume again after so many times.
pub(crate) fn resume_again(times: u32, now: Timestamp) -> Timestamp {
    now + backoff(RESUME_BACKOFF, times)
}

fn backoff((first, most): (Duration, Duration), failures: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(most)
}

fn over(seen: &Observed<'_>) -> Plan {
    match seen.launcher {
        Launcher::Connecting => Plan::default(),
        Launcher::None | Launcher::Gone { .. } if seen.efforts.done => Plan::default(),
        Launcher::None | Launcher::Gone { .. } => act(Action::CleanUp),
        Launcher::Connected { state, .. } if is_alive(state) => act(Action::Kill),
        Launcher::Connected { .. } => act(Action::Delete),
    }
}

/// Ends the guest of an instance that is to be deleted.
fn stop_deleted(vmi: &VirtualMachineInstance, state: State, efforts: &Efforts, now: Timestamp) -> Plan {
    let asked = vmi.metadata.deletion_timestamp.as_ref().map_or(now, |Time(at)| *at);
    let phase = (!matches!(state, State::Starting | State::Unspecified)).then_some(Phase::Running);
    Plan { phase, ..stop(asked, grace_of(vmi), efforts, now) }
}

/// What is left of the grace period of an instance that is to be deleted.
fn time_left(vmi: &VirtualMachineInstance, now: Timestamp) -> Option<Duration> {
    let Time(asked) = vmi.metadata.deletion_timestamp.as_ref()?;
    Some(grace_of(vmi).saturating_sub(until(now, *asked)))
}

fn when_due(action: Action, efforts: &Efforts, now: Timestamp) -> Plan {
    match efforts.retry_at.map(|at| until(at, now)).filter(|rest| !rest.is_zero()) {
        Some(rest) => Plan { again: Some(rest), ..Plan::default() },
        None => act(action),
    }
}

/// Asks the guest to power off, again and again, and kills it when its time is over.
fn stop(since: Timestamp, grace: Duration, efforts: &Efforts, now: Timestamp) -> Plan {
    let rest = grace.saturating_sub(until(now, since));
    let is_over = rest.is_zero();
    let last = if is_over { efforts.killed } else { efforts.asked };
    let pause = last.map_or(Duration::ZERO, |last| ASK_AGAIN.saturating_sub(until(now, last)));
    let action = match (pause.is_zero(), is_over) {
        (false, _) => Action::Nothing,
        (true, true) => Action::Kill,
        (true, false) => Action::Shutdown { rest },
    };
    let pause = if pause.is_zero() { ASK_AGAIN } else { pause };
    Plan { action, again: Some(if is_over { pause } else { pause.min(rest) }), ..Plan::default() }
}

/// What an instance has become when its guest has ended like this. A guest that was killed after a grace period did not
/// shut down; one that had none was to be killed.
fn phase_after(end: End, vmi: &VirtualMachineInstance) -> Phase {
    match end {
        End::PoweredOff | End::Rebooted => Phase::Succeeded,
        End::Killed if !has_acpi(vmi) || grace_of(vmi).is_zero() => Phase::Succeeded,
        End::Killed
        | End::KilledFromOutside
        | End::Panicked
        | End::OutOfMemory
        | End::Crashed
        | End::FailedToStart
        | End::InternalError
        | End::KvmFailed
        | End::Moved
        | End::NotTaken
        | End::OnTheWay
        | End::Unspecified => Phase::Failed,
    }
}

/// Whether the guest can be told to power off.
fn has_acpi(vmi: &VirtualMachineInstance) -> bool {
    let acpi = vmi.spec.domain.features.as_ref().and_then(|features| features.acpi.as_ref());
    acpi.and_then(|acpi| acpi.enabled) != Some(false)
}

/// Whether there is a QEMU.
pub(crate) fn is_alive(state: State) -> bool {
    match state {
        State::Absent | State::Ended => false,
        State::Unspecified
        | State::Starting
        | State::Running
        | State::PausedByUser
        | State::PausedByIoError
        | State::PausedByQemu
        | State::Awaiting
        | State::Loaded
        | State::Left
        | State::Stopping => true,
    }
}

fn act(action: Action) -> Plan {
    Plan { action, ..Plan::default() }
}

fn enter(phase: Phase) -> Plan {
    Plan { phase: Some(phase), ..Plan::default() }
}

/// From one time to another; nothing if that is over.
fn until(later: Timestamp, earlier: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
