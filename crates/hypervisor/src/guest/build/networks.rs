//! Network interfaces, as the guest sees them.

use api::networks::{self, InterfaceState};
use api::vmi::VirtualMachineInstance;

use super::plugging::Plugging;
use crate::guest::place::Bus;
use crate::guest::{Interface, Kind};
use crate::refusal::Refusals;

/// The first byte of an address nobody has bought: locally administered, unicast.
const LOCAL: u8 = 0x02;

pub(super) fn plug(refusals: &mut Refusals, plugging: &mut Plugging<'_>, vmi: &VirtualMachineInstance) {
    for (index, interface) in vmi.spec.domain.devices.interfaces.iter().flatten().enumerate() {
        let path = format!("spec.domain.devices.interfaces[{index}]");
        refuse_unsupported(refusals, &path, interface);
        let Some(mac) = address(refusals, &path, vmi, interface) else { continue };
        let is_virtio = match interface.model.as_deref() {
            None | Some("virtio") => true,
            Some("e1000") => false,
            Some(other) => {
                let problem = format!("{other:?} is not supported; use virtio or e1000");
                refusals.refuse(format!("{path}.model"), problem);
                continue;
            }
        };
        if interface.boot_order == Some(0) {
            refusals.refuse(format!("{path}.bootOrder"), "counts from 1");
        }
        let seen = Interface { is_virtio, mac, boot_order: interface.boot_order };
        plugging.plug(refusals, &path, Bus::Pci, Some(&interface.name), Kind::Interface(seen));
    }
}

fn refuse_unsupported(refusals: &mut Refusals, path: &str, interface: &networks::Interface) {
    let networks::Interface {
        name: _,
        acpi_index,
        binding,
        boot_order: _,
        bridge: _,
        dhcp_options,
        mac_address: _,
        macvtap,
        masquerade: _,
        model: _,
        passt,
        passt_binding,
        pci_address,
        port_ranges,
        ports: _,
        slirp,
        sriov,
        state,
        tag,
    } = interface;
    for (name, set) in [
        ("acpiIndex", acpi_index.is_some()),
        ("binding", binding.is_some()),
        ("dhcpOptions", dhcp_options.is_some()),
        ("macvtap", macvtap.is_some()),
        ("passt", passt.is_some()),
        ("passtBinding", passt_binding.is_some()),
        ("pciAddress", pci_address.is_some()),
        ("portRanges", port_ranges.is_some()),
        ("slirp", slirp.is_some()),
        ("sriov", sriov.is_some()),
        ("state", !matches!(state, None | Some(InterfaceState::Up))),
        ("tag", tag.is_some()),
    ] {
        refusals.unsupported(&format!("{path}.{name}"), set);
    }
}

/// The address that was asked for, or one that stays the same for this instance and interface.
fn address(
    refusals: &mut Refusals,
    path: &str,
    vmi: &VirtualMachineInstance,
    interface: &networks::Interface,
) -> Option<String> {
    if let Some(mac) = &interface.mac_address {
        let groups: Vec<&str> = mac.split([':', '-']).collect();
        let valid = groups.len() == 6
            && groups.iter().all(|group| group.len() == 2 && group.chars().all(|digit| digit.is_ascii_hexdigit()));
        let unicast = u8::from_str_radix(groups.first().unwrap_or(&""), 16).is_ok_and(|byte| byte & 1 == 0);
        if !valid || !unicast {
            let problem = format!("{mac:?} is not a unicast address such as 02:00:00:00:00:01");
            refusals.refuse(format!("{path}.macAddress"), problem);
            return None;
        }
        return Some(groups.join(":").to_ascii_lowercase());
    }
    let metadata = &vmi.metadata;
    let seed = [metadata.namespace.as_deref(), metadata.name.as_deref(), Some(&interface.name)];
    let hash = seed.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325_u64, fnv1a).to_be_bytes();
    Some(format!("{LOCAL:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", hash[0], hash[1], hash[2], hash[3], hash[4]))
}

/// FNV-1a: short, stable for ever, and good enough to spread addresses.
fn fnv1a(hash: u64, text: &str) -> u64 {
    text.bytes().chain([0]).fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
