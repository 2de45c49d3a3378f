//! Network interfaces, as the guest sees them.

use api::networks;
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
        let mac = address(vmi, interface);
        let is_virtio = match interface.model.as_deref() {
            None | Some("" | "virtio") => true,
            Some("e1000") => false,
            Some(other) => {
                refusals.meaningless(format!("{path}.model"), other);
                continue;
            }
        };
        let seen = Interface { is_virtio, mac, boot_order: interface.boot_order };
        plugging.plug(refusals, &path, Bus::Pci, Some(&interface.name), Kind::Interface(seen));
    }
}

/// The address that was asked for, or one that stays the same for this instance and interface.
fn address(vmi: &VirtualMachineInstance, interface: &networks::Interface) -> String {
    if let Some(mac) = interface.mac_address.as_deref().filter(|mac| !mac.is_empty()) {
        return mac.replace('-', ":").to_ascii_lowercase();
    }
    let metadata = &vmi.metadata;
    let seed = [metadata.namespace.as_deref(), metadata.name.as_deref(), Some(&interface.name)];
    let hash = seed.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325_u64, fnv1a).to_be_bytes();
    format!("{LOCAL:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", hash[0], hash[1], hash[2], hash[3], hash[4])
}

/// FNV-1a: short, stable for ever, and good enough to spread addresses.
fn fnv1a(hash: u64, text: &str) -> u64 {
    text.bytes().chain([0]).fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
