//! Disks, as the guest sees them.

use api::devices::{self, BlockSize, CustomBlockSize, DiskBus, DiskErrorPolicy, DriverCache, DriverIO};
use api::vmi::VirtualMachineInstanceSpec;

use super::plugging::Plugging;
use crate::guest::place::Bus;
use crate::guest::{Cache, Disk, Io, Kind, Media, OnError};
use crate::refusal::Refusals;

pub(super) fn plug(refusals: &mut Refusals, plugging: &mut Plugging<'_>, spec: &VirtualMachineInstanceSpec) {
    let order_given = boot_order_given(spec);
    for (index, disk) in spec.domain.devices.disks.iter().flatten().enumerate() {
        let path = format!("spec.domain.devices.disks[{index}]");
        let Some((bus, media, read_only)) = target(refusals, &path, disk) else { continue };
        let mut seen = seen(refusals, &path, disk, media, read_only);
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
    let devices::Disk { disk, cdrom, .. } = disk;
    let (field, bus, media, read_only) = match (disk, cdrom) {
        (Some(disk), _) => ("disk", disk.bus.as_ref(), Media::Disk, disk.readonly == Some(true)),
        (None, Some(cdrom)) => ("cdrom", cdrom.bus.as_ref(), Media::Cdrom, cdrom.readonly != Some(false)),
        (None, None) => ("disk", None, Media::Disk, false),
    };
    let bus = bus.filter(|bus| !bus.as_str().is_empty()).unwrap_or(&DiskBus::Sata);
    let bus = match (bus, media) {
        (DiskBus::Virtio, Media::Disk) => Bus::Pci,
        (DiskBus::Sata, _) => Bus::Sata,
        (DiskBus::Scsi, _) => Bus::Scsi,
        (bus @ (DiskBus::Virtio | DiskBus::Usb | DiskBus::Other(_)), _) => {
            refusals.meaningless(format!("{path}.{field}.bus"), bus.as_str());
            return None;
        }
    };
    Some((bus, media, read_only))
}

fn seen(refusals: &mut Refusals, path: &str, disk: &devices::Disk, media: Media, read_only: bool) -> Disk {
    let mut meaningless = |field: &str, value: &str| {
        if !value.is_empty() {
            refusals.meaningless(format!("{path}.{field}"), value);
        }
    };
    let cache = match &disk.cache {
        None => Cache::Auto,
        Some(DriverCache::None) => Cache::None,
        Some(DriverCache::Writeback) => Cache::Writeback,
        Some(DriverCache::Writethrough) => Cache::Writethrough,
        Some(DriverCache::Other(other)) => {
            meaningless("cache", other);
            Cache::Auto
        }
    };
    let io = match &disk.io {
        None => Io::Auto,
        Some(DriverIO::Native) => Io::Native,
        Some(DriverIO::Threads) => Io::Threads,
        Some(DriverIO::Other(other)) => {
            meaningless("io", other);
            Io::Auto
        }
    };
    let on_error = match &disk.error_policy {
        None | Some(DiskErrorPolicy::Stop) => OnError::Stop,
        Some(DiskErrorPolicy::Report) => OnError::Report,
        Some(DiskErrorPolicy::Ignore) => OnError::Ignore,
        Some(DiskErrorPolicy::Enospace) => OnError::StopIfFull,
        Some(DiskErrorPolicy::Other(other)) => {
            meaningless("errorPolicy", other);
            OnError::Stop
        }
    };
    let block_size = disk.block_size.as_ref().and_then(|BlockSize { custom, match_volume: _ }| custom.clone());
    let CustomBlockSize { logical, physical, discard_granularity } = block_size.unwrap_or_default();
    let serial = disk.serial.as_deref().filter(|serial| !serial.is_empty());
    Disk {
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
    }
}
