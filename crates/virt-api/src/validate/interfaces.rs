//! Interfaces: one binding each, on a network that it can be bound to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use api::networks::{DHCPOptions, Interface, InterfaceState, Network};
use api::vmi::VirtualMachineInstanceSpec;
use virt_rules::config::ClusterConfig;
use virt_rules::names::is_port_name;

use crate::denial::Problems;

/// The bridge in the pod has it, and every guest behind a masquerade would.
const BRIDGE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];

pub(super) fn check(spec: &VirtualMachineInstanceSpec, config: &ClusterConfig, problems: &mut Problems) {
    let networks = spec.networks.iter().flatten().map(|network| (network.name.as_str(), network));
    let networks: BTreeMap<&str, &Network> = networks.collect();
    let mut seen = BTreeSet::new();
    for (index, interface) in spec.domain.devices.interfaces.iter().flatten().enumerate() {
        let field = format!("spec.domain.devices.interfaces[{index}]");
        let name = interface.name.as_str();
        if !seen.insert(name) {
            problems
                .duplicate(format!("{field}.name"), "another interface already uses this network; use another network");
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if name.is_empty() || !name.bytes().all(plain) {
            problems.invalid(format!("{field}.name"), format!("{name:?} may only have letters, digits, - and _"));
        }
        let network = networks.get(name).copied();
        if network.is_none() {
            let message = format!("network {name:?} does not exist; add it to spec.networks");
            problems.not_found(format!("{field}.name"), message);
        }
        check_binding(interface, network, config, &field, problems);
        check_hardware(interface, &field, problems);
        check_state(interface, network, &field, problems);
        check_ports(interface, &field, problems);
        if let Some(options) = &interface.dhcp_options {
            check_dhcp(options, &format!("{field}.dhcpOptions"), problems);
        }
    }
}

fn check_binding(
    interface: &Interface,
    network: Option<&Network>,
    config: &ClusterConfig,
    field: &str,
    problems: &mut Problems,
) {
    let Interface { binding, bridge, macvtap, masquerade, passt, passt_binding, slirp, sriov, .. } = interface;
    let legacy = macvtap.is_some() || passt.is_some() || slirp.is_some();
    let bindings =
        [binding.is_some(), bridge.is_some(), masquerade.is_some(), passt_binding.is_some(), sriov.is_some(), legacy];
    match bindings.iter().filter(|set| **set).count() {
        1 => {}
        0 => problems.required(field, "has no binding; set masquerade or bridge"),
        _ => problems.invalid(field, "has more than one binding; keep one"),
    }
    let pod = network.is_some_and(|network| network.pod.is_some());
    for (name, set) in [("masquerade", masquerade.is_some()), ("passtBinding", passt_binding.is_some())] {
        if set && network.is_some() && !pod {
            problems.invalid(format!("{field}.{name}"), "only works on the pod network; use bridge");
        }
    }
    if bridge.is_some() && pod && !config.permit_bridge_on_pod_network() {
        let message = "the KubeVirt CR does not permit bridge on the pod network; use masquerade";
        problems.invalid(format!("{field}.bridge"), message);
    }
    let plugin = binding.as_ref().filter(|binding| config.binding_plugin(&binding.name).is_none());
    if let Some(plugin) = plugin {
        let message = format!("{:?} is not registered in the KubeVirt CR; register it or use masquerade", plugin.name);
        problems.not_found(format!("{field}.binding.name"), message);
    }
}

fn check_hardware(interface: &Interface, field: &str, problems: &mut Problems) {
    let text = interface.mac_address.as_deref().unwrap_or_default();
    if !text.is_empty() {
        let field = format!("{field}.macAddress");
        if mac(text) == Some(BRIDGE_MAC) && interface.masquerade.is_some() {
            problems.invalid(field, "is reserved for the bridge in the pod; use another address");
        }
    }
}

fn check_state(interface: &Interface, network: Option<&Network>, field: &str, problems: &mut Problems) {
    let Some(state) = &interface.state else { return };
    let field = format!("{field}.state");
    let default = network.is_some_and(|network| {
        network.pod.is_some() || network.multus.as_ref().is_some_and(|multus| multus.default == Some(true))
    });
    match state {
        InterfaceState::Up | InterfaceState::Down if interface.sriov.is_some() => {
            problems.invalid(field, "the link of an SR-IOV interface cannot be set; remove it");
        }
        InterfaceState::Absent if interface.bridge.is_none() || default => {
            problems.invalid(field, "only bridged interfaces on secondary networks can be unplugged; remove it");
        }
        InterfaceState::Up | InterfaceState::Down | InterfaceState::Absent | InterfaceState::Other(_) => {}
    }
}

fn check_ports(interface: &Interface, field: &str, problems: &mut Problems) {
    let mut names = BTreeSet::new();
    for (index, port) in interface.ports.iter().flatten().enumerate() {
        let field = format!("{field}.ports[{index}]");
        let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) else { continue };
        if !is_port_name(name) {
            let message = "must have at most 15 lower-case letters, digits and -, at least one of them a letter";
            problems.invalid(format!("{field}.name"), format!("{name:?} {message}"));
        }
        if !names.insert(name) {
            problems.duplicate(format!("{field}.name"), format!("{name:?} is already used by another port; rename it"));
        }
    }
}

fn check_dhcp(options: &DHCPOptions, field: &str, problems: &mut Problems) {
    for (index, server) in options.ntp_servers.iter().flatten().enumerate() {
        if server.parse::<Ipv4Addr>().is_err() {
            let message = format!("{server:?} is not a valid IPv4 address; DHCP only supports IPv4");
            problems.invalid(format!("{field}.ntpServers[{index}]"), message);
        }
    }
    let mut codes = BTreeSet::new();
    for (index, option) in options.private_options.iter().flatten().enumerate() {
        let field = format!("{field}.privateOptions[{index}].option");
        if !(224..=254).contains(&option.option) {
            problems.invalid(field, format!("{} is not a private option code; use 224 to 254", option.option));
        } else if !codes.insert(option.option) {
            problems.duplicate(field, format!("{} is already set; use another", option.option));
        }
    }
}

/// Six bytes in hexadecimal, with `:` or `-` between them.
pub(crate) fn mac(text: &str) -> Option<[u8; 6]> {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    let bytes: Option<Vec<u8>> = parts
        .iter()
        .map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2 && !part.starts_with('+')))
        .collect();
    bytes?.try_into().ok()
}
