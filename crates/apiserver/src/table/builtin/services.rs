//! Services and who answers for them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::parts::{at, first_of, items, labels, number, or, text, texts};
use super::{AGE, Cell, NAME};

pub(super) const SERVICES: &[Cell] = &[
    NAME,
    Cell::text("Type", "Type of the service.", |service, _| text(service, "/spec/type")),
    Cell::text("Cluster-IP", "Internal address.", |service, _| or(service, "/spec/clusterIPs/0", "<none>").into()),
    Cell::text("External-IP", "External addresses.", |service, _| outside(service).into()),
    Cell::text("Port(s)", "Ports, with their node ports.", |service, _| ports(service).into()),
    AGE,
    Cell::text("Selector", "Labels of the pods that it selects.", |service, _| labels(service, "/spec/selector"))
        .wide(),
];

pub(super) const ENDPOINTS: &[Cell] = &[
    NAME,
    Cell::text("Endpoints", "Addresses and ports of the endpoints.", |object, _| endpoints(object).into()),
    AGE,
];

fn outside(service: &Value) -> String {
    let own = texts(items(service, "/spec/externalIPs"), "");
    let all = match at(service, "/spec/type") {
        "ExternalName" => return at(service, "/spec/externalName").to_owned(),
        "LoadBalancer" => balancers(service).into_iter().chain(own).collect(),
        "ClusterIP" | "NodePort" => own,
        _ => return "<unknown>".to_owned(),
    };
    match (all.is_empty(), at(service, "/spec/type")) {
        (true, "LoadBalancer") => "<pending>".to_owned(),
        (true, _) => "<none>".to_owned(),
        (false, _) => all.join(","),
    }
}

/// What load balancers the status names, by address or else by name.
pub(super) fn balancers(object: &Value) -> BTreeSet<&str> {
    let name = |ingress| match at(ingress, "/ip") {
        "" => at(ingress, "/hostname"),
        address => address,
    };
    items(object, "/status/loadBalancer/ingress").iter().map(name).filter(|name| !name.is_empty()).collect()
}

fn ports(service: &Value) -> String {
    let port = |port: &Value| {
        let (number, node, protocol) = (number(port, "/port"), number(port, "/nodePort"), at(port, "/protocol"));
        if node > 0 { format!("{number}:{node}/{protocol}") } else { format!("{number}/{protocol}") }
    };
    let ports: Vec<_> = items(service, "/spec/ports").iter().map(port).collect();
    if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }
}

fn endpoints(object: &Value) -> String {
    let subsets = items(object, "/subsets");
    if subsets.is_empty() {
        return "<none>".to_owned();
    }
    let all: Vec<_> = subsets.iter().flat_map(addresses).collect();
    first_of(&all, 3, ",")
}

fn addresses(subset: &Value) -> Vec<String> {
    let addresses = texts(items(subset, "/addresses"), "/ip");
    let ports = items(subset, "/ports");
    if ports.is_empty() {
        return addresses.into_iter().map(str::to_owned).collect();
    }
    let with = |port: i64, address: &str| match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    };
    let pairs = ports.iter().flat_map(|port| addresses.iter().map(|address| with(number(port, "/port"), address)));
    pairs.collect()
}
