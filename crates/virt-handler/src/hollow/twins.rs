//! Handlers that are broken on purpose: a rule that nothing can break checks nothing. The simulation must catch each of them.

use api::vmi_status::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use launcher_api::rpc::State;
use virt_rules::launchers::Role;

use crate::decide::{Action, Launcher, Observed, Plan, decide};
use crate::instances::Decide;

/// How a handler is broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Twin {
    /// Not at all.
    #[default]
    None,
    /// It starts a guest in a launcher that awaits one.
    StartsTargets,
    /// It says the phase by a launcher that does not hold the guest.
    SpeaksForOthers,
}

impl Twin {
    pub(super) fn decide(self) -> Decide {
        match self {
            Self::None => decide,
            Self::StartsTargets => starts_targets,
            Self::SpeaksForOthers => speaks_for_others,
        }
    }
}

fn starts_targets(seen: &Observed<'_>, now: Timestamp) -> Plan {
    match (seen.role, seen.launcher) {
        (Role::Target, Launcher::Connected { state: State::Absent, .. }) => {
            Plan { action: Action::Start, ..Plan::default() }
        }
        _ => decide(seen, now),
    }
}

fn speaks_for_others(seen: &Observed<'_>, now: Timestamp) -> Plan {
    match (seen.role, seen.launcher) {
        (Role::Target, Launcher::Gone { .. }) => Plan { phase: Some(Phase::Failed), ..Plan::default() },
        _ => decide(seen, now),
    }
}
