//! Interfaces, from three sides: what the instance asks for, what was made in the pod, what the guest's agent sees.

use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstanceNetworkInterface as Status;
use launcher_api::rpc;

use super::Facts;

const DOMAIN: &str = "domain";
const GUEST_AGENT: &str = "guest-agent";
/// The guest's own loopback is no interface of the instance.
const LOOPBACK: &str = "lo";

/// One entry for each interface of the spec, in their order, and one for each that only the guest knows. Addresses of an
/// interface behind the pod's are the pod's: those are where it is reached.
pub(super) fn interfaces(vmi: &VirtualMachineInstance, facts: &Facts<'_>) -> Vec<Status> {
    let known = vmi.status.as_ref().and_then(|status| status.interfaces.as_deref()).unwrap_or_default();
    let seen = facts.guest.map(|guest| guest.interfaces.as_slice()).unwrap_or_default();
    let wanted = vmi.spec.domain.devices.interfaces.as_deref().unwrap_or_default();
    let mut all: Vec<Status> = wanted
        .iter()
        .map(|interface| {
            let old = known.iter().find(|one| one.name.as_ref() == Some(&interface.name)).cloned().unwrap_or_default();
            let link = facts.links.unwrap_or_default().iter().find(|link| link.name == interface.name);
            let mut status = Status {
                name: Some(interface.name.clone()),
                mac: link.map(|link| link.mac.clone()).or_else(|| interface.mac_address.clone()).or(old.mac.clone()),
                queue_count: old.queue_count.or(Some(1)),
                ..old
            };
            if let Some(link) = link {
                status.pod_interface_name = Some(link.pod_link.clone()).filter(|name| !name.is_empty());
                status.ip_address = link.addresses.first().cloned();
                status.ip_addresses = Some(link.addresses.clone()).filter(|all| !all.is_empty());
            }
            merge(status, seen, facts, interface.masquerade.is_some())
        })
        .collect();
    match facts.guest {
        Some(_) => {
            let macs: Vec<String> = all.iter().filter_map(|one| one.mac.clone()).collect();
            let others = seen.iter().filter(|one| one.name != LOOPBACK && !macs.iter().any(|mac| same(mac, &one.mac)));
            all.extend(others.map(of_guest_only));
        }
        // An agent that is silent has not taken its interfaces away.
        None if facts.domain.is_none_or(|domain| domain.agent_connected) => {
            all.extend(known.iter().filter(|one| one.info_source.as_deref() == Some(GUEST_AGENT)).cloned());
        }
        None => {}
    }
    all
}

fn merge(mut status: Status, seen: &[rpc::Interface], facts: &Facts<'_>, is_hidden: bool) -> Status {
    let in_guest = seen.iter().find(|one| status.mac.as_ref().is_some_and(|mac| same(mac, &one.mac)));
    if let Some(guest) = in_guest {
        status.interface_name = Some(guest.name.clone());
        status.info_source = Some(format!("{DOMAIN}, {GUEST_AGENT}"));
        if !is_hidden {
            let addresses = addresses(guest);
            status.ip_address = addresses.first().cloned();
            status.ip_addresses = Some(addresses).filter(|all| !all.is_empty());
        }
    } else if facts.guest.is_some() || facts.domain.is_some_and(|domain| !domain.agent_connected) {
        status.interface_name = None;
        status.info_source = Some(DOMAIN.to_owned());
    } else {
        status.info_source.get_or_insert_with(|| DOMAIN.to_owned());
    }
    status
}

fn of_guest_only(guest: &rpc::Interface) -> Status {
    let addresses = addresses(guest);
    Status {
        interface_name: Some(guest.name.clone()),
        mac: Some(guest.mac.clone()).filter(|mac| !mac.is_empty()),
        info_source: Some(GUEST_AGENT.to_owned()),
        ip_address: addresses.first().cloned(),
        ip_addresses: Some(addresses).filter(|all| !all.is_empty()),
        ..Status::default()
    }
}

/// Addresses as they are, without the length of their network.
fn addresses(guest: &rpc::Interface) -> Vec<String> {
    guest.addresses.iter().map(|one| one.split('/').next().unwrap_or(one).to_owned()).collect()
}

fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}
