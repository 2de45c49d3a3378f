//! Nodes and pods in a few numbers, and the rules of the filters said a second time: slowly, and straight from the
//! documentation.

use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::option;
use proptest::prelude::{Strategy, any};
use serde_json::json;

#[derive(Clone, Copy, Debug)]
pub(super) struct SketchNode {
    cpu: u32,
    gpus: u32,
    pods: usize,
    zone: Option<u8>,
    tainted: bool,
    cordoned: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SketchPod {
    cpu: u32,
    init_cpu: u32,
    gpus: u32,
    app: u8,
    namespace: u8,
    tolerates: bool,
    zone: Option<u8>,
    port: Option<u8>,
    near: Option<(u8, Topology)>,
    apart: Option<(u8, Topology)>,
    /// With a weight; below zero, it would better be apart.
    preferred: Option<(i64, (u8, Topology))>,
}

#[derive(Clone, Copy, Debug)]
enum Topology {
    Host,
    Zone,
}

/// A pod, and the index of its node.
pub(super) type Placement = (SketchPod, usize);

pub(super) fn any_node() -> impl Strategy<Value = SketchNode> {
    let numbers = (0..8_u32, 0..3_u32, 1..5_usize, option::of(0..2_u8));
    (numbers, proptest::bool::weighted(0.2), proptest::bool::weighted(0.2)).prop_map(
        |((cpu, gpus, pods, zone), tainted, cordoned)| SketchNode { cpu, gpus, pods, zone, tainted, cordoned },
    )
}

pub(super) fn any_pod() -> impl Strategy<Value = SketchPod> {
    let topology = || any::<bool>().prop_map(|zone| if zone { Topology::Zone } else { Topology::Host });
    let term = || option::weighted(0.2, (0..3_u8, topology()));
    let numbers = (0..4_u32, 0..4_u32, 0..2_u32, 0..3_u8, 0..2_u8);
    let weight = || (1..100_i64, any::<bool>()).prop_map(|(weight, apart)| if apart { -weight } else { weight });
    let preferred = option::weighted(0.3, (weight(), (0..3_u8, topology())));
    let wishes = (any::<bool>(), option::weighted(0.2, 0..2_u8), option::weighted(0.2, 0..2_u8));
    (numbers, wishes, (term(), term(), preferred)).prop_map(
        |((cpu, init_cpu, gpus, app, namespace), (tolerates, zone, port), (near, apart, preferred))| SketchPod {
            cpu,
            init_cpu,
            gpus,
            app,
            namespace,
            tolerates,
            zone,
            port,
            near,
            apart,
            preferred,
        },
    )
}

pub(super) fn node_name(index: usize) -> String {
    format!("n{index}")
}

impl SketchNode {
    pub(super) fn object(&self, index: usize) -> Node {
        let mut labels = json!({ "host": node_name(index) });
        if let Some(zone) = self.zone {
            labels["zone"] = json!(zone.to_string());
        }
        let taints = if self.tainted { json!([{ "key": "k", "effect": "NoSchedule" }]) } else { json!([]) };
        let allocatable = json!({
            "cpu": self.cpu.to_string(), "pods": self.pods.to_string(), "example.com/gpu": self.gpus.to_string(),
        });
        let object = json!({
            "metadata": { "name": node_name(index), "labels": labels },
            "spec": { "taints": taints, "unschedulable": self.cordoned },
            "status": { "allocatable": allocatable },
        });
        serde_json::from_value(object).unwrap()
    }

    fn domain(&self, index: usize, topology: Topology) -> Option<String> {
        match topology {
            Topology::Host => Some(node_name(index)),
            Topology::Zone => self.zone.map(|zone| zone.to_string()),
        }
    }
}

impl SketchPod {
    pub(super) fn object(&self, uid: &str, node: Option<usize>) -> Pod {
        let term = |(app, topology): (u8, Topology)| {
            let key = match topology {
                Topology::Host => "host",
                Topology::Zone => "zone",
            };
            json!({ "topologyKey": key, "labelSelector": { "matchLabels": { "app": app.to_string() } } })
        };
        let affinity = |required: Option<(u8, Topology)>, towards: bool| {
            let preferred = self.preferred.filter(|(weight, _)| (*weight > 0) == towards);
            let preferred =
                preferred.map(|(weight, wanted)| json!([{ "weight": weight.abs(), "podAffinityTerm": term(wanted) }]));
            json!({
                "requiredDuringSchedulingIgnoredDuringExecution": required.map(|wanted| json!([term(wanted)])),
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            })
        };
        let ports = self.port.map(|port| json!([{ "containerPort": 1, "hostPort": 80 + i32::from(port) }]));
        let requests = json!({ "cpu": self.cpu.to_string(), "example.com/gpu": self.gpus.to_string() });
        let init_requests = json!({ "cpu": self.init_cpu.to_string() });
        let object = json!({
            "metadata": {
                "uid": uid, "name": uid, "namespace": format!("ns{}", self.namespace),
                "labels": { "app": self.app.to_string() },
            },
            "spec": {
                "nodeName": node.map(node_name),
                "containers": [{ "name": "c", "ports": ports, "resources": { "requests": requests } }],
                "initContainers": [{ "name": "i", "resources": { "requests": init_requests } }],
                "tolerations": self.tolerates.then(|| json!([{ "key": "k", "operator": "Exists" }])),
                "nodeSelector": self.zone.map(|zone| json!({ "zone": zone.to_string() })),
                "affinity": { "podAffinity": affinity(self.near, true), "podAntiAffinity": affinity(self.apart, false) },
            },
        });
        serde_json::from_value(object).unwrap()
    }

    fn is_meant(&self, app: u8, by: &SketchPod) -> bool {
        self.app == app && self.namespace == by.namespace
    }

    fn peak_cpu(&self) -> u32 {
        self.cpu.max(self.init_cpu)
    }
}

/// Whether the pods on a node stay within what it has.
pub(super) fn holds(index: usize, nodes: &[SketchNode], placed: &[Placement]) -> bool {
    let node = nodes[index];
    let here: Vec<_> = placed.iter().filter(|(_, at)| *at == index).map(|(pod, _)| pod).collect();
    here.iter().map(|pod| pod.peak_cpu()).sum::<u32>() <= node.cpu
        && here.iter().map(|pod| pod.gpus).sum::<u32>() <= node.gpus
        && here.len() <= node.pods
}

/// Whether a pod may go to a node, with the others where they are.
pub(super) fn fits(pod: &SketchPod, index: usize, nodes: &[SketchNode], placed: &[Placement]) -> bool {
    let node = nodes[index];
    let here: Vec<_> = placed.iter().filter(|(_, at)| *at == index).map(|(pod, _)| pod).collect();
    let left = |whole: u32, taken: u32, wanted: u32| wanted == 0 || taken + wanted <= whole;
    let resources = left(node.cpu, here.iter().map(|pod| pod.peak_cpu()).sum(), pod.peak_cpu())
        && left(node.gpus, here.iter().map(|pod| pod.gpus).sum(), pod.gpus)
        && here.len() < node.pods;
    let ports = pod.port.is_none_or(|port| here.iter().all(|other| other.port != Some(port)));
    let zone = pod.zone.is_none_or(|zone| node.zone == Some(zone));
    let admitted = !node.cordoned && (!node.tainted || pod.tolerates);
    let same_domain = |at: usize, topology: Topology| is_same_domain(index, at, topology, nodes);
    let near = pod.near.is_none_or(|(app, topology)| {
        let mut meant = placed.iter().filter(|(other, _)| other.is_meant(app, pod));
        let nobody = meant.clone().all(|(_, at)| nodes[*at].domain(*at, topology).is_none());
        let first = nobody && pod.is_meant(app, pod) && node.domain(index, topology).is_some();
        first || meant.any(|(_, at)| same_domain(*at, topology))
    });
    let apart = pod.apart.is_none_or(|(app, topology)| {
        !placed.iter().any(|(other, at)| other.is_meant(app, pod) && same_domain(*at, topology))
    });
    let tolerated = placed.iter().all(|(other, at)| {
        other.apart.is_none_or(|(app, topology)| !(pod.is_meant(app, other) && same_domain(*at, topology)))
    });
    resources && ports && zone && admitted && near && apart && tolerated
}

/// How much the others want a pod to go to a node, and how much it wants to be near them there.
pub(super) fn pull(pod: &SketchPod, index: usize, nodes: &[SketchNode], placed: &[Placement]) -> i64 {
    let weigh = |by: &SketchPod, of: &SketchPod, at: usize, wish: Option<(i64, (u8, Topology))>| {
        let counts = |(app, topology)| of.is_meant(app, by) && is_same_domain(index, at, topology, nodes);
        wish.filter(|(_, wanted)| counts(*wanted)).map_or(0, |(weight, _)| weight)
    };
    let each = placed.iter().map(|(other, at)| {
        weigh(pod, other, *at, pod.preferred)
            + weigh(other, pod, *at, other.preferred)
            + weigh(other, pod, *at, other.near.map(|wanted| (1, wanted)))
    });
    each.sum()
}

fn is_same_domain(one: usize, other: usize, topology: Topology, nodes: &[SketchNode]) -> bool {
    let own = nodes[one].domain(one, topology);
    own.is_some() && own == nodes[other].domain(other, topology)
}
