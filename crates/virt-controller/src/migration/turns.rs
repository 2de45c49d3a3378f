//! Whose turn it is: limits of the cluster and of each node, and who goes first.
//!
//! # Guarantees
//! - Never more at once than the limits say, counting every migration that has a target pod or may have one.
//! - A migration that waits for its node does not keep those of other nodes waiting.
//! - Of two that could begin, the more urgent one does; of equal ones, the older.

use std::collections::BTreeMap;

use api::migration::MigrationPriority;
use jiff::Timestamp;

/// How many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In the cluster.
    pub per_cluster: usize,
    /// Away from one node.
    pub per_node: usize,
}

/// A migration that waits for its turn. The order is the one in which turns are given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// The most urgent first.
    pub urgency: Urgency,
    /// When somebody asked for it.
    pub created: Option<Timestamp>,
    pub uid: String,
    /// The node that the guest is on.
    pub node: String,
}

/// How urgent a migration is; the first is the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// A node is being emptied.
    SystemCritical,
    /// A person waits for it.
    UserTriggered,
    /// It would be good to have.
    SystemMaintenance,
    /// Nobody said.
    Unset,
}

impl Urgency {
    /// As a migration's spec says.
    #[must_use]
    pub fn of(priority: Option<&MigrationPriority>) -> Self {
        match priority {
            Some(MigrationPriority::SystemCritical) => Self::SystemCritical,
            Some(MigrationPriority::UserTriggered) => Self::UserTriggered,
            Some(MigrationPriority::SystemMaintenance) => Self::SystemMaintenance,
            Some(MigrationPriority::Other(_)) | None => Self::Unset,
        }
    }
}

/// Whether the migration of this UID may begin now: `running` has the source nodes of those that have begun.
#[must_use]
pub fn has_turn(uid: &str, waiting: &[Waiting], running: &[String], limits: Limits) -> bool {
    let mut busy: BTreeMap<&str, usize> = BTreeMap::new();
    for node in running {
        *busy.entry(node).or_default() += 1;
    }
    let mut free = limits.per_cluster.saturating_sub(running.len());
    let mut order: Vec<&Waiting> = waiting.iter().collect();
    order.sort();
    for next in order {
        let of_node = busy.entry(&next.node).or_default();
        if free == 0 {
            return false;
        }
        if *of_node >= limits.per_node {
            continue;
        }
        if next.uid == uid {
            return true;
        }
        *of_node += 1;
        free -= 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { per_cluster: 5, per_node: 2 };

    fn one(uid: &str, node: &str, urgency: Urgency) -> Waiting {
        Waiting { urgency, created: None, uid: uid.to_owned(), node: node.to_owned() }
    }

    #[test]
    fn a_busy_node_keeps_nobody_else_waiting() {
        let waiting = [one("a", "n1", Urgency::Unset), one("b", "n2", Urgency::Unset)];
        let running = ["n1".to_owned(), "n1".to_owned()];
        assert!(!has_turn("a", &waiting, &running, LIMITS));
        assert!(has_turn("b", &waiting, &running, LIMITS));
    }

    #[test]
    fn the_more_urgent_one_goes_first() {
        let waiting = [one("a", "n1", Urgency::Unset), one("z", "n2", Urgency::SystemCritical)];
        let limits = Limits { per_cluster: 1, ..LIMITS };
        assert!(has_turn("z", &waiting, &[], limits));
        assert!(!has_turn("a", &waiting, &[], limits));
    }

    fn node() -> impl Strategy<Value = String> {
        (0..4_u8).prop_map(|number| format!("n{number}"))
    }

    fn urgency() -> impl Strategy<Value = Urgency> {
        use Urgency::{SystemCritical, SystemMaintenance, Unset, UserTriggered};
        prop_oneof![Just(SystemCritical), Just(UserTriggered), Just(SystemMaintenance), Just(Unset)]
    }

    proptest! {
        #[test]
        fn turns_keep_to_the_limits_and_waste_nothing(
            waiting in prop::collection::vec((node(), urgency()), 0..12),
            running in prop::collection::vec(node(), 0..8),
            per_cluster in 0..6_usize,
            per_node in 0..3_usize,
        ) {
            let limits = Limits { per_cluster, per_node };
            let waiting: Vec<_> = waiting.into_iter().enumerate()
                .map(|(number, (node, urgency))| one(&format!("u{number}"), &node, urgency)).collect();
            let begin: Vec<_> = waiting.iter().filter(|one| has_turn(&one.uid, &waiting, &running, limits)).collect();
            let all = running.len() + begin.len();
            prop_assert!(begin.is_empty() || all <= per_cluster);
            for node in ["n0", "n1", "n2", "n3"] {
                let new = begin.iter().filter(|one| one.node == node).count();
                let old = running.iter().filter(|one| *one == node).count();
                prop_assert!(new == 0 || new + old <= per_node);
                // Whoever waits although there is room waits behind others.
                let waits = waiting.iter().any(|one| one.node == node && !begin.contains(&one));
                prop_assert!(!waits || all >= per_cluster || new + old >= per_node);
            }
        }
    }
}
