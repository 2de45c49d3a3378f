//! Converts between the messages of the protocol and the launcher's own types.

use hypervisor::accelerator::Accelerator;

use launcher_api::rpc;

use crate::domain::{Course, Domain, End, Migration, Pause, Progress, State};
use crate::driver::StartError;
use crate::errors::chain;

/// What the node's agent says runs guests; none if it does not say.
pub(super) fn accelerator(told: rpc::Accelerator) -> Option<Accelerator> {
    match told {
        rpc::Accelerator::Kvm => Some(Accelerator::Kvm),
        rpc::Accelerator::Tcg => Some(Accelerator::Tcg),
        rpc::Accelerator::Unspecified => None,
    }
}

/// The domain of a guest whose QEMU did not start.
pub(super) fn failed(error: &StartError) -> rpc::Domain {
    let words = match error {
        StartError::Ended { words, .. } if !words.is_empty() => words.clone(),
        other => chain(other),
    };
    let state = State::Ended(End::FailedToStart { words });
    to_wire(&Domain { sequence: 1, state, ..Domain::starting() })
}

/// A domain as it goes over the wire; sequences count from one there.
pub(super) fn to_wire(domain: &Domain) -> rpc::Domain {
    let (state, reason, end) = match &domain.state {
        State::Starting => (rpc::State::Starting, String::new(), rpc::End::Unspecified),
        State::Running => (rpc::State::Running, String::new(), rpc::End::Unspecified),
        State::Paused(Pause::ByUser) => (rpc::State::PausedByUser, String::new(), rpc::End::Unspecified),
        State::Paused(Pause::IoError) => (rpc::State::PausedByIoError, domain.io_error.clone(), rpc::End::Unspecified),
        State::Paused(Pause::ByQemu | Pause::ForMigration) => {
            (rpc::State::PausedByQemu, String::new(), rpc::End::Unspecified)
        }
        State::Awaiting => (rpc::State::Awaiting, String::new(), rpc::End::Unspecified),
        State::Loaded => (rpc::State::Loaded, String::new(), rpc::End::Unspecified),
        State::Left => (rpc::State::Left, String::new(), rpc::End::Unspecified),
        State::Stopping => (rpc::State::Stopping, String::new(), rpc::End::Unspecified),
        State::Ended(end) => (rpc::State::Ended, end.to_string(), end_to_wire(end)),
    };
    rpc::Domain {
        sequence: domain.sequence + 1,
        state: state.into(),
        reason,
        end: end.into(),
        agent_connected: domain.agent_connected,
        resets: domain.resets,
        outcome: None,
        mark: 0,
        migration: domain.migration.as_ref().map(migration),
    }
}

fn migration(migration: &Migration) -> rpc::Migration {
    let Migration { to, course, paused, progress: Progress { sent, remaining, total } } = migration;
    let (course, why) = match course {
        Course::UnderWay => (rpc::Course::UnderWay, ""),
        Course::Parted => (rpc::Course::Parted, ""),
        Course::Cut => (rpc::Course::Cut, ""),
        Course::Given => (rpc::Course::Given, ""),
        Course::Stayed { why } => (rpc::Course::Stayed, why.as_str()),
    };
    rpc::Migration {
        uid: to.clone(),
        course: course.into(),
        why: why.to_owned(),
        paused: paused_to_wire(*paused).into(),
        sent: *sent,
        remaining: *remaining,
        total: *total,
    }
}

fn paused_to_wire(paused: Option<Pause>) -> rpc::Paused {
    match paused {
        None | Some(Pause::ForMigration) => rpc::Paused::Not,
        Some(Pause::ByUser) => rpc::Paused::ByUser,
        Some(Pause::IoError) => rpc::Paused::ByIoError,
        Some(Pause::ByQemu) => rpc::Paused::ByQemu,
    }
}

/// How a guest is to be that is taken.
pub(super) fn paused(told: rpc::Paused) -> Option<Pause> {
    match told {
        rpc::Paused::Not => None,
        rpc::Paused::ByUser => Some(Pause::ByUser),
        rpc::Paused::ByIoError => Some(Pause::IoError),
        rpc::Paused::ByQemu => Some(Pause::ByQemu),
    }
}

fn end_to_wire(end: &End) -> rpc::End {
    match end {
        End::PoweredOff => rpc::End::PoweredOff,
        End::Rebooted => rpc::End::Rebooted,
        End::Panicked => rpc::End::Panicked,
        End::Killed => rpc::End::Killed,
        End::KilledFromOutside => rpc::End::KilledFromOutside,
        End::OutOfMemory => rpc::End::OutOfMemory,
        End::Crashed { .. } => rpc::End::Crashed,
        End::InternalError { kvm_is_suspect: false, .. } => rpc::End::InternalError,
        End::InternalError { kvm_is_suspect: true, .. } => rpc::End::KvmFailed,
        End::Moved => rpc::End::Moved,
        End::OnTheWay { .. } => rpc::End::OnTheWay,
        End::NotTaken { .. } => rpc::End::NotTaken,
        End::FailedToStart { .. } => rpc::End::FailedToStart,
    }
}
