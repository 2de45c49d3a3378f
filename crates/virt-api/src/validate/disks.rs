//! Disks: each with a volume behind it, on a bus that can carry it.

use std::collections::BTreeMap;

use api::devices::{Disk, DiskBus};
use api::vmi::VirtualMachineInstanceSpec;
use api::volumes::Volume;
use virt_rules::names::is_dns_label;

use super::architecture::bus;
use super::is_on;
use crate::denial::Problems;

const DISKS: &str = "spec.domain.devices.disks";
/// Sata knows no other.
const SATA_BLOCK: u32 = 512;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let volumes = spec.volumes.iter().flatten().map(|volume| (volume.name.as_str(), volume));
    let volumes: BTreeMap<&str, &Volume> = volumes.collect();
    for (index, disk) in spec.domain.devices.disks.iter().flatten().enumerate() {
        let field = format!("{DISKS}[{index}]");
        if !is_dns_label(&disk.name) {
            let message =
                "must have at most 63 lower-case letters, digits and -, because containers are named after it";
            problems.invalid(format!("{field}.name"), format!("{:?} {message}", disk.name));
        }
        check_volume(disk, volumes.get(disk.name.as_str()).copied(), &field, problems);
        check_target(disk, &field, problems);
        check_serial(disk, &field, problems);
        check_block_size(disk, &field, problems);
    }
}

fn check_volume(disk: &Disk, volume: Option<&Volume>, field: &str, problems: &mut Problems) {
    let Some(volume) = volume else {
        let message = if disk.cdrom.is_some() {
            "empty drives are not supported yet; add the volume to spec.volumes".to_owned()
        } else {
            format!("volume {:?} does not exist; add it to spec.volumes or remove the disk", disk.name)
        };
        problems.not_found(format!("{field}.name"), message);
        return;
    };
    if disk.lun.is_some() && volume.persistent_volume_claim.is_none() && volume.data_volume.is_none() {
        problems
            .invalid(format!("{field}.lun"), "only works with persistentVolumeClaim and dataVolume volumes; use disk");
    }
    if volume.downward_metrics.is_some() {
        match bus(disk) {
            Some(("disk", DiskBus::Virtio)) => {}
            Some(_) | None => problems.invalid(field, "a downwardMetrics volume must be a disk on virtio"),
        }
    }
}

fn check_target(disk: &Disk, field: &str, problems: &mut Problems) {
    let targets = [disk.disk.is_some(), disk.cdrom.is_some(), disk.lun.is_some()];
    if targets.iter().filter(|set| **set).count() > 1 {
        problems.invalid(field, "disk, cdrom and lun are mutually exclusive; keep one");
    }
}

fn check_serial(disk: &Disk, field: &str, problems: &mut Problems) {
    let serial = disk.serial.as_deref().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'+' | b'-');
    if serial.len() > 256 || !serial.bytes().all(plain) {
        let message = "must have at most 256 letters, digits and _ . + -";
        problems.invalid(format!("{field}.serial"), message);
    }
}

fn check_block_size(disk: &Disk, field: &str, problems: &mut Problems) {
    let Some(size) = &disk.block_size else { return };
    let Some(custom) = &size.custom else { return };
    let field = format!("{field}.blockSize");
    if is_on(size.match_volume.as_ref()) {
        problems.invalid(field, "custom and matchVolume are mutually exclusive; keep one");
        return;
    }
    let logical = custom.logical.unwrap_or_default();
    for (name, size) in [("logical", custom.logical), ("physical", custom.physical)] {
        if size.is_none() {
            problems.required(format!("{field}.custom.{name}"), "is required for a custom block size");
        }
    }
    let is_on_sata = bus(disk).is_some_and(|(_, bus)| *bus == DiskBus::Sata);
    if is_on_sata && logical != SATA_BLOCK {
        problems.invalid(format!("{field}.custom.logical"), "must be 512 on sata; use that, or another bus");
    }
    // QEMU takes 0 as "cannot be given back".
    if is_on_sata && custom.discard_granularity.is_some_and(|step| ![0, SATA_BLOCK].contains(&step)) {
        problems.invalid(format!("{field}.custom.discardGranularity"), "must be 512 on sata; use that, or another bus");
    } else if custom.discard_granularity.is_some_and(|step| logical == 0 || step % logical != 0) {
        problems.invalid(format!("{field}.custom.discardGranularity"), format!("must be a multiple of {logical}"));
    }
}
