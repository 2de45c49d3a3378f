//! Conditions: what is true of an object right now, why, and since when.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::enums::open_enum;

open_enum! {
    /// Whether a condition holds.
    pub enum ConditionStatus {
        /// Nobody can tell.
        Unknown = "Unknown",
        True = "True",
        False = "False",
    }
}

/// What the condition types of all kinds have in common.
pub trait Condition {
    /// Its type, unique within an object.
    fn kind(&self) -> &str;
    /// Whether it holds.
    fn status(&self) -> &ConditionStatus;
    /// When the status last changed.
    fn last_transition_time(&self) -> Option<&Time>;
    /// Sets when the status last changed.
    fn set_last_transition_time(&mut self, time: Time);
}

/// The condition of this type.
#[must_use]
pub fn find<'a, C: Condition>(conditions: Option<&'a [C]>, kind: &str) -> Option<&'a C> {
    conditions.unwrap_or_default().iter().find(|condition| condition.kind() == kind)
}

/// Whether the condition of this type is there and has this status.
#[must_use]
pub fn has<C: Condition>(conditions: Option<&[C]>, kind: &str, status: &ConditionStatus) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status() == status)
}

/// Adds a condition, or replaces the one of its type in place. Returns whether anything changed.
///
/// # Guarantees
/// - The transition time is `now` if the status is new and the old one
///   otherwise; what `condition` carries is ignored.
/// - Nothing changes, and nothing needs to be written, if all else is equal.
pub fn set<C: Condition + PartialEq>(conditions: &mut Option<Vec<C>>, mut condition: C, now: Timestamp) -> bool {
    let list = conditions.get_or_insert_default();
    let old = list.iter_mut().find(|old| old.kind() == condition.kind());
    let since = old.as_deref().filter(|old| old.status() == condition.status()).and_then(C::last_transition_time);
    condition.set_last_transition_time(since.cloned().unwrap_or(Time(now)));
    match old {
        Some(old) if *old == condition => false,
        Some(old) => {
            *old = condition;
            true
        }
        None => {
            list.push(condition);
            true
        }
    }
}

/// Removes the condition of this type. Returns whether it was there. A list that becomes empty becomes absent.
pub fn remove<C: Condition>(conditions: &mut Option<Vec<C>>, kind: &str) -> bool {
    let Some(list) = conditions else { return false };
    let before = list.len();
    list.retain(|condition| condition.kind() != kind);
    let removed = list.len() < before;
    if removed && list.is_empty() {
        *conditions = None;
    }
    removed
}

/// Implements [`Condition`] for types with the usual fields.
macro_rules! condition {
    ($($name:path),* $(,)?) => {$(
        impl Condition for $name {
            fn kind(&self) -> &str {
                &self.type_
            }

            fn status(&self) -> &ConditionStatus {
                &self.status
            }

            fn last_transition_time(&self) -> Option<&Time> {
                self.last_transition_time.as_ref()
            }

            fn set_last_transition_time(&mut self, time: Time) {
                self.last_transition_time = time.into();
            }
        }
    )*};
}

condition!(
    crate::cdi::DataSourceCondition,
    crate::data_volume::DataVolumeCondition,
    crate::export::Condition,
    crate::kubevirt::KubeVirtCondition,
    crate::migration::VirtualMachineInstanceMigrationCondition,
    crate::pool::VirtualMachinePoolCondition,
    crate::replicaset::VirtualMachineInstanceReplicaSetCondition,
    crate::snapshot::Condition,
    crate::vm::VirtualMachineCondition,
    crate::vmi_status::VirtualMachineInstanceCondition,
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::vm::VirtualMachineCondition;

    fn ready(status: ConditionStatus, reason: &str) -> VirtualMachineCondition {
        VirtualMachineCondition { type_: "Ready".into(), status, reason: Some(reason.into()), ..Default::default() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn since(conditions: &Option<Vec<VirtualMachineCondition>>) -> Option<Timestamp> {
        find(conditions.as_deref(), "Ready")?.last_transition_time.as_ref().map(|time| time.0)
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let mut conditions = None;
        assert!(set(&mut conditions, ready(ConditionStatus::False, "Starting"), at(10)));
        assert!(set(&mut conditions, ready(ConditionStatus::False, "StillStarting"), at(20)));
        assert_eq!(since(&conditions), Some(at(10)));
        assert!(set(&mut conditions, ready(ConditionStatus::True, "Running"), at(30)));
        assert_eq!(since(&conditions), Some(at(30)));
    }

    #[test]
    fn an_equal_condition_changes_nothing() {
        let mut conditions = None;
        set(&mut conditions, ready(ConditionStatus::True, "Running"), at(10));
        let before = conditions.clone();
        assert!(!set(&mut conditions, ready(ConditionStatus::True, "Running"), at(99)));
        assert_eq!(conditions, before);
    }

    #[test]
    fn removing_the_last_condition_leaves_no_empty_list() {
        let mut conditions = None;
        set(&mut conditions, ready(ConditionStatus::True, "Running"), at(10));
        assert!(!remove(&mut conditions, "Paused"));
        assert!(remove(&mut conditions, "Ready"));
        assert_eq!(conditions, None);
    }

    proptest! {
        #[test]
        fn a_type_never_occurs_twice(steps in prop::collection::vec((0usize..3, 0usize..3, 0i64..100), 0..30)) {
            let statuses = [ConditionStatus::True, ConditionStatus::False, ConditionStatus::Unknown];
            let kinds = ["Ready", "Paused", "AgentConnected"];
            let mut conditions = None;
            for (kind, status, second) in steps {
                let condition = VirtualMachineCondition { type_: kinds[kind].into(), ..ready(statuses[status].clone(), "x") };
                set(&mut conditions, condition, at(second));
                prop_assert!(has(conditions.as_deref(), kinds[kind], &statuses[status]));
            }
            for kind in kinds {
                let count = conditions.iter().flatten().filter(|condition| condition.type_ == kind).count();
                prop_assert!(count <= 1);
            }
        }
    }
}
