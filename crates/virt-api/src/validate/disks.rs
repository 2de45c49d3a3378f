//! Disks: each with a volume behind it, on a bus that can carry it.

use std::collections::{BTreeMap, BTreeSet};

use api::devices::{Disk, DiskBus, DiskErrorPolicy, DriverCache, DriverIO, TrayState};
use api::vmi::VirtualMachineInstanceSpec;
use api::volumes::Volume;
use virt_rules::names::is_dns_label;

use super::architecture::bus;
use super::{is_on, is_pci_address, word};
use crate::denial::Problems;

const DISKS: &str = "spec.domain.devices.disks";
const BLOCK_SIZES: std::ops::RangeInclusive<u32> = 512..=2 * 1024 * 1024;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let volumes = spec.volumes.iter().flatten().map(|volume| (volume.name.as_str(), volume));
    let volumes: BTreeMap<&str, &Volume> = volumes.collect();
    let mut seen = BTreeSet::new();
    for (index, disk) in spec.domain.devices.disks.iter().flatten().enumerate() {
        let field = format!("{DISKS}[{index}]");
        if !seen.insert(disk.name.as_str()) {
            problems.duplicate(format!("{field}.name"), format!("{:?} is taken by another disk; rename it", disk.name));
        }
        if !is_dns_label(&disk.name) {
            let message = "must be letters, digits and - in lower case, at most 63, as containers are named after it";
            problems.invalid(format!("{field}.name"), format!("{:?} {message}", disk.name));
        }
        check_volume(disk, volumes.get(disk.name.as_str()).copied(), &field, problems);
        check_target(disk, &field, problems);
        check_words(disk, &field, problems);
        check_block_size(disk, &field, problems);
    }
}

fn check_volume(disk: &Disk, volume: Option<&Volume>, field: &str, problems: &mut Problems) {
    let Some(volume) = volume else {
        let message = if disk.cdrom.is_some() {
            "an empty drive is not supported yet; add the volume to spec.volumes".to_owned()
        } else {
            format!("there is no volume {:?}; add it to spec.volumes or remove the disk", disk.name)
        };
        problems.not_found(format!("{field}.name"), message);
        return;
    };
    if disk.lun.is_some() && volume.persistent_volume_claim.is_none() && volume.data_volume.is_none() {
        problems.invalid(format!("{field}.lun"), "is for persistentVolumeClaim and dataVolume volumes only; use disk");
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
        problems.invalid(field, "disk, cdrom and lun exclude each other; keep one");
    }
    let Some((target, bus)) = bus(disk) else { return };
    let bus_field = format!("{field}.{target}.bus");
    match (bus, target) {
        (DiskBus::Virtio, "cdrom") => problems.invalid(bus_field, "a CD-ROM cannot be on virtio; use sata or scsi"),
        (DiskBus::Other(other), _) if other == "ide" => {
            problems.unsupported(bus_field, "machines have no IDE; use sata");
        }
        (DiskBus::Sata, "disk") if disk.disk.as_ref().is_some_and(|target| target.readonly == Some(true)) => {
            problems.invalid(format!("{field}.disk.readonly"), "sata disks cannot be read-only; use another bus");
        }
        (bus, _) => word(Some(bus.as_str()), DiskBus::KNOWN, bus_field, problems),
    }
    if disk.dedicated_io_thread == Some(true) && *bus != DiskBus::Virtio {
        let message = format!("is for virtio only, and the disk is on {bus}; remove one");
        problems.unsupported(format!("{field}.dedicatedIOThread"), message);
    }
    let address = disk.disk.as_ref().and_then(|target| target.pci_address.as_deref()).unwrap_or_default();
    if !address.is_empty() {
        let field = format!("{field}.disk.pciAddress");
        if *bus != DiskBus::Virtio {
            problems.invalid(field.clone(), format!("is for virtio only, and the disk is on {bus}; remove one"));
        }
        if !is_pci_address(address) {
            problems.invalid(field, format!("{address:?} is no PCI address; use one such as 0000:81:01.1"));
        }
    }
}

fn check_words(disk: &Disk, field: &str, problems: &mut Problems) {
    word(disk.cache.as_ref().map(DriverCache::as_str), DriverCache::KNOWN, format!("{field}.cache"), problems);
    word(disk.io.as_ref().map(DriverIO::as_str), DriverIO::KNOWN, format!("{field}.io"), problems);
    let policy = disk.error_policy.as_ref().map(DiskErrorPolicy::as_str);
    word(policy, DiskErrorPolicy::KNOWN, format!("{field}.errorPolicy"), problems);
    let tray = disk.cdrom.as_ref().and_then(|cdrom| cdrom.tray.as_ref()).map(TrayState::as_str);
    word(tray, TrayState::KNOWN, format!("{field}.cdrom.tray"), problems);
    let serial = disk.serial.as_deref().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'+' | b'-');
    if serial.len() > 256 || !serial.bytes().all(plain) {
        let message = "must be at most 256 letters, digits and _ . + -";
        problems.invalid(format!("{field}.serial"), message);
    }
}

fn check_block_size(disk: &Disk, field: &str, problems: &mut Problems) {
    let Some(size) = &disk.block_size else { return };
    let Some(custom) = &size.custom else { return };
    let field = format!("{field}.blockSize");
    if is_on(size.match_volume.as_ref()) {
        problems.invalid(field, "custom and matchVolume exclude each other; keep one");
        return;
    }
    let (logical, physical) = (custom.logical.unwrap_or_default(), custom.physical.unwrap_or_default());
    for (name, size) in [("logical", logical), ("physical", physical)] {
        if !size.is_power_of_two() || !BLOCK_SIZES.contains(&size) {
            let message = format!("{size} is no power of 2 from {} to {}", BLOCK_SIZES.start(), BLOCK_SIZES.end());
            problems.invalid(format!("{field}.custom.{name}"), message);
        }
    }
    if logical > physical {
        let message = format!("{logical} is more than the physical size, {physical}; use less");
        problems.invalid(format!("{field}.custom.logical"), message);
    }
    if bus(disk).is_some_and(|(_, bus)| *bus == DiskBus::Sata) && logical != *BLOCK_SIZES.start() {
        problems.invalid(format!("{field}.custom.logical"), "must be 512 on sata; use that, or another bus");
    }
    if custom.discard_granularity.is_some_and(|step| logical == 0 || step % logical != 0) {
        problems.invalid(format!("{field}.custom.discardGranularity"), format!("must be a multiple of {logical}"));
    }
}
