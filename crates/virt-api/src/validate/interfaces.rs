//! Interfaces: one binding each, on a network that it can be bound to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use api::networks::{DHCPOptions, Interface, InterfaceState, Network, PortRange};
use api::vmi::VirtualMachineInstanceSpec;
use virt_rules::config::{ClusterConfig, Gate};
use virt_rules::names::is_port_name;

use super::{is_pci_address, word};
use crate::denial::Problems;

const MODELS: [&str; 7] = ["virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139"];
/// The bridge in the pod has it, and every guest behind a masquerade would.
const BRIDGE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
const MOST_RANGES: usize = 10;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, config: &ClusterConfig, problems: &mut Problems) {
    let networks = spec.networks.iter().flatten().map(|network| (network.name.as_str(), network));
    let networks: BTreeMap<&str, &Network> = networks.collect();
    let mut seen = BTreeSet::new();
    for (index, interface) in spec.domain.devices.interfaces.iter().flatten().enumerate() {
        let field = format!("spec.domain.devices.interfaces[{index}]");
        let name = interface.name.as_str();
        if !seen.insert(name) {
            problems.duplicate(format!("{field}.name"), "another interface is on this network; use another network");
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if name.is_empty() || !name.bytes().all(plain) {
            problems.invalid(format!("{field}.name"), format!("{name:?} must be letters, digits, - and _"));
        }
        let network = networks.get(name).copied();
        if network.is_none() {
            let message = format!("there is no network {name:?}; add it to spec.networks");
            problems.not_found(format!("{field}.name"), message);
        }
        check_binding(interface, network, config, &field, problems);
        check_hardware(interface, &field, problems);
        check_state(interface, network, &field, problems);
        check_ports(interface, &field, problems);
        check_ranges(interface, config, &field, problems);
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
            problems.invalid(format!("{field}.{name}"), "is for the pod's network only; use bridge");
        }
    }
    if bridge.is_some() && pod && !config.permit_bridge_on_pod_network() {
        let message = "the KubeVirt CR does not permit a bridge on the pod's network; use masquerade";
        problems.invalid(format!("{field}.bridge"), message);
    }
    let plugin = binding.as_ref().filter(|binding| config.binding_plugin(&binding.name).is_none());
    if let Some(plugin) = plugin {
        let message = format!("{:?} is not registered in the KubeVirt CR; register it or use masquerade", plugin.name);
        problems.not_found(format!("{field}.binding.name"), message);
    }
}

fn check_hardware(interface: &Interface, field: &str, problems: &mut Problems) {
    word(interface.model.as_deref(), &MODELS, format!("{field}.model"), problems);
    let text = interface.mac_address.as_deref().unwrap_or_default();
    if !text.is_empty() {
        let field = format!("{field}.macAddress");
        match mac(text) {
            None => problems.invalid(field, format!("{text:?} is no MAC address; use one such as 02:00:00:12:34:56")),
            Some(BRIDGE_MAC) if interface.masquerade.is_some() => {
                problems.invalid(field, "is the address of the bridge in the pod; use another");
            }
            Some(_) => {}
        }
    }
    let address = interface.pci_address.as_deref().unwrap_or_default();
    if !address.is_empty() && !is_pci_address(address) {
        let message = format!("{address:?} is no PCI address; use one such as 0000:81:01.1");
        problems.invalid(format!("{field}.pciAddress"), message);
    }
}

fn check_state(interface: &Interface, network: Option<&Network>, field: &str, problems: &mut Problems) {
    let Some(state) = &interface.state else { return };
    let field = format!("{field}.state");
    word(Some(state.as_str()), InterfaceState::KNOWN, field.clone(), problems);
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
        if !(1..=65535).contains(&port.port) {
            problems.invalid(format!("{field}.port"), format!("{} is no port; use one from 1 to 65535", port.port));
        }
        word(port.protocol.as_deref(), &["TCP", "UDP"], format!("{field}.protocol"), problems);
        let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) else { continue };
        if !is_port_name(name) {
            let message = "must be at most 15 letters, digits and - in lower case, with a letter";
            problems.invalid(format!("{field}.name"), format!("{name:?} {message}"));
        }
        if !names.insert(name) {
            problems.duplicate(format!("{field}.name"), format!("{name:?} is taken by another port; rename it"));
        }
    }
}

fn check_ranges(interface: &Interface, config: &ClusterConfig, field: &str, problems: &mut Problems) {
    let Some(ranges) = interface.port_ranges.as_deref().filter(|ranges| !ranges.is_empty()) else { return };
    let field = format!("{field}.portRanges");
    if !config.enabled(Gate::PortRangesSpec) {
        let gate = Gate::PortRangesSpec.name();
        problems.invalid(field, format!("needs the feature gate {gate}; add it to the KubeVirt CR or use ports"));
        return;
    }
    if interface.ports.as_ref().is_some_and(|ports| !ports.is_empty()) {
        problems.invalid(field.clone(), "excludes ports; keep one of both");
    }
    if interface.masquerade.is_none() {
        problems.invalid(field.clone(), "is for masquerade only; remove it");
    }
    if ranges.len() > MOST_RANGES {
        problems.invalid(field.clone(), format!("has more than {MOST_RANGES} entries; join some"));
    }
    let overlaps = |left: &PortRange, right: &PortRange| {
        left.protocol == right.protocol && left.start <= right.end && right.start <= left.end
    };
    for (index, range) in ranges.iter().enumerate() {
        let field = format!("{field}[{index}]");
        word(Some(&range.protocol), &["TCP", "UDP"], format!("{field}.protocol"), problems);
        let valid = 1..=65535;
        if !valid.contains(&range.start) || !valid.contains(&range.end) || range.start > range.end {
            problems.invalid(field.clone(), "must go from a port to the same or a later one, from 1 to 65535");
        }
        if ranges.iter().take(index).any(|other| overlaps(other, range)) {
            problems.invalid(field, "overlaps with another range; join them");
        }
    }
}

fn check_dhcp(options: &DHCPOptions, field: &str, problems: &mut Problems) {
    for (index, server) in options.ntp_servers.iter().flatten().enumerate() {
        if server.parse::<Ipv4Addr>().is_err() {
            let message = format!("{server:?} is no IPv4 address; DHCP carries nothing else");
            problems.invalid(format!("{field}.ntpServers[{index}]"), message);
        }
    }
    let mut codes = BTreeSet::new();
    for (index, option) in options.private_options.iter().flatten().enumerate() {
        let field = format!("{field}.privateOptions[{index}].option");
        if !(224..=254).contains(&option.option) {
            problems.invalid(field, format!("{} is no private code; use one from 224 to 254", option.option));
        } else if !codes.insert(option.option) {
            problems.duplicate(field, format!("{} is there already; use another", option.option));
        }
    }
}

/// Six bytes in hexadecimal, with `:` or `-` between them.
fn mac(text: &str) -> Option<[u8; 6]> {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    let bytes: Option<Vec<u8>> = parts
        .iter()
        .map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2 && !part.starts_with('+')))
        .collect();
    bytes?.try_into().ok()
}
