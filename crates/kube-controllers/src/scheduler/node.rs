//! A node, reduced to what scheduling looks at, and what the pods on it take.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};

use super::pod::{HostPort, PodInfo};
use super::resources::{Demand, Resources, amount};
use super::selector::Labels;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeInfo {
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) taints: Vec<Taint>,
    pub(super) unschedulable: bool,
    pub(super) allocatable: Resources,
    pub(super) allowed_pods: i128,
    pub(super) load: Load,
}

/// What the pods on a node take; outlives the node's object, whose pods may be seen first and last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Load {
    pub(super) pods: BTreeMap<String, Arc<PodInfo>>,
    pub(super) requested: Resources,
    pub(super) demand: Demand,
    /// How many pods take each port: two may, by binding them past the scheduler.
    pub(super) ports: BTreeMap<HostPort, usize>,
}

impl NodeInfo {
    /// Without any load.
    pub(super) fn new(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let pods = allocatable.and_then(|allocatable| allocatable.get("pods"));
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.and_then(|spec| spec.taints.clone()).unwrap_or_default(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            allocatable: Resources::read(allocatable),
            allowed_pods: pods.map(|quantity| amount(quantity).units()).unwrap_or_default(),
            load: Load::default(),
        }
    }
}

impl Load {
    pub(super) fn add(&mut self, pod: &Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.demand.add(pod.demand);
        for port in &pod.ports {
            *self.ports.entry(port.clone()).or_default() += 1;
        }
        self.pods.insert(pod.uid.clone(), Arc::clone(pod));
    }

    pub(super) fn remove(&mut self, pod: &PodInfo) {
        self.requested.subtract(&pod.requests);
        self.demand.subtract(pod.demand);
        for port in &pod.ports {
            if let Some(count) = self.ports.get_mut(port) {
                *count -= 1;
                if *count == 0 {
                    self.ports.remove(port);
                }
            }
        }
        self.pods.remove(&pod.uid);
    }
}
