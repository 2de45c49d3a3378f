//! Nodes: which of them can take instances, and what becomes of the instances of one that does not answer.
//!
//! ```text
//! Node and its heartbeat ──┐
//! its instances ───────────┼─> observe ──> decide ──> Plan ──> act: the node's label, then its lost instances
//! their pods ──────────────┘
//! ```
//! Watches: Node, VMI, Pod. Owns: the label `kubevirt.io/schedulable` of a node whose handler is silent. Emits:
//! `NodeUnresponsive`.
//! Absent on purpose: whether a node is well; that is Kubernetes' own. Here only its handler counts.

pub mod controller;

#[cfg(test)]
mod tests;

use std::time::Duration;

use api::conditions::{self, ConditionStatus};
use api::names::{annotation, label};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::{
    VirtualMachineInstanceCondition, VirtualMachineInstancePhase as Phase,
    VirtualMachineInstancePhaseTransitionTimestamp as Transition,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use manager::writing::{difference, whole_second};
use serde_json::{Value, json};
use virt_rules::launchers::{Launcher, Role, role};

use crate::vmi::{Event, pods};

/// A handler that was silent for so long is not there.
pub const SILENCE: Duration = Duration::from_secs(300);
/// As it stands in events and in the status of instances.
const REASON: &str = "NodeUnresponsive";

/// What the caches say about one node.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The node; none if it is gone.
    pub node: Option<&'a Node>,
    /// The instances that are labelled with its name and have not ended, each with the pods that it controls.
    pub instances: Vec<(&'a VirtualMachineInstance, Vec<&'a Pod>)>,
    /// Whether the server itself was asked for those pods.
    pub asked: bool,
}

/// What to do about one node; empty at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Nothing else: ask the server itself for the pods, and decide again.
    pub ask: bool,
    /// A merge patch of the node.
    pub node: Option<Value>,
    /// Instances that are lost: namespace, name, and a merge patch.
    pub lost: Vec<(String, String, Value)>,
    /// What people should read about the node.
    pub event: Option<Event>,
    /// When the handler will have been silent for too long.
    pub recheck_after: Option<Duration>,
}

/// # Guarantees
/// - An instance is called lost only if its node's handler is silent and no container can still run of any pod that holds its
///   guest, or that the guest may have gone to. A target that only waits does not count: nobody knows yet where it could be reached,
///   so that nothing was sent to it.
/// - A node that has never had a handler is left alone.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Plan {
    if let Some(left) = heard_for(seen.node, now) {
        return Plan { recheck_after: Some(left), ..Plan::default() };
    }
    let schedulable = seen.node.and_then(schedulable);
    if seen.instances.is_empty() && schedulable.is_none() {
        return Plan::default();
    }
    let (dead, alive): (Vec<_>, Vec<_>) =
        seen.instances.iter().partition(|(vmi, pods)| pods.iter().all(|pod| is_dead(pod) || is_empty(pod, vmi)));
    if !dead.is_empty() && !seen.asked {
        return Plan { ask: true, ..Plan::default() };
    }
    let mut plan = Plan::default();
    if let Some(node) = seen.node.filter(|_| schedulable.is_some_and(|value| value != "false")) {
        plan.node = Some(json!({ "metadata": {
            "uid": node.metadata.uid,
            "labels": { label::SCHEDULABLE: "false" },
        } }));
        let names: Vec<_> = alive.iter().filter_map(|(vmi, _)| vmi.metadata.name.as_deref()).collect();
        let orphans = match names.len() {
            0 => String::new(),
            count => format!("; {count} virtual machine instances are orphaned: {}", names.join(", ")),
        };
        plan.event = Some(Event::warning(REASON, format!("virt-handler is not responding{orphans}")));
    }
    plan.lost = dead.iter().filter_map(|(vmi, _)| lost(vmi, now)).collect();
    plan
}

/// How long a node's handler need not be heard of again: until then nothing is decided about the node.
fn heard_for(node: Option<&Node>, now: Timestamp) -> Option<Duration> {
    let heartbeat = node.and_then(heartbeat)?;
    let silent_at = heartbeat.checked_add(SILENCE).unwrap_or(heartbeat);
    Duration::try_from(silent_at.duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// When the node's handler last said that it is there.
fn heartbeat(node: &Node) -> Option<Timestamp> {
    let text = node.metadata.annotations.as_ref()?.get(annotation::HEARTBEAT)?;
    text.trim_matches('"').parse().ok()
}

fn schedulable(node: &Node) -> Option<&str> {
    node.metadata.labels.as_ref()?.get(label::SCHEDULABLE).map(String::as_str)
}

/// Whether no container of a pod can run any more. What a silent node last said about a running one proves nothing.
fn is_dead(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let ended = |one: &ContainerStatus| one.state.as_ref().is_some_and(|state| state.terminated.is_some());
    pods::has_ended(pod) || (!containers.is_empty() && containers.iter().all(ended))
}

/// Whether the guest is not in a pod, and cannot come there any more now that its node is silent.
fn is_empty(pod: &Pod, vmi: &VirtualMachineInstance) -> bool {
    let launcher = Launcher::of(pod);
    match role(&launcher, vmi) {
        Role::Sole | Role::Source => false,
        Role::Target => !is_reachable(&launcher, vmi),
        Role::Orphan => true,
    }
}

/// Whether the source was told where a target is: it may have sent the guest, and not be able to say so.
fn is_reachable(target: &Launcher<'_>, vmi: &VirtualMachineInstance) -> bool {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let migration = target.pod.and_then(|pod| pod.migration);
    state.is_some_and(|state| {
        let is_handed_over = state.migration_uid.is_some() && state.migration_uid.as_deref() == migration;
        let has_begun = state.start_timestamp.as_ref().is_some();
        is_handed_over && (has_begun || state.target_node_address.is_some())
    })
}

fn lost(vmi: &VirtualMachineInstance, now: Timestamp) -> Option<(String, String, Value)> {
    let at = whole_second(now);
    let mut next = vmi.clone();
    let status = next.status.get_or_insert_default();
    let entered = Transition { phase: Some(Phase::Failed), phase_transition_timestamp: Some(at.clone()) };
    status.phase_transition_timestamps.get_or_insert_default().push(entered);
    status.phase = Some(Phase::Failed);
    status.reason = Some(REASON.to_owned());
    let ready = VirtualMachineInstanceCondition {
        type_: "Ready".to_owned(),
        status: ConditionStatus::False,
        reason: Some(REASON.to_owned()),
        message: Some("virt-handler on the node of the instance is not responding, and its pod has ended".to_owned()),
        ..VirtualMachineInstanceCondition::default()
    };
    conditions::set(&mut status.conditions, ready, at.0);
    let mut patch = difference(&json!(vmi), &json!(next))?;
    patch["metadata"] = json!({ "uid": vmi.metadata.uid, "resourceVersion": vmi.metadata.resource_version });
    Some((vmi.metadata.namespace.clone().unwrap_or_default(), vmi.metadata.name.clone().unwrap_or_default(), patch))
}
