//! Converts between the messages of the protocol and the launcher's own types.

use hypervisor::accelerator::Accelerator;

use launcher_api::rpc;

use crate::domain::{Domain, End, Pause, State};
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
    to_wire(&Domain { sequence: 1, state, agent_connected: false, resets: 0 })
}

/// A domain as it goes over the wire; sequences count from one there.
pub(super) fn to_wire(domain: &Domain) -> rpc::Domain {
    let (state, reason, end) = match &domain.state {
        State::Starting => (rpc::State::Starting, String::new(), rpc::End::Unspecified),
        State::Running => (rpc::State::Running, String::new(), rpc::End::Unspecified),
        State::Paused(Pause::ByUser) => (rpc::State::PausedByUser, String::new(), rpc::End::Unspecified),
        State::Paused(Pause::IoError) => (rpc::State::PausedByIoError, String::new(), rpc::End::Unspecified),
        State::Paused(Pause::ByQemu) => (rpc::State::PausedByQemu, String::new(), rpc::End::Unspecified),
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
        End::NotTaken { .. } => rpc::End::NotTaken,
        End::FailedToStart { .. } => rpc::End::FailedToStart,
    }
}
