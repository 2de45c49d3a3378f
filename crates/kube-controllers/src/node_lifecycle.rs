//! Nodes: those that fall silent are told from those that live, and kept free of new pods; pods leave them at a bearable
//! rate.
//!
//! ```text
//! Node, Lease ──> health: when did we last see a sign of life ──┐
//! all nodes ────> zones: how many may be emptied, and when ─────┼─> decide ──> conditions, or taints, in one patch
//! Node ─────────────────────────────────────────────────────────┘
//! ```
//! Watches: Node, Lease (in `kube-node-lease`), Pod. Owns: the taints that follow from a node's conditions and from its
//! being cordoned; the conditions of a node that is silent; the readiness of pods on it. Emits: one status patch when a
//! node falls silent, one patch when its taints change, one per pod; events.
//! Absent on purpose: deletions of pods, see [`crate::taint_eviction`]; the labels `beta.kubernetes.io/os` and `arch`; and
//! clearing the taints of every node after a restart, as Kubernetes does: what is known from the conditions stays known.

mod controller;
mod health;
mod taints;
#[cfg(test)]
mod tests;
mod zones;

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

pub use controller::{NAME, NodeLifecycleController};
use zones::Permission;

/// When a node counts as silent, and how fast pods leave such nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How often all nodes are looked at.
    pub monitor_period: Duration,
    /// How long a node may be silent.
    pub monitor_grace_period: Duration,
    /// How long a node may be silent that never said anything.
    pub startup_grace_period: Duration,
    /// Nodes per second that pods may leave, in a zone that is well.
    pub eviction_rate: f64,
    /// The same in a large zone that is not well; in a small one, none.
    pub secondary_eviction_rate: f64,
    /// The part of a zone's nodes that are not ready from which on the zone is not well.
    pub unhealthy_zone_threshold: f64,
    /// A zone of more nodes is large.
    pub large_cluster_size_threshold: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            monitor_period: Duration::from_secs(5),
            monitor_grace_period: Duration::from_secs(50),
            startup_grace_period: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            unhealthy_zone_threshold: 0.55,
            large_cluster_size_threshold: 50,
        }
    }
}

/// What to do about one node.
#[derive(Clone, Debug, PartialEq)]
enum Plan {
    Nothing,
    /// It is silent: these conditions are not known any more.
    Conditions(Vec<NodeCondition>),
    /// All its taints, as they should be.
    Taints(Vec<Taint>),
}

/// # Guarantees
/// - Taints follow the conditions that the server has, so that conditions come first.
/// - Taints of others stay as they are, and where they are in the list.
/// - A node is emptied only with permission; to stop emptying it, or to say better why, needs none.
/// - A node that was written as planned has the plan `Nothing`.
fn decide(node: &Node, silent: bool, permission: Permission, now: Timestamp) -> Plan {
    if silent {
        let conditions = health::unknown(node, now);
        if !conditions.is_empty() {
            return Plan::Conditions(conditions);
        }
    }
    taints::changed(node, permission, now).map_or(Plan::Nothing, Plan::Taints)
}

/// A node's condition of a type.
fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// What the node's condition `Ready` says, if it has one.
fn ready(node: &Node) -> Option<&str> {
    condition(node, "Ready").map(|condition| condition.status.as_str())
}
