//! Network interfaces and what they are attached to.

use api::networks::{Interface, InterfaceState};
use api::vmi::VirtualMachineInstance;
use serde_json::json;

use super::line::Line;
use crate::keyval::Keyval;
use crate::resources::{Attachment, Forward, Resources};

/// The first byte of an address nobody has bought: locally administered, unicast.
const LOCAL: u8 = 0x02;

pub(super) fn add(line: &mut Line, vmi: &VirtualMachineInstance, resources: &Resources) {
    for (index, interface) in vmi.spec.domain.devices.interfaces.iter().flatten().enumerate() {
        let path = format!("spec.domain.devices.interfaces[{index}]");
        refuse_unsupported(line, &path, interface);
        let Some(attachment) = resources.interfaces.get(&interface.name) else {
            line.refuse(&path, format!("there is no network {:?} to attach it to", interface.name));
            continue;
        };
        let Some(mac) = address(line, &path, vmi, interface) else { continue };
        let driver = match interface.model.as_deref() {
            None | Some("virtio") => "virtio-net-pci",
            Some("e1000") => "e1000",
            Some(other) => {
                line.refuse(format!("{path}.model"), format!("{other:?} is not supported; use virtio or e1000"));
                continue;
            }
        };
        backend(line, &path, index, driver == "virtio-net-pci", attachment);
        let mut device = json!({
            "driver": driver,
            "id": format!("interface{index}"),
            "netdev": format!("net{index}"),
            "mac": mac,
        });
        match interface.boot_order {
            // Without a boot order no ROM is loaded: it would cost a second of every boot.
            None => device["romfile"] = "".into(),
            Some(0) => line.refuse(format!("{path}.bootOrder"), "counts from 1"),
            Some(order) => device["bootindex"] = order.into(),
        }
        line.json("-device", &device);
    }
}

fn refuse_unsupported(line: &mut Line, path: &str, interface: &Interface) {
    let Interface {
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
        line.unsupported(&format!("{path}.{name}"), set);
    }
}

fn backend(line: &mut Line, path: &str, index: usize, is_virtio: bool, attachment: &Attachment) {
    let id = format!("net{index}");
    match attachment {
        Attachment::Tap { device, vhost } => {
            let Some(device) = line.text(path, device) else { return };
            let mut tap =
                Keyval::of("tap").set("id", id).set("ifname", device).set("script", "no").set("downscript", "no");
            // A kernel that turns out not to carry them is no reason not to start: QEMU does so itself then.
            if *vhost && is_virtio {
                tap = tap.set("vhost", "on");
            }
            line.keyval("-netdev", tap);
        }
        Attachment::User { forwards } => {
            let mut user = Keyval::of("user").set("id", id);
            for Forward { address, host, guest } in forwards {
                user = user.set("hostfwd", format!("tcp:{address}:{host}-:{guest}"));
            }
            line.keyval("-netdev", user);
        }
    }
}

/// The address that was asked for, or one that stays the same for this instance and interface.
fn address(line: &mut Line, path: &str, vmi: &VirtualMachineInstance, interface: &Interface) -> Option<String> {
    if let Some(mac) = &interface.mac_address {
        let groups: Vec<&str> = mac.split([':', '-']).collect();
        let valid = groups.len() == 6
            && groups.iter().all(|group| group.len() == 2 && group.chars().all(|digit| digit.is_ascii_hexdigit()));
        let unicast = u8::from_str_radix(groups.first().unwrap_or(&""), 16).is_ok_and(|byte| byte & 1 == 0);
        if !valid || !unicast {
            line.refuse(format!("{path}.macAddress"), format!("{mac:?} is no address such as 02:00:00:00:00:01"));
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
