//! Taints that follow from what a node says of itself.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};

use super::zones::Permission;
use super::{condition, ready};
use manager::writing::whole_second;

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// Which condition, when it says what, means which taint.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];

/// All taints of the node as they should be, if they are not so.
pub(super) fn changed(node: &Node, permission: Permission, now: Timestamp) -> Option<Vec<Taint>> {
    let wanted = wanted(node, permission);
    let is_wanted = |taint: &Taint| wanted.iter().any(|(key, effect)| taint.key == *key && taint.effect == *effect);
    let old = taints(node);
    let mut new: Vec<Taint> = old.iter().filter(|taint| !is_ours(taint) || is_wanted(taint)).cloned().collect();
    for (key, effect) in &wanted {
        if !has(old, key, effect) {
            new.push(Taint {
                key: (*key).to_owned(),
                effect: (*effect).to_owned(),
                time_added: Some(whole_second(now)),
                value: None,
            });
        }
    }
    (new != old).then_some(new)
}

/// Whether the node should be emptied and is not yet, for whatever reason.
pub(super) fn waits_to_be_emptied(node: &Node) -> bool {
    matches!(ready(node), Some("False" | "Unknown")) && !is_emptied(node)
}

fn is_emptied(node: &Node) -> bool {
    [NOT_READY, UNREACHABLE].iter().any(|key| has(taints(node), key, NO_EXECUTE))
}

fn wanted(node: &Node, permission: Permission) -> Vec<(&'static str, &'static str)> {
    let says = |kind: &str, truth: &str| condition(node, kind).is_some_and(|condition| condition.status == truth);
    let holding = BY_CONDITION.iter().filter(|(kind, truth, _)| says(kind, truth));
    let mut wanted: Vec<_> = holding.map(|(_, _, key)| (*key, NO_SCHEDULE)).collect();
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        wanted.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    let empties = match permission {
        Permission::Forbidden => false,
        // What is being done already needs no new permission, only the right reason.
        Permission::Waiting => is_emptied(node),
        Permission::Granted => true,
    };
    match ready(node) {
        Some("False") if empties => wanted.push((NOT_READY, NO_EXECUTE)),
        Some("Unknown") if empties => wanted.push((UNREACHABLE, NO_EXECUTE)),
        // It said nothing yet: what others did about that is theirs to undo.
        None => {
            let kept = [NOT_READY, UNREACHABLE].into_iter().filter(|key| has(taints(node), key, NO_EXECUTE));
            wanted.extend(kept.map(|key| (key, NO_EXECUTE)));
        }
        _ => {}
    }
    wanted
}

fn is_ours(taint: &Taint) -> bool {
    let ready = taint.key == NOT_READY || taint.key == UNREACHABLE;
    match taint.effect.as_str() {
        NO_SCHEDULE => taint.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(_, _, key)| taint.key == *key),
        NO_EXECUTE => ready,
        _ => false,
    }
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn has(taints: &[Taint], key: &str, effect: &str) -> bool {
    taints.iter().any(|taint| taint.key == key && taint.effect == effect)
}
