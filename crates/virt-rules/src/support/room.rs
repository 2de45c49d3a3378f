//! Whether a board has places for all devices: what one needs depends on the others.

use api::devices::{Devices, Disk, DiskBus, InputBus, PanicDeviceModel};
use api::domain::Machine;
use api::vmi::VirtualMachineInstanceSpec;

use super::sheet::Sheet;

/// Slots of the root bus that a board of either sort leaves free.
const SLOTS: usize = 29;
const OLD_SLOTS: usize = 30;
const SATA_PORTS: usize = 6;
const USB_PORTS: usize = 4;

pub(super) fn check(sheet: &mut Sheet<'_>, spec: &VirtualMachineInstanceSpec) {
    let devices = &spec.domain.devices;
    let board = spec.domain.machine.as_ref().and_then(|Machine { type_ }| type_.as_deref()).unwrap_or_default();
    let most = if board == "pc" || board.starts_with("pc-i440fx-") { OLD_SLOTS } else { SLOTS };
    let needed = slots(devices);
    if needed > most {
        let problem = format!("needs {needed} PCI slots, but the bus has {most}; use scsi for disks, or remove some");
        sheet.refuse("domain.devices", problem);
    }
    if usb(devices) > USB_PORTS {
        sheet.refuse(
            "domain.devices.inputs",
            format!("the guest has {USB_PORTS} USB ports; use virtio for other disks"),
        );
    }
}

fn slots(devices: &Devices) -> usize {
    let disks = || devices.disks.iter().flatten().map(bus);
    let virtio = disks().filter(|bus| *bus == DiskBus::Virtio).count();
    let sata = disks().filter(|bus| *bus == DiskBus::Sata).count().div_ceil(SATA_PORTS);
    let scsi = usize::from(disks().any(|bus| bus == DiskBus::Scsi));
    let inputs = devices.inputs.iter().flatten();
    let inputs = inputs.filter(|input| input.bus == Some(InputBus::Virtio)).count();
    let panics = devices.panic_devices.iter().flatten();
    let panics = panics.filter(|device| device.model != Some(PanicDeviceModel::Isa)).count();
    let single = [
        // The agent's channel.
        true,
        devices.autoattach_graphics_device != Some(false),
        devices.autoattach_mem_balloon != Some(false),
        devices.rng.is_some(),
        devices.watchdog.is_some(),
        usb(devices) > 0,
    ];
    let single = single.iter().filter(|there| **there).count();
    virtio + sata + scsi + devices.interfaces.as_ref().map_or(0, Vec::len) + inputs + panics + single
}

/// Inputs on USB; the one that comes by itself is there if none is listed.
fn usb(devices: &Devices) -> usize {
    let listed = devices.inputs.as_deref().unwrap_or_default();
    if listed.is_empty() {
        return usize::from(devices.autoattach_input_device == Some(true));
    }
    listed.iter().filter(|input| input.bus != Some(InputBus::Virtio)).count()
}

/// The bus of a disk; one that says nothing is on SATA.
fn bus(disk: &Disk) -> DiskBus {
    let of_disk = disk.disk.as_ref().and_then(|target| target.bus.clone());
    let bus = of_disk.or_else(|| disk.cdrom.as_ref().and_then(|target| target.bus.clone()));
    bus.filter(|bus| !bus.as_str().is_empty()).unwrap_or(DiskBus::Sata)
}
