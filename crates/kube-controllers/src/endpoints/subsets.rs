//! The one form of subsets: addresses that offer the same ports are together, and everything is in order.
//!
//! Kubernetes orders ports and subsets by hashes of its own; here they are in the order of what they say. Before two are compared
//! both are brought into this form, so that what Kubernetes wrote is not written again.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};

/// What makes an address the same one.
type Identity = (String, Option<String>);
/// A port, or none for a service that names none.
type Port = Option<(Option<String>, String, i32, Option<String>)>;

pub(super) fn repack(subsets: Vec<EndpointSubset>) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<Identity, EndpointAddress> = BTreeMap::new();
    let mut by_port: BTreeMap<Port, BTreeMap<Identity, bool>> = BTreeMap::new();
    for EndpointSubset { addresses: ready, not_ready_addresses: unready, ports } in subsets {
        let ports = ports.filter(|ports| !ports.is_empty());
        let ports: Vec<Port> =
            ports.map_or_else(|| vec![None], |ports| ports.iter().map(|port| Some(key(port))).collect());
        let all = ready.into_iter().flatten().map(|one| (one, true));
        for (address, is_ready) in all.chain(unready.into_iter().flatten().map(|one| (one, false))) {
            let identity = identity(&address);
            for port in &ports {
                // Whoever is called both is not ready.
                let known = by_port.entry(port.clone()).or_default().entry(identity.clone()).or_insert(is_ready);
                *known &= is_ready;
            }
            addresses.entry(identity).or_insert_with(|| plain(address));
        }
    }
    let mut by_addresses: BTreeMap<BTreeMap<Identity, bool>, Vec<EndpointPort>> = BTreeMap::new();
    for (port, identities) in by_port {
        by_addresses.entry(identities).or_default().extend(port.map(of_key));
    }
    let packed = by_addresses.into_iter().map(|(identities, ports)| {
        let those = |wanted: bool| {
            let chosen = identities.iter().filter(|(_, ready)| **ready == wanted);
            let found: Vec<EndpointAddress> =
                chosen.filter_map(|(identity, _)| addresses.get(identity).cloned()).collect();
            (!found.is_empty()).then_some(found)
        };
        EndpointSubset {
            addresses: those(true),
            not_ready_addresses: those(false),
            ports: (!ports.is_empty()).then_some(ports),
        }
    });
    packed.collect()
}

/// Leaves out what is too much, and says whether there was any: ready addresses count before others, and each subset keeps its
/// share.
pub(super) fn truncate(subsets: &mut [EndpointSubset], most: usize) -> bool {
    let ready: usize = subsets.iter().map(|one| length(one.addresses.as_ref())).sum();
    let unready: usize = subsets.iter().map(|one| length(one.not_ready_addresses.as_ref())).sum();
    if ready + unready <= most {
        return false;
    }
    let (room, total) = if ready > most { (most, ready) } else { (most - ready, unready) };
    let mut left = room;
    for subset in subsets {
        let list = if ready > most {
            subset.not_ready_addresses = None;
            &mut subset.addresses
        } else {
            &mut subset.not_ready_addresses
        };
        let share = (length(list.as_ref()) * room).div_ceil(total.max(1)).min(left);
        if let Some(addresses) = list {
            addresses.truncate(share);
            left -= addresses.len();
        }
        *list = list.take().filter(|addresses| !addresses.is_empty());
    }
    true
}

fn length(addresses: Option<&Vec<EndpointAddress>>) -> usize {
    addresses.map_or(0, Vec::len)
}

fn identity(address: &EndpointAddress) -> Identity {
    (address.ip.clone(), address.target_ref.as_ref().and_then(|target| target.uid.clone()))
}

/// Which version of the pod it was made from says nothing.
fn plain(mut address: EndpointAddress) -> EndpointAddress {
    if let Some(target) = &mut address.target_ref {
        target.resource_version = None;
    }
    address
}

fn key(port: &EndpointPort) -> (Option<String>, String, i32, Option<String>) {
    let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    (port.name.clone().filter(|name| !name.is_empty()), protocol, port.port, port.app_protocol.clone())
}

fn of_key((name, protocol, port, app_protocol): (Option<String>, String, i32, Option<String>)) -> EndpointPort {
    EndpointPort { name, protocol: Some(protocol), port, app_protocol }
}
