//! Filters: whether a node can take a pod at all. One function per rule, in the order in which Kubernetes asks them.

use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::affinity::Domains;
use super::node::NodeInfo;
use super::pod::PodInfo;
use super::reason::{Reason, Shortage};

/// A pod to be placed, and what the pods that are there mean for it.
pub(super) struct Attempt<'a> {
    pub(super) pod: &'a PodInfo,
    pub(super) domains: Domains<'a>,
}

pub(super) type Filter = fn(&Attempt<'_>, &NodeInfo) -> Result<(), Reason>;

pub(super) const FILTERS: [Filter; 8] =
    [named_nodes, node_name, cordon, taints, node_affinity, host_ports, resources, pod_affinity];

/// Affinity to nodes by name picks them before any other rule is asked.
fn named_nodes(attempt: &Attempt<'_>, node: &NodeInfo) -> Result<(), Reason> {
    let allowed = attempt.pod.node_names.as_ref().is_none_or(|names| names.contains(&node.name));
    allowed.then_some(()).ok_or(Reason::NotNamed)
}

fn node_name(attempt: &Attempt<'_>, node: &NodeInfo) -> Result<(), Reason> {
    let wanted = attempt.pod.node_name.as_ref().is_none_or(|name| *name == node.name);
    wanted.then_some(()).ok_or(Reason::NodeName)
}

/// Whoever tolerates the taint that goes with a cordon may pass even before the node has that taint.
fn cordon(attempt: &Attempt<'_>, node: &NodeInfo) -> Result<(), Reason> {
    if !node.unschedulable {
        return Ok(());
    }
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    is_tolerated(&attempt.pod.tolerations, &taint).then_some(()).ok_or(Reason::Cordon)
}

fn taints(attempt: &Attempt<'_>, node: &NodeInfo) -> Result<(), Reason> {
    let mut hard = node.taints.iter().filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    hard.all(|taint| is_tolerated(&attempt.pod.tolerations, taint)).then_some(()).ok_or(Reason::Taints)
}

fn node_affinity(attempt: &Attempt<'_>, node: &NodeInfo) -> Result<(), Reason> {
    let terms = attempt.pod.node_terms.as_ref();
    let affine = terms.is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)));
    (affine && attempt.pod.node_selector.matches(&node.labels)).then_some(()).ok_or(Reason::NodeAffinity)
}

fn host_ports(attempt: &Attempt<'_>, node: &NodeInfo) -> Result<(), Reason> {
    let mut wanted = attempt.pod.ports.iter();
    let clash = wanted.any(|port| node.load.ports.keys().any(|taken| taken.clashes_with(port)));
    if clash { Err(Reason::HostPorts) } else { Ok(()) }
}

/// Names all that is short. What a pod does not ask for it is never short of, on a node that has too little as well.
fn resources(attempt: &Attempt<'_>, node: &NodeInfo) -> Result<(), Reason> {
    let (wanted, taken, whole) = (&attempt.pod.requests, &node.load.requested, &node.allocatable);
    let mut short = Vec::new();
    let mut check = |wanted: i128, taken: i128, whole: i128, shortage: fn() -> Shortage| {
        if wanted > 0 && wanted > whole - taken {
            short.push(shortage());
        }
    };
    let pods = i128::try_from(node.load.pods.len()).unwrap_or(i128::MAX);
    check(1, pods, node.allowed_pods, || Shortage::Pods);
    check(wanted.milli_cpu, taken.milli_cpu, whole.milli_cpu, || Shortage::Cpu);
    check(wanted.memory, taken.memory, whole.memory, || Shortage::Memory);
    check(wanted.ephemeral_storage, taken.ephemeral_storage, whole.ephemeral_storage, || Shortage::EphemeralStorage);
    for (name, amount) in &wanted.extended {
        if *amount > whole.extended(name) - taken.extended(name) {
            short.push(Shortage::Extended(name.clone()));
        }
    }
    if short.is_empty() { Ok(()) } else { Err(Reason::Resources(short)) }
}

fn pod_affinity(attempt: &Attempt<'_>, node: &NodeInfo) -> Result<(), Reason> {
    let Attempt { pod, domains } = attempt;
    if !pod.near.is_empty() && !domains.satisfy(pod, node) {
        return Err(Reason::PodAffinity);
    }
    if domains.repel(pod, node) {
        return Err(Reason::PodAntiAffinity);
    }
    if domains.are_closed_at(node) {
        return Err(Reason::ExistingAntiAffinity);
    }
    Ok(())
}

pub(super) fn is_tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

/// `Lt` and `Gt` stand behind a feature gate that is off, so that they tolerate nothing.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let covers = |wanted: &Option<String>, actual: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == actual)
    };
    if !covers(&toleration.effect, &taint.effect) || !covers(&toleration.key, &taint.key) {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default(),
        "Exists" => true,
        _ => false,
    }
}
