//! A launcher that a guest may come to. Nothing is started in it, and whatever it says is not the instance's phase: that is said
//! where the guest is. It is let go with its instance, or when it has become an orphan.

use super::Plan;

/// Nothing, whatever is seen: who moves the guest tells the launcher.
pub(super) fn decide() -> Plan {
    Plan::default()
}
