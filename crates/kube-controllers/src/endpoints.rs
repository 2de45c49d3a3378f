//! Endpoints: where the clients of a service find its pods, in one object, for clients from before there were slices.
//!
//! ```text
//! Service ─────────────┐
//! the pods it selects ─┼─> observe ──> decide: one object of the service's name ──> Plan ──> act: one write
//! its Endpoints ───────┘
//! ```
//! Kubernetes calls the kind deprecated and goes on writing it. An object has a thousand addresses at most, and says so when there
//! would be more.
//!
//! Watches: Service, Pod, Endpoints. Owns: the Endpoints of services that have a selector, and their end when the service goes.
//! Emits: FailedToCreateEndpoint, FailedToUpdateEndpoint.
//! Absent on purpose: what somebody wrote for a service without a selector stays as it is while the service is there.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, ObjectReference, Pod, Service, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::pods;
use crate::services::{self, HEADLESS, TRIGGER_TIME};

pub mod controller;
mod subsets;

#[cfg(test)]
mod tests;

/// Which Endpoints are this controller's.
pub(crate) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
pub(crate) const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// The most addresses of one object.
const MOST: usize = 1000;

/// What the caches say about one service.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The service itself. It has a selector.
    pub service: &'a Service,
    /// The pods that it selects.
    pub pods: Vec<&'a Pod>,
    /// What there is.
    pub current: Option<&'a Endpoints>,
    /// What led to this look.
    pub trigger: Option<Timestamp>,
}

/// What to do about one service.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// It is as it should be.
    Nothing,
    /// There is none.
    Create(Box<Endpoints>),
    /// It has to say something else: as a whole, over what was observed.
    Update(Box<Endpoints>),
}

/// # Guarantees
/// - Every pod that can be reached is in it once for each port, ready or not, and no other.
/// - No more than a thousand addresses; ready ones first.
/// - Equal observations give equal plans, in whatever order the pods come; what is there and says the same is left alone.
#[must_use]
pub fn decide(seen: &Observed<'_>) -> Plan {
    let spec = services::spec(seen.service);
    let mut wanted = subsets::repack(subsets(seen, &spec));
    let truncated = subsets::truncate(&mut wanted, MOST);
    let labels = labels(seen.service, &spec);
    let annotated = |endpoints: &Endpoints| {
        let annotations = endpoints.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key(OVER_CAPACITY))
    };
    if let Some(current) = seen.current
        && subsets::repack(current.subsets.clone().unwrap_or_default()) == wanted
        && current.metadata.labels.as_ref() == Some(&labels)
        && annotated(current) == truncated
    {
        return Plan::Nothing;
    }
    let mut metadata = seen.current.map_or_else(
        || ObjectMeta {
            name: seen.service.metadata.name.clone(),
            namespace: seen.service.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        |current| current.metadata.clone(),
    );
    metadata.labels = Some(labels);
    let mut annotations = metadata.annotations.take().unwrap_or_default();
    set(&mut annotations, TRIGGER_TIME, seen.trigger.map(|time| time.to_string()));
    set(&mut annotations, OVER_CAPACITY, truncated.then(|| "truncated".to_owned()));
    metadata.annotations = (!annotations.is_empty()).then_some(annotations);
    let endpoints = Box::new(Endpoints { metadata, subsets: (!wanted.is_empty()).then_some(wanted) });
    if seen.current.is_some() { Plan::Update(endpoints) } else { Plan::Create(endpoints) }
}

fn set(annotations: &mut BTreeMap<String, String>, name: &str, value: Option<String>) {
    match value {
        Some(value) => drop(annotations.insert(name.to_owned(), value)),
        None => drop(annotations.remove(name)),
    }
}

/// Those of the service, and what says whose they are.
fn labels(service: &Service, spec: &ServiceSpec) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if services::is_headless(spec) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

/// One subset for each pod and port, not packed yet.
fn subsets(seen: &Observed<'_>, spec: &ServiceSpec) -> Vec<EndpointSubset> {
    let publishes = spec.publish_not_ready_addresses == Some(true);
    let mut all = Vec::new();
    for pod in seen.pods.iter().filter(|pod| services::is_endpoint(pod)) {
        if pod.metadata.deletion_timestamp.is_some() && !publishes {
            continue;
        }
        let Some(address) = address(seen.service, spec, pod) else { continue };
        let ready = publishes || pods::is_ready(pod);
        let subset = |ports: Option<Vec<EndpointPort>>| {
            let addresses = Some(vec![address.clone()]);
            match ready {
                true => EndpointSubset { addresses, not_ready_addresses: None, ports },
                false => EndpointSubset { addresses: None, not_ready_addresses: addresses, ports },
            }
        };
        if services::has_no_ports(spec) {
            all.push(subset(None));
            continue;
        }
        for port in spec.ports.iter().flatten() {
            let Some(number) = services::target_port(port, pod) else { continue };
            all.push(subset(Some(vec![EndpointPort {
                name: port.name.clone().filter(|name| !name.is_empty()),
                port: number,
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
                app_protocol: port.app_protocol.clone(),
            }])));
        }
    }
    all
}

/// The pod's address of the service's first family; none, if it has none of it.
fn address(service: &Service, spec: &ServiceSpec, pod: &Pod) -> Option<EndpointAddress> {
    let own = services::addresses(pod);
    let first = spec.ip_families.as_ref().and_then(|families| families.first());
    let wants_v6 = match (first, spec.cluster_ip.as_deref().filter(|_| !services::is_headless(spec))) {
        (Some(family), _) => family == "IPv6",
        (None, Some(address)) => address.contains(':'),
        // A server that does not say families: whatever the pod has.
        (None, None) => own.first().is_some_and(IpAddr::is_ipv6),
    };
    let ip = own.into_iter().find(|one| one.is_ipv6() == wants_v6)?;
    Some(EndpointAddress {
        ip: ip.to_string(),
        hostname: services::hostname(pod, service),
        node_name: services::node_name(pod).map(str::to_owned),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
    })
}

/// Whether the Endpoints of a service that is gone go with it: those that this controller wrote, and all of a service that was
/// seen to go. Endpoints that are there before their service are not touched.
pub(crate) fn goes_with_service(endpoints: &Endpoints, seen_to_go: bool) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    seen_to_go || labels.and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|by| by == MANAGER)
}
