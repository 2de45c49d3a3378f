//! Interfaces, and the networks that they connect a guest to.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use api::networks::{Interface, InterfaceState, Network, PodNetwork, Port};

use super::instance::filled;
use super::sheet::Sheet;

/// Instead of labels in cloud-init's metadata of devices.
pub(super) const NO_TAGS: &str = "remove it; device tags are not passed to cloud-init";
/// Instead of an address on the guest's PCI bus.
pub(super) const NO_ADDRESS: &str = "remove it; the address of a device is chosen automatically";
const USE_MASQUERADE: &str = "use masquerade";
const USE_POD: &str = "use pod; a guest can only have one network";

pub(super) fn place(sheet: &mut Sheet<'_>, interface: &Interface) {
    let Interface {
        name,
        acpi_index,
        binding,
        boot_order,
        bridge,
        dhcp_options,
        mac_address,
        macvtap,
        masquerade,
        model,
        passt,
        passt_binding,
        pci_address,
        port_ranges,
        ports,
        slirp,
        sriov,
        state,
        tag,
    } = interface;
    sheet.works("name", name);
    sheet.unsupported("acpiIndex", "remove it; set macAddress to identify interfaces", acpi_index.is_some());
    sheet.unsupported("binding", USE_MASQUERADE, binding.is_some());
    sheet.works("bootOrder", boot_order);
    sheet.in_run_only("bridge", USE_MASQUERADE, bridge.is_some());
    sheet.unsupported("dhcpOptions", "remove it; use cloud-init", dhcp_options.is_some());
    let wrong = mac_address.as_deref().filter(|mac| !mac.is_empty() && !is_unicast(mac));
    let problem =
        wrong.map(|mac| format!("{mac:?} is not a valid unicast MAC address; use one such as 02:00:00:00:00:01"));
    sheet.within("macAddress", "a unicast address", problem);
    sheet.unsupported("macvtap", USE_MASQUERADE, macvtap.is_some());
    sheet.works("masquerade", masquerade);
    sheet.words("model", model.as_deref(), &["virtio", "e1000"]);
    sheet.unsupported("passt", USE_MASQUERADE, passt.is_some());
    sheet.unsupported("passtBinding", USE_MASQUERADE, passt_binding.is_some());
    sheet.unsupported("pciAddress", NO_ADDRESS, pci_address.as_ref().is_some_and(|address| !address.is_empty()));
    sheet.unsupported(
        "portRanges",
        "list the ports one by one, or leave the list out for all ports",
        filled(port_ranges.as_ref()),
    );
    sheet.each("ports", ports.as_ref(), port);
    sheet.unsupported("slirp", USE_MASQUERADE, slirp.is_some());
    sheet.unsupported("sriov", USE_MASQUERADE, sriov.is_some());
    sheet.words("state", state.as_ref().map(InterfaceState::as_str), &["up"]);
    sheet.unsupported("tag", NO_TAGS, tag.is_some());
}

fn port(sheet: &mut Sheet<'_>, port: &Port) {
    let Port { port, name, protocol } = port;
    let wrong = !(1..=65535).contains(port);
    sheet.within("port", "from 1 to 65535", wrong.then(|| format!("{port} is not a valid port; use 1 to 65535")));
    sheet.works("name", name);
    sheet.words("protocol", protocol.as_deref(), &["TCP", "UDP"]);
}

/// Whether this is an address that an interface can have: six bytes in hexadecimal, with `:` or with `-` between them; the lowest bit of the first is for groups.
#[must_use]
pub fn is_unicast(text: &str) -> bool {
    let separator = if text.contains('-') { '-' } else { ':' };
    let is_byte = |part: &&str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
    let bytes: Vec<&str> = text.split(separator).collect();
    let first = bytes.first().and_then(|first| u8::from_str_radix(first, 16).ok());
    bytes.len() == 6 && bytes.iter().all(is_byte) && first.is_some_and(|byte| byte & 1 == 0)
}

pub(super) fn network(sheet: &mut Sheet<'_>, network: &Network) {
    let Network { name, multus, pod: pod_of_it, resource_claim } = network;
    sheet.works("name", name);
    sheet.in_run_only("multus", USE_POD, multus.is_some());
    sheet.part("pod", pod_of_it.as_ref(), pod);
    sheet.unsupported("resourceClaim", USE_POD, resource_claim.is_some());
}

fn pod(sheet: &mut Sheet<'_>, pod: &PodNetwork) {
    let PodNetwork { vm_i_pv6_network_cidr: v6, vm_network_cidr: v4 } = pod;
    let problem = outside::<Ipv6Addr>(v6.as_deref(), 126, "fd10:0:2::/120");
    sheet.within("vmIPv6NetworkCIDR", "a network of at most 126 bits", problem);
    let problem = outside::<Ipv4Addr>(v4.as_deref(), 30, "10.0.2.0/24");
    sheet.within("vmNetworkCIDR", "a network of at most 30 bits", problem);
}

/// What is wrong with a network that must hold the guest and its gateway.
fn outside<A: FromStr>(text: Option<&str>, most: u8, example: &str) -> Option<String> {
    let text = text?;
    let parts = text.split_once('/');
    let is_right = |(address, length): (&str, &str)| {
        address.parse::<A>().is_ok() && length.parse::<u8>().is_ok_and(|length| (1..=most).contains(&length))
    };
    let wrong = !parts.is_some_and(is_right);
    wrong.then(|| format!("{text:?} is not a valid network, or is too small for a guest; use one such as {example}"))
}
