//! Endpoint slices: where the clients of a service find its pods, in pieces of at most a hundred.
//!
//! ```text
//! Service ─────────────┐
//! the pods it selects ─┼─> observe ──> decide: what each slice should say ──> Plan ──> act: creations, changes, deletions
//! their nodes' zones ──┤
//! its slices ──────────┘
//! ```
//! Endpoints stay in the slice where they are. Those that are new fill the slices that are written anyway, then one that has
//! room for all of them, then new slices: a change of one pod is a write of one slice (`placement.rs`).
//!
//! Watches: Service, Pod, Node, EndpointSlice. Owns: the slices that say `endpointslice.kubernetes.io/managed-by` this controller.
//! Emits: nothing.
//! Absent on purpose: topology-aware hints by annotation, which Kubernetes has given up; `trafficDistribution` gives hints. Slices
//! are not merged when they become emptier, as with Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode, ForZone,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use manager::claim::{self, Target};
use manager::names;

use crate::pods;
use crate::services::{self, HEADLESS, TRIGGER_TIME};

pub mod controller;
mod placement;

#[cfg(test)]
mod tests;

/// What slices say about who manages them.
pub(crate) const MANAGER: &str = "endpointslice-controller.k8s.io";
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// What the caches say about one service.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The service itself. It has a selector.
    pub service: &'a Service,
    /// The pods that it selects.
    pub pods: Vec<&'a Pod>,
    /// The zones of nodes, by name; a node that is not there has none.
    pub zones: BTreeMap<String, Option<String>>,
    /// The slices that name the service and are ours, those on their way out apart.
    pub slices: Vec<&'a EndpointSlice>,
    /// Names that are somebody else's.
    pub taken_names: BTreeSet<String>,
    /// What led to this look.
    pub trigger: Option<Timestamp>,
    /// How many endpoints a slice has at most.
    pub most: usize,
}

/// What to do about one service; empty at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Slices that are missing. Their names derive from the service's UID, where Kubernetes lets the server choose: an answer
    /// that is lost makes no second slice.
    pub create: Vec<EndpointSlice>,
    /// Slices that have to say something else, as whole objects over what was observed.
    pub update: Vec<EndpointSlice>,
    /// Slices that nothing is left for.
    pub delete: Vec<Target>,
}

/// # Guarantees
/// - The slices together say of every pod that has an address, and of no other, what there is to say, each once.
/// - No slice has more than `most` endpoints, and one that has fewer is changed before another is made.
/// - There is at least one slice for each address family, so that a client can tell that there is no pod.
/// - Equal observations give equal plans; at rest the plan is empty.
#[must_use]
pub fn decide(seen: &Observed<'_>) -> Plan {
    let spec = services::spec(seen.service);
    let families = families(&spec);
    let mut plan = Plan::default();
    let (mut fresh, mut free) = (Vec::new(), Vec::new());
    for family in Family::ALL {
        let of_family = seen.slices.iter().copied().filter(|slice| slice.address_type == family.name());
        let (own, foreign): (Vec<_>, Vec<_>) = of_family.partition(|slice| is_owned(slice, seen.service));
        plan.delete.extend(foreign.iter().map(|slice| Target::of(&slice.metadata)));
        if !families.contains(&family) {
            plan.delete.extend(own.iter().map(|slice| Target::of(&slice.metadata)));
            continue;
        }
        let placed = place(seen, &spec, family, &own);
        plan.update.extend(placed.update);
        reuse(&mut plan, placed.create, placed.delete, &mut fresh, &mut free);
    }
    // Of another type than there are, such as names of hosts.
    let known = |slice: &&&EndpointSlice| Family::ALL.iter().any(|family| family.name() == slice.address_type);
    plan.delete.extend(seen.slices.iter().filter(|slice| !known(slice)).map(|slice| Target::of(&slice.metadata)));
    plan.delete.extend(free.into_iter().map(|slice| Target::of(&slice.metadata)));
    // Nobody makes children for a service that goes: the collector takes them away meanwhile.
    if seen.service.metadata.deletion_timestamp.is_none() {
        plan.create = named(seen, fresh);
    }
    for slice in plan.create.iter_mut().chain(&mut plan.update) {
        note_trigger(slice, seen.trigger);
    }
    plan
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const ALL: [Self; 2] = [Self::V4, Self::V6];

    fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// The address families of a service. A server that does not say them has a service without an address in both.
fn families(spec: &ServiceSpec) -> Vec<Family> {
    let named = spec.ip_families.iter().flatten();
    let named: Vec<Family> =
        named.filter_map(|name| Family::ALL.into_iter().find(|family| family.name() == name)).collect();
    if !named.is_empty() {
        return named;
    }
    match spec.cluster_ip.as_deref().filter(|_| !services::is_headless(spec)) {
        Some(address) if address.contains(':') => vec![Family::V6],
        Some(_) => vec![Family::V4],
        None => Family::ALL.to_vec(),
    }
}

/// What to do about the slices of one family.
#[derive(Default)]
struct Placed<'a> {
    create: Vec<EndpointSlice>,
    update: Vec<EndpointSlice>,
    delete: Vec<&'a EndpointSlice>,
}

fn place<'a>(seen: &Observed<'_>, spec: &ServiceSpec, family: Family, own: &[&'a EndpointSlice]) -> Placed<'a> {
    let mut wanted: BTreeMap<Vec<Port>, Vec<Endpoint>> = BTreeMap::new();
    for pod in seen.pods.iter().filter(|pod| services::is_endpoint(pod)) {
        if let Some(endpoint) = endpoint(seen, spec, pod, family) {
            wanted.entry(ports(spec, pod)).or_default().push(endpoint);
        }
    }
    let mut by_ports: BTreeMap<Vec<Port>, Vec<&EndpointSlice>> = BTreeMap::new();
    for slice in own {
        by_ports.entry(ports_of(slice)).or_default().push(slice);
    }
    let labels = labels(seen.service, spec);
    let mut placed = Placed::default();
    for (ports, endpoints) in wanted {
        let existing = by_ports.remove(&ports).unwrap_or_default();
        let new = |endpoints: Vec<Endpoint>| slice(seen.service, &labels, family, &ports, endpoints);
        let changes = placement::place(&existing, endpoints, &labels, seen.most);
        placed.create.extend(changes.create.into_iter().map(new));
        placed.update.extend(changes.update);
        placed.delete.extend(changes.delete);
    }
    placed.delete.extend(by_ports.into_values().flatten());
    if placed.create.is_empty() && placed.delete.len() == own.len() {
        // One that says that there is nothing.
        let empty = slice(seen.service, &labels, family, &[], Vec::new());
        match placed.delete.as_slice() {
            [one]
                if endpoints_of(one).is_empty()
                    && ports_of(one).is_empty()
                    && one.metadata.labels == empty.metadata.labels =>
            {
                placed.delete.clear();
            }
            _ => placed.create.push(empty),
        }
    }
    placed
}

/// What was to be deleted says from now on what was to be created: one write instead of two.
fn reuse<'a>(
    plan: &mut Plan,
    create: Vec<EndpointSlice>,
    delete: Vec<&'a EndpointSlice>,
    fresh: &mut Vec<EndpointSlice>,
    free: &mut Vec<&'a EndpointSlice>,
) {
    let mut unused = delete.into_iter();
    for slice in create {
        match unused.next() {
            Some(old) => {
                let metadata = ObjectMeta { labels: slice.metadata.labels.clone(), ..old.metadata.clone() };
                plan.update.push(EndpointSlice { metadata, ..slice });
            }
            None => fresh.push(slice),
        }
    }
    free.extend(unused);
}

/// What was to be created, with names: from the service's UID and the names in use.
fn named(seen: &Observed<'_>, fresh: Vec<EndpointSlice>) -> Vec<EndpointSlice> {
    let mut in_use: BTreeSet<&str> = seen.slices.iter().filter_map(|slice| slice.metadata.name.as_deref()).collect();
    in_use.extend(seen.taken_names.iter().map(String::as_str));
    let owner = &seen.service.metadata;
    let (prefix, uid) = (names::prefix(owner.name.as_deref().unwrap_or_default()), owner.uid.as_deref());
    let chosen = names::free_names(&prefix, uid.unwrap_or_default(), &in_use, fresh.len());
    let named = fresh.into_iter().zip(chosen).map(|(mut slice, name)| {
        slice.metadata.name = Some(name);
        slice
    });
    named.collect()
}

fn is_owned(slice: &EndpointSlice, service: &Service) -> bool {
    let owners = slice.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| Some(&owner.uid) == service.metadata.uid.as_ref())
}

/// What a slice says; a server may leave out what is empty.
fn endpoints_of(slice: &EndpointSlice) -> &[Endpoint] {
    slice.endpoints.as_deref().unwrap_or_default()
}

/// A port in an order of its own, so that the same ports are the same slices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Port {
    name: Option<String>,
    protocol: Option<String>,
    port: Option<i32>,
    app_protocol: Option<String>,
}

fn ports(spec: &ServiceSpec, pod: &Pod) -> Vec<Port> {
    if services::has_no_ports(spec) {
        return Vec::new();
    }
    let port = |port: &k8s_openapi::api::core::v1::ServicePort| {
        Some(Port {
            name: Some(port.name.clone().unwrap_or_default()),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            port: Some(services::target_port(port, pod)?),
            app_protocol: port.app_protocol.clone(),
        })
    };
    let mut all: Vec<Port> = spec.ports.iter().flatten().filter_map(port).collect();
    all.sort();
    all
}

/// The ports of a slice, in the same order. The server fills in a name and a protocol.
fn ports_of(slice: &EndpointSlice) -> Vec<Port> {
    let port = |port: &EndpointPort| Port {
        name: Some(port.name.clone().unwrap_or_default()),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        port: port.port,
        app_protocol: port.app_protocol.clone(),
    };
    let mut all: Vec<Port> = slice.ports.iter().flatten().map(port).collect();
    all.sort();
    all
}

/// What a slice says about a pod; none, if the pod has no address of the family, or is on a node that is not known: such a pod
/// goes soon, unless the service wants it all the same.
fn endpoint(seen: &Observed<'_>, spec: &ServiceSpec, pod: &Pod, family: Family) -> Option<Endpoint> {
    let publishes = spec.publish_not_ready_addresses == Some(true);
    let node = services::node_name(pod);
    let zone = node.and_then(|node| seen.zones.get(node));
    if zone.is_none() && !publishes {
        return None;
    }
    let own = services::addresses(pod).into_iter().filter(|one| one.is_ipv6() == (family == Family::V6));
    let addresses: Vec<String> = own.map(|one| one.to_string()).collect();
    if addresses.is_empty() {
        return None;
    }
    let (serving, terminating) = (pods::is_ready(pod), pod.metadata.deletion_timestamp.is_some());
    let ready = publishes || (serving && !terminating);
    let zone = zone.cloned().flatten();
    let hints = hints(spec, node, zone.as_ref()).filter(|_| ready);
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hints,
        hostname: services::hostname(pod, seen.service),
        node_name: node.map(str::to_owned),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        zone,
        ..Endpoint::default()
    })
}

/// Whom an endpoint is best for, where the service asks for what is near.
fn hints(spec: &ServiceSpec, node: Option<&str>, zone: Option<&String>) -> Option<EndpointHints> {
    let distribution = spec.traffic_distribution.as_deref()?;
    if !matches!(distribution, "PreferClose" | "PreferSameZone" | "PreferSameNode") {
        return None;
    }
    let for_zones = zone.map(|name| vec![ForZone { name: name.clone() }]);
    let for_nodes =
        node.filter(|_| distribution == "PreferSameNode").map(|name| vec![ForNode { name: name.to_owned() }]);
    (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_nodes, for_zones })
}

/// Those of the service, and what says whose they are.
fn labels(service: &Service, spec: &ServiceSpec) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if services::is_headless(spec) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), service.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn slice(
    service: &Service,
    labels: &BTreeMap<String, String>,
    family: Family,
    ports: &[Port],
    endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    let ports = ports.iter().cloned().map(|Port { name, protocol, port, app_protocol }| EndpointPort {
        name,
        protocol,
        port,
        app_protocol,
    });
    EndpointSlice {
        address_type: family.name().to_owned(),
        endpoints: Some(endpoints),
        metadata: ObjectMeta {
            namespace: service.metadata.namespace.clone(),
            generate_name: Some(names::prefix(service.metadata.name.as_deref().unwrap_or_default())),
            labels: Some(labels.clone()),
            owner_references: Some(vec![claim::reference::<Service>(&service.metadata)]),
            ..ObjectMeta::default()
        },
        ports: Some(ports.collect()),
    }
}

fn note_trigger(slice: &mut EndpointSlice, trigger: Option<Timestamp>) {
    let annotations = slice.metadata.annotations.get_or_insert_default();
    match trigger {
        Some(time) => drop(annotations.insert(TRIGGER_TIME.to_owned(), time.to_string())),
        None => drop(annotations.remove(TRIGGER_TIME)),
    }
    if annotations.is_empty() {
        slice.metadata.annotations = None;
    }
}
