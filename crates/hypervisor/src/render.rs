//! A guest and its wiring as QEMU is told of them: by arguments at its start, by commands while it runs.
//!
//! Both come from the same [`Part`]s, so that a device which was plugged in later is the one that the next start has.

mod console;
mod disk;
mod line;
mod network;
mod part;
mod place;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub use console::{AGENT_PORT, AGENT_SOCKET, MONITOR_SOCKET, SERIAL_LOG, SERIAL_SOCKET, VNC_SOCKET};
pub use disk::{name_of_node, node_of};
pub use line::CommandLine;
pub use part::{Call, Part};

use crate::Refusal;
use crate::guest::{Device, DeviceId, Guest, Input, Kind, Panic, Video};
use crate::refusal::Refusals;
use crate::wiring::Wiring;

/// How to run QEMU for this guest.
///
/// # Errors
/// What the guest needs and this node does not have.
pub fn command_line(guest: &Guest, wiring: &Wiring) -> Result<CommandLine, Vec<Refusal>> {
    let mut refusals = Refusals::default();
    let line = line::line(&mut refusals, guest, wiring);
    refusals.or(Some(line))
}

/// What a device consists of, in the order in which it is put together.
///
/// # Errors
/// What it needs and this node does not have.
pub fn parts(guest: &Guest, wiring: &Wiring, id: &DeviceId) -> Result<Vec<Part>, Vec<Refusal>> {
    let mut refusals = Refusals::default();
    let parts = guest.devices.get(id).and_then(|device| device_parts(&mut refusals, guest, wiring, id, device));
    refusals.or(parts)
}

/// All devices, each after what it is plugged into.
fn in_order(devices: &BTreeMap<DeviceId, Device>) -> impl Iterator<Item = (&DeviceId, &Device)> {
    let buses = devices.iter().filter(|(_, device)| device.kind.is_bus());
    buses.chain(devices.iter().filter(|(_, device)| !device.kind.is_bus()))
}

fn device_parts(
    refusals: &mut Refusals,
    guest: &Guest,
    wiring: &Wiring,
    id: &DeviceId,
    device: &Device,
) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let name = device.of.as_deref().unwrap_or_default();
    let mut properties = Map::new();
    match &device.kind {
        Kind::RootPort => {
            set(&mut properties, [("driver", "pcie-root-port".into()), ("chassis", chassis(device).into())]);
        }
        Kind::Channels => set(&mut properties, [("driver", "virtio-serial-pci".into())]),
        Kind::Sata => set(&mut properties, [("driver", "ich9-ahci".into())]),
        Kind::Scsi => set(&mut properties, [("driver", "virtio-scsi-pci".into())]),
        Kind::Usb => set(&mut properties, [("driver", "qemu-xhci".into())]),
        Kind::Agent => console::agent(&mut parts, &mut properties, wiring),
        Kind::Serial { logged } => console::serial(&mut parts, &mut properties, wiring, id, *logged),
        Kind::Video(video) => set(&mut properties, [("driver", screen(*video).into())]),
        Kind::Disk(disk) => {
            let source = wiring.volumes.get(name);
            disk::disk(refusals, &mut parts, &mut properties, (id, device), disk, source)?;
        }
        Kind::Interface(interface) => {
            let attachment = wiring.interfaces.get(name);
            network::interface(refusals, &mut parts, &mut properties, (id, name), interface, attachment)?;
        }
        Kind::Entropy => {
            let source = serde_json::json!({ "qom-type": "rng-random", "id": id, "filename": "/dev/urandom" });
            parts.push(Part::Object(source));
            set(&mut properties, [("driver", "virtio-rng-pci".into()), ("rng", id.as_str().into())]);
        }
        Kind::Balloon => {
            set(&mut properties, [("driver", "virtio-balloon-pci".into()), ("free-page-reporting", true.into())]);
        }
        Kind::Input(input) => set(&mut properties, [("driver", input_driver(*input, device).into())]),
        Kind::Watchdog(_) => set(&mut properties, [("driver", "i6300esb".into())]),
        Kind::Panic(panic) => set(&mut properties, [("driver", panic_driver(*panic).into())]),
    }
    properties.insert("id".to_owned(), id.as_str().into());
    // A smaller ROM than that is padded, and a larger one refused by QEMU.
    properties.extend(device.rom_bytes.map(|bytes| ("romsize".to_owned(), bytes.into())));
    place::set(&mut properties, &guest.board, &device.place);
    parts.push(Part::Device(properties.into()));
    Some(parts)
}

fn set<const N: usize>(properties: &mut Map<String, Value>, pairs: [(&str, Value); N]) {
    properties.extend(pairs.map(|(key, value)| (key.to_owned(), value)));
}

/// Ports are told apart by a number that no two share.
fn chassis(device: &Device) -> u8 {
    crate::guest::function_of(&device.place).unwrap_or_default() + 1
}

fn screen(video: Video) -> &'static str {
    match video {
        Video::Vga => "VGA",
        Video::Bochs => "bochs-display",
        Video::Virtio => "virtio-vga",
        Video::Cirrus => "cirrus-vga",
    }
}

fn input_driver(input: Input, device: &Device) -> &'static str {
    let is_usb = matches!(device.place, crate::guest::Place::Usb { .. });
    match (input, is_usb) {
        (Input::Tablet, true) => "usb-tablet",
        (Input::Tablet, false) => "virtio-tablet-pci",
        (Input::Keyboard, true) => "usb-kbd",
        (Input::Keyboard, false) => "virtio-keyboard-pci",
    }
}

fn panic_driver(panic: Panic) -> &'static str {
    match panic {
        Panic::Isa => "pvpanic",
        Panic::Pci => "pvpanic-pci",
    }
}
