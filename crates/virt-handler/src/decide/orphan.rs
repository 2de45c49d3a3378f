//! A launcher that has no guest, and that none will come to: its instance is gone, or another's, or lives on elsewhere.
//!
//! | instance | launcher | guest | what is done |
//! |---|---|---|---|
//! | any | not reached yet | | nothing |
//! | gone | reached | alive | shut down; kill when the grace period is over |
//! | live elsewhere | reached | waits to come, or has left | kill |
//! | live elsewhere | reached | is here | nothing: what a launcher holds counts, whatever the instance says |
//! | gone or live elsewhere | reached | ended or absent | let the launcher go |
//! | gone or live elsewhere | gone, or none | | clean up |

use jiff::Timestamp;
use launcher_api::rpc::State;

use super::{Action, Launcher, Observed, Plan, act, is_alive, over, stop};

/// The instance is gone.
pub(super) fn without_instance(seen: &Observed<'_>, now: Timestamp) -> Plan {
    match seen.launcher {
        Launcher::Connected { state, .. } if is_alive(state) => {
            stop(seen.efforts.gone_since.unwrap_or(now), seen.grace, seen.efforts, now)
        }
        _ => over(seen),
    }
}

/// The instance lives on elsewhere.
pub(super) fn decide(seen: &Observed<'_>) -> Plan {
    match seen.launcher {
        Launcher::Connected { state: State::Awaiting | State::Loaded | State::Left, .. } => act(Action::Kill),
        // It may be the only one that could go on.
        Launcher::Connected { state, .. } if is_alive(state) => Plan::default(),
        Launcher::Connected { .. } | Launcher::Connecting | Launcher::None | Launcher::Gone { .. } => over(seen),
    }
}
