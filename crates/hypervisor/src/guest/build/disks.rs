//! Disks, as the guest sees them.

use std::collections::BTreeSet;

use api::devices::{self, BlockSize, CustomBlockSize, DiskBus, DiskErrorPolicy, DriverCache, DriverIO};
use api::vmi::VirtualMachineInstanceSpec;

use super::plugging::Plugging;
use crate::guest::place::Bus;
use crate::guest::{Cache, Disk, Io, Kind, Media, OnError};
use crate::refusal::Refusals;

pub(super) fn plug(refusals: &mut Refusals, plugging: &mut Plugging<'_>, spec: &VirtualMachineInstanceSpec) {
    let mut orders = BTreeSet::new();
    let mut names = BTreeSet::new();
    let order_given = boot_order_given(spec);
    for (index, disk) in spec.domain.devices.disks.iter().flatten().enumerate() {
        let path = format!("spec.domain.devices.disks[{index}]");
        if !names.insert(&disk.name) {
            refusals.refuse(format!("{path}.name"), format!("there is another disk {:?}", disk.name));
        }
        if let Some(order) = disk.boot_order
            && (order == 0 || !orders.insert(order))
        {
            refusals.refuse(format!("{path}.bootOrder"), "must be at least 1, and no two disks may share it");
        }
        let Some((bus, media, read_only)) = target(refusals, &path, disk) else { continue };
        let Some(mut seen) = seen(refusals, &path, disk, media, read_only) else { continue };
        // If nothing says what is booted first, disks are tried in their order.
        let implied = u32::try_from(index + 1).ok().filter(|_| !order_given);
        seen.boot_order = disk.boot_order.or(implied);
        plugging.plug(refusals, &path, bus, Some(&disk.name), Kind::Disk(seen));
    }
}

fn boot_order_given(spec: &VirtualMachineInstanceSpec) -> bool {
    let devices = &spec.domain.devices;
    devices.disks.iter().flatten().any(|disk| disk.boot_order.is_some())
        || devices.interfaces.iter().flatten().any(|interface| interface.boot_order.is_some())
}

/// Which bus it is on, what it looks like, and whether it is read-only.
fn target(refusals: &mut Refusals, path: &str, disk: &devices::Disk) -> Option<(Bus, Media, bool)> {
    let devices::Disk {
        name: _,
        block_size: _,
        boot_order: _,
        cache: _,
        cdrom,
        changed_block_tracking,
        dedicated_io_thread,
        disk,
        error_policy: _,
        io: _,
        lun,
        serial: _,
        shareable,
        tag,
    } = disk;
    for (name, set) in [
        ("changedBlockTracking", *changed_block_tracking == Some(true)),
        ("dedicatedIOThread", *dedicated_io_thread == Some(true)),
        ("lun", lun.is_some()),
        ("shareable", *shareable == Some(true)),
        ("tag", tag.is_some()),
    ] {
        refusals.unsupported(&format!("{path}.{name}"), set);
    }
    let (field, bus, media, read_only) = match (disk, cdrom) {
        (Some(_), Some(_)) => {
            refusals.refuse(path, "disk and cdrom exclude each other");
            return None;
        }
        (Some(disk), None) => {
            refusals.unsupported(&format!("{path}.disk.pciAddress"), disk.pci_address.is_some());
            ("disk", disk.bus.as_ref(), Media::Disk, disk.readonly == Some(true))
        }
        (None, Some(cdrom)) => {
            refusals.unsupported(&format!("{path}.cdrom.tray"), cdrom.tray.is_some());
            ("cdrom", cdrom.bus.as_ref(), Media::Cdrom, cdrom.readonly != Some(false))
        }
        (None, None) => ("disk", None, Media::Disk, false),
    };
    let bus = match (bus.unwrap_or(&DiskBus::Sata), media) {
        (DiskBus::Virtio, Media::Cdrom) => {
            refusals.refuse(format!("{path}.cdrom.bus"), "a CD-ROM sits on sata or scsi");
            return None;
        }
        (DiskBus::Sata, Media::Disk) if read_only => {
            refusals.refuse(path, "a disk on sata cannot be read-only; use virtio or scsi, or make it a cdrom");
            return None;
        }
        (DiskBus::Virtio, Media::Disk) => Bus::Pci,
        (DiskBus::Sata, _) => Bus::Sata,
        (DiskBus::Scsi, _) => Bus::Scsi,
        (bus @ (DiskBus::Usb | DiskBus::Other(_)), _) => {
            let problem = format!("{:?} is not supported; use virtio, sata or scsi", bus.as_str());
            refusals.refuse(format!("{path}.{field}.bus"), problem);
            return None;
        }
    };
    Some((bus, media, read_only))
}

fn seen(refusals: &mut Refusals, path: &str, disk: &devices::Disk, media: Media, read_only: bool) -> Option<Disk> {
    let cache = match &disk.cache {
        None => Cache::Auto,
        Some(DriverCache::None) => Cache::None,
        Some(DriverCache::Writeback) => Cache::Writeback,
        Some(DriverCache::Writethrough) => Cache::Writethrough,
        Some(DriverCache::Other(other)) => {
            let problem = format!("{other:?} is not one of {}", DriverCache::KNOWN.join(", "));
            refusals.refuse(format!("{path}.cache"), problem);
            return None;
        }
    };
    let io = match &disk.io {
        None => Io::Auto,
        Some(DriverIO::Native) => Io::Native,
        Some(DriverIO::Threads) => Io::Threads,
        Some(DriverIO::Other(other)) => {
            refusals.refuse(format!("{path}.io"), format!("{other:?} is not one of {}", DriverIO::KNOWN.join(", ")));
            return None;
        }
    };
    let on_error = match &disk.error_policy {
        None | Some(DiskErrorPolicy::Stop) => OnError::Stop,
        Some(DiskErrorPolicy::Report) => OnError::Report,
        Some(DiskErrorPolicy::Ignore) => OnError::Ignore,
        Some(DiskErrorPolicy::Enospace) => OnError::StopIfFull,
        Some(DiskErrorPolicy::Other(other)) => {
            let problem = format!("{other:?} is not one of {}", DiskErrorPolicy::KNOWN.join(", "));
            refusals.refuse(format!("{path}.errorPolicy"), problem);
            return None;
        }
    };
    let CustomBlockSize { logical, physical, discard_granularity } =
        block_size(refusals, path, disk.block_size.as_ref())?;
    let serial = disk.serial.as_deref();
    Some(Disk {
        media,
        read_only,
        // A guest that flushes what must not be lost is as safe as on any real disk, whatever the node's file system can do.
        write_cache: cache != Cache::Writethrough,
        cache,
        io,
        on_error,
        serial: serial.and_then(|serial| refusals.text(&format!("{path}.serial"), serial)),
        boot_order: None,
        logical_block: logical,
        physical_block: physical,
        discard_granularity,
    })
}

fn block_size(refusals: &mut Refusals, path: &str, block_size: Option<&BlockSize>) -> Option<CustomBlockSize> {
    let Some(BlockSize { custom, match_volume }) = block_size else { return Some(CustomBlockSize::default()) };
    let matching = match_volume.as_ref().is_some_and(|state| state.enabled != Some(false));
    refusals.unsupported(&format!("{path}.blockSize.matchVolume"), matching);
    let custom = custom.clone().unwrap_or_default();
    let valid = |size: &Option<u32>| size.is_none_or(|size| size.is_power_of_two() && (512..=2 << 20).contains(&size));
    let ordered = custom.logical.unwrap_or(512) <= custom.physical.unwrap_or(u32::MAX);
    if !valid(&custom.logical) || !valid(&custom.physical) || !ordered {
        let problem = "sizes are powers of two from 512 to 2097152, logical not above physical";
        refusals.refuse(format!("{path}.blockSize.custom"), problem);
        return None;
    }
    Some(custom)
}
