//! Evacuation: guests that are to leave their node are moved.
//!
//! ```text
//! Node: its drain taint ───────────────────┐
//! its instances: marked by an eviction ────┼─> observe ──> decide ──> migrations of the next few
//! their pods and migrations ───────────────┤
//! configuration: strategy, limits ─────────┘
//! ```
//! Watches: Node, VirtualMachineInstance, Pod, VirtualMachineInstanceMigration, KubeVirt. Owns: the migrations that it makes. Emits:
//! `SuccessfulCreate` and `FailedCreate` about instances.
//! Absent on purpose: when a migration begins, and how long it waits after one that failed; both are the migration controller's. The
//! end of the mark is the VMI controller's, once the guest is elsewhere. An instance that cannot move stays; whoever evicts its pod is
//! told so by admission. One with the strategy `External` is for somebody else to take away.
//!
//! | the node | the instance | what happens |
//! |---|---|---|
//! | | has ended, is being deleted, or is not to be moved | nothing |
//! | | moves already, or has a second launcher | nothing until that is over |
//! | has the drain taint | | it is moved |
//! | | is marked with the name of this node | it is moved |
//! | | is not marked, or with another node | nothing |

pub mod controller;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::migration::{MigrationPriority, VirtualMachineInstanceMigration as Migration};
use api::names::annotation;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Node, Pod};
use virt_rules::config::ClusterConfig;
use virt_rules::eviction::{self, Consequence};

use crate::migration::asking::{self, takes_room};
use crate::migration::is_final;
use crate::migration::turns::Limits;
use crate::vmi::pods;

/// What the names of its migrations begin with.
const PREFIX: &str = "kubevirt-evacuation-";
/// The effect of the drain taint.
const NO_SCHEDULE: &str = "NoSchedule";
/// Who asked for an eviction, where it was not a person.
const DESCHEDULER: &str = "descheduler";

/// What the caches say about one node.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    pub node: &'a Node,
    /// The instances that are on it.
    pub instances: Vec<Instance<'a>>,
    /// Instances of the whole cluster that a migration of this controller is about to move.
    pub under_way: usize,
    /// The cluster's configuration.
    pub config: &'a ClusterConfig,
}

/// An instance and what belongs to it.
#[derive(Clone, Debug)]
pub struct Instance<'a> {
    pub vmi: &'a VirtualMachineInstance,
    /// The pods that it controls.
    pub pods: Vec<&'a Pod>,
    /// Its migrations, ended or not.
    pub migrations: Vec<&'a Migration>,
}

/// # Guarantees
/// - An instance gets a migration only if it has none that has not ended, and no second launcher; and one at most.
/// - Nothing is made for an instance that has ended, is being deleted, or cannot move.
/// - No more are under way at once than the limits say, of those that this controller makes. What people ask for is not counted, nor
///   what waits after a failure: neither must keep a node from being emptied.
/// - The name follows from the instance's UID and its migrations: whoever decides the same again makes the same.
#[must_use]
pub fn decide(seen: &Observed<'_>) -> Vec<Migration> {
    let settings = seen.config.migrations();
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let limits = Limits {
        per_cluster: count(settings.parallel_per_cluster),
        per_node: count(settings.parallel_outbound_per_node),
    };
    let from_here = seen.instances.iter().filter(|one| is_under_way(&one.migrations)).count();
    let free_of_node = limits.per_node.saturating_sub(from_here);
    let free = limits.per_cluster.saturating_sub(seen.under_way).min(free_of_node);
    let is_drained = has_taint(seen.node, settings.node_drain_taint_key);
    let name = seen.node.metadata.name.as_deref().unwrap_or_default();
    let leaves = |one: &&Instance<'_>| (is_drained || is_marked(one.vmi, name)) && can_begin(one, seen.config);
    seen.instances.iter().filter(leaves).take(free).map(|one| migration(one, name)).collect()
}

/// Whether one of the migrations of an instance was made here and counts against the limits.
#[must_use]
pub fn is_under_way(migrations: &[&Migration]) -> bool {
    migrations.iter().any(|one| node_of(one).is_some() && takes_room(one, migrations))
}

/// The node that a migration empties; none if it was not made here.
#[must_use]
pub fn node_of(migration: &Migration) -> Option<&str> {
    migration.metadata.annotations.as_ref()?.get(annotation::EVACUATION_MIGRATION).map(String::as_str)
}

fn has_taint(node: &Node, key: &str) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.any(|taint| taint.key == key && taint.effect == NO_SCHEDULE)
}

fn is_marked(vmi: &VirtualMachineInstance, node: &str) -> bool {
    let is_there = vmi.status.as_ref().and_then(|status| status.node_name.as_deref()) == Some(node);
    is_there && eviction::marked(vmi) == Some(node)
}

fn can_begin(one: &Instance<'_>, config: &ClusterConfig) -> bool {
    let Instance { vmi, pods, migrations } = one;
    let launchers = pods.iter().filter(|pod| !pods::has_ended(pod)).count();
    !vmi.is_final()
        && !vmi.is_marked_for_deletion()
        && eviction::consequence(vmi, config) == Consequence::Moves
        && migrations.iter().all(|one| is_final(one))
        && !asking::is_moving(vmi)
        && launchers <= 1
}

fn migration(one: &Instance<'_>, node: &str) -> Migration {
    let metadata = &one.vmi.metadata;
    let by_descheduler = metadata.annotations.as_ref().and_then(|all| all.get(annotation::EVICTION_SOURCE));
    let priority = match by_descheduler.map(String::as_str) {
        Some(DESCHEDULER) => MigrationPriority::SystemMaintenance,
        _ => MigrationPriority::SystemCritical,
    };
    let annotations = BTreeMap::from([(annotation::EVACUATION_MIGRATION.to_owned(), node.to_owned())]);
    asking::migration(one.vmi, &one.migrations, PREFIX, annotations, priority)
}
