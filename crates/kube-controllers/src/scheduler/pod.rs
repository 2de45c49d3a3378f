//! A pod, reduced to what scheduling looks at.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Affinity, Pod, PodAffinityTerm, PodSpec, Toleration, WeightedPodAffinityTerm};

use super::cluster::Cluster;
use super::resources::{Demand, Resources, restarts_always};
use super::selector::{Labels, NodeTerm, Selector};

/// A pod, reduced to what scheduling looks at; two that are equal schedule alike.
///
/// # Assumptions
/// The pod comes from an API server: it has a UID, its defaults are set, its quantities and selectors are valid.
#[derive(Clone, Debug, PartialEq)]
pub struct PodInfo {
    pub(super) uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) priority: i32,
    pub(super) gated: bool,
    pub(super) node_name: Option<String>,
    pub(super) requests: Resources,
    pub(super) demand: Demand,
    pub(super) ports: Vec<HostPort>,
    pub(super) tolerations: Vec<Toleration>,
    pub(super) node_selector: Selector,
    /// Any of them; `None` where the pod does not care.
    pub(super) node_terms: Option<Vec<NodeTerm>>,
    /// The only nodes that `node_terms` can mean, where all of them go by name.
    pub(super) node_names: Option<BTreeSet<String>>,
    pub(super) preferred_nodes: Vec<(i64, NodeTerm)>,
    pub(super) near: Vec<PodTerm>,
    pub(super) apart: Vec<PodTerm>,
    /// Weights below zero are those of anti-affinity.
    pub(super) preferred_pods: Vec<(i64, PodTerm)>,
}

/// A port of the node that a pod takes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostPort {
    pub(super) port: i32,
    pub(super) protocol: String,
    pub(super) address: String,
}

/// One term of a pod affinity: the pods it means, and how near is near.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodTerm {
    pub(super) topology_key: String,
    namespaces: BTreeSet<String>,
    namespace_selector: Selector,
    selector: Selector,
}

impl PodInfo {
    /// Reads a pod.
    #[must_use]
    pub fn new(pod: &Pod) -> Self {
        let metadata = &pod.metadata;
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let (no_spec, no_affinity) = (PodSpec::default(), Affinity::default());
        let spec = pod.spec.as_ref().unwrap_or(&no_spec);
        let affinity = spec.affinity.as_ref().unwrap_or(&no_affinity);
        let node_terms = required_nodes(affinity);
        let (near, apart) = required_pods(affinity, &namespace);
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or_default(),
            gated: spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()),
            node_name: spec.node_name.clone().filter(|node| !node.is_empty()),
            requests: Resources::of_pod(spec),
            demand: Demand::of_pod(spec),
            ports: host_ports(spec),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            node_selector: Selector::equal(spec.node_selector.iter().flatten()),
            node_names: node_terms.as_deref().and_then(named_nodes),
            node_terms,
            preferred_nodes: preferred_nodes(affinity),
            near,
            apart,
            preferred_pods: preferred_pods(affinity, &namespace),
            namespace,
        }
    }

    /// The pod's UID, by which cluster and queue know it.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The pod's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The pod's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The fields of a pod that ask the scheduler for something it does not do, by path; to warn about.
#[must_use]
pub fn ignored_fields(spec: &PodSpec) -> Vec<&'static str> {
    let constraints = spec.topology_spread_constraints.as_ref().is_some_and(|constraints| !constraints.is_empty());
    let claims = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
    let fields = [
        ("spec.topologySpreadConstraints", constraints),
        ("spec.resourceClaims", claims),
        ("spec.schedulingGroup", spec.scheduling_group.is_some()),
    ];
    fields.into_iter().filter(|(_, used)| *used).map(|(path, _)| path).collect()
}

impl PodTerm {
    fn read(term: &PodAffinityTerm, own_namespace: &str) -> Self {
        let mut namespaces: BTreeSet<_> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(own_namespace.to_owned());
        }
        Self {
            topology_key: term.topology_key.clone(),
            namespaces,
            namespace_selector: Selector::of_labels(term.namespace_selector.as_ref()),
            selector: Selector::of_labels(term.label_selector.as_ref()),
        }
    }

    /// Labels first: they tell most pods apart, and namespaces cost a look-up.
    pub(super) fn means(&self, namespace: &str, labels: &Labels, cluster: &Cluster) -> bool {
        self.selector.matches(labels)
            && (self.namespaces.contains(namespace)
                || self.namespace_selector.matches(cluster.namespace_labels(namespace)))
    }
}

impl HostPort {
    pub(super) fn clashes_with(&self, other: &Self) -> bool {
        const ANY: &str = "0.0.0.0";
        let overlap = self.address == other.address || self.address == ANY || other.address == ANY;
        overlap && self.port == other.port && self.protocol == other.protocol
    }
}

/// All names that any of the terms allows; `None` as soon as one of them does not go by name.
fn named_nodes(terms: &[NodeTerm]) -> Option<BTreeSet<String>> {
    if terms.is_empty() {
        return None;
    }
    let names = terms.iter().map(NodeTerm::node_names).collect::<Option<Vec<_>>>()?;
    Some(names.into_iter().flatten().collect())
}

fn required_nodes(affinity: &Affinity) -> Option<Vec<NodeTerm>> {
    let required = affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(required.node_selector_terms.iter().map(NodeTerm::read).collect())
}

fn preferred_nodes(affinity: &Affinity) -> Vec<(i64, NodeTerm)> {
    let preferred = affinity.node_affinity.as_ref();
    let preferred = preferred.and_then(|nodes| nodes.preferred_during_scheduling_ignored_during_execution.as_ref());
    let terms = preferred.into_iter().flatten();
    terms.map(|term| (i64::from(term.weight), NodeTerm::read(&term.preference))).collect()
}

fn required_pods(affinity: &Affinity, namespace: &str) -> (Vec<PodTerm>, Vec<PodTerm>) {
    let near = affinity.pod_affinity.as_ref();
    let near = near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_deref());
    let apart = affinity.pod_anti_affinity.as_ref();
    let apart = apart.and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_deref());
    let read = |terms: Option<&[PodAffinityTerm]>| {
        terms.unwrap_or_default().iter().map(|term| PodTerm::read(term, namespace)).collect()
    };
    (read(near), read(apart))
}

fn preferred_pods(affinity: &Affinity, namespace: &str) -> Vec<(i64, PodTerm)> {
    let near = affinity.pod_affinity.as_ref();
    let near = near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_deref());
    let apart = affinity.pod_anti_affinity.as_ref();
    let apart = apart.and_then(|apart| apart.preferred_during_scheduling_ignored_during_execution.as_deref());
    let read = |term: &WeightedPodAffinityTerm, sign: i64| {
        (sign * i64::from(term.weight), PodTerm::read(&term.pod_affinity_term, namespace))
    };
    let near = near.unwrap_or_default().iter().map(|term| read(term, 1));
    near.chain(apart.unwrap_or_default().iter().map(|term| read(term, -1))).collect()
}

/// Of containers that run as long as the pod does; the others hold a port for a moment only.
fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| restarts_always(container));
    let ports = sidecars.chain(&spec.containers).flat_map(|container| container.ports.iter().flatten());
    let mut taken: Vec<_> = ports
        .filter_map(|port| {
            Some(HostPort {
                port: port.host_port.filter(|number| *number > 0)?,
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                address: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned()),
            })
        })
        .collect();
    taken.sort();
    taken.dedup();
    taken
}
