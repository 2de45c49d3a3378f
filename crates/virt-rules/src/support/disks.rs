//! Disks: what they are and which bus they are on.

use api::devices::{
    BlockSize, CDRomTarget, CustomBlockSize, Disk, DiskBus, DiskErrorPolicy, DiskTarget, DriverCache, DriverIO,
    TrayState,
};

use super::sheet::Sheet;

/// Instead of the host's metrics.
pub(super) const NO_METRICS: &str = "remove it; guests get no information about their host";
const BUSES: &[&str] = &["virtio", "sata", "scsi"];
const CDROM_BUSES: &[&str] = &["sata", "scsi"];

pub(super) fn place(sheet: &mut Sheet<'_>, disk: &Disk) {
    let Disk {
        name,
        block_size,
        boot_order,
        cache,
        cdrom: cdrom_of_it,
        changed_block_tracking,
        dedicated_io_thread,
        disk: disk_of_it,
        error_policy,
        io,
        lun,
        serial,
        shareable,
        tag,
    } = disk;
    sheet.works("name", name);
    sheet.part("blockSize", block_size.as_ref(), place_block_size);
    sheet.works("bootOrder", boot_order);
    sheet.words("cache", cache.as_ref().map(DriverCache::as_str), DriverCache::KNOWN);
    sheet.part("cdrom", cdrom_of_it.as_ref(), cdrom);
    sheet.unsupported(
        "changedBlockTracking",
        "remove it; backups are not supported yet",
        *changed_block_tracking == Some(true),
    );
    let thread = "remove it; QEMU's main thread handles the I/O of all disks";
    sheet.unsupported("dedicatedIOThread", thread, *dedicated_io_thread == Some(true));
    sheet.part("disk", disk_of_it.as_ref(), target);
    sheet.words("errorPolicy", error_policy.as_ref().map(DiskErrorPolicy::as_str), DiskErrorPolicy::KNOWN);
    sheet.words("io", io.as_ref().map(DriverIO::as_str), DriverIO::KNOWN);
    sheet.unsupported("lun", "use disk", lun.is_some());
    sheet.text("serial", serial.as_deref());
    sheet.unsupported("shareable", "remove it; a disk cannot be shared between guests", *shareable == Some(true));
    sheet.unsupported("tag", super::interfaces::NO_TAGS, tag.is_some());
    if disk_of_it.is_some() && cdrom_of_it.is_some() {
        sheet.refuse("", "disk and cdrom are mutually exclusive; keep one");
    }
}

fn target(sheet: &mut Sheet<'_>, target: &DiskTarget) {
    let DiskTarget { bus, pci_address, readonly } = target;
    sheet.words("bus", bus.as_ref().map(DiskBus::as_str), BUSES);
    let address = pci_address.as_ref().is_some_and(|address| !address.is_empty());
    sheet.unsupported("pciAddress", super::interfaces::NO_ADDRESS, address);
    // A disk that says nothing is on sata.
    let on_sata = matches!(bus, None | Some(DiskBus::Sata)) || bus.as_ref().is_some_and(|bus| bus.as_str().is_empty());
    let problem = "sata disks cannot be read-only; use virtio or scsi, or make it a cdrom".to_owned();
    sheet.within("readonly", "on virtio and scsi", (*readonly == Some(true) && on_sata).then_some(problem));
}

fn cdrom(sheet: &mut Sheet<'_>, cdrom: &CDRomTarget) {
    let CDRomTarget { bus, readonly, tray } = cdrom;
    sheet.words("bus", bus.as_ref().map(DiskBus::as_str), CDROM_BUSES);
    sheet.works("readonly", readonly);
    sheet.words("tray", tray.as_ref().map(TrayState::as_str), &["closed"]);
}

fn place_block_size(sheet: &mut Sheet<'_>, size: &BlockSize) {
    let BlockSize { custom: custom_of_it, match_volume } = size;
    sheet.part("custom", custom_of_it.as_ref(), custom);
    let matching = match_volume.as_ref().is_some_and(|state| state.enabled != Some(false));
    sheet.unsupported("matchVolume", "use custom", matching);
}

fn custom(sheet: &mut Sheet<'_>, custom: &CustomBlockSize) {
    const BOUNDS: &str = "a power of two from 512 to 2097152";
    let CustomBlockSize { discard_granularity, logical, physical } = custom;
    sheet.works("discardGranularity", discard_granularity);
    for (name, size) in [("logical", *logical), ("physical", *physical)] {
        let wrong = size.filter(|size| !size.is_power_of_two() || !(512..=2 << 20).contains(size));
        sheet.within(name, BOUNDS, wrong.map(|size| format!("{size} is not {BOUNDS}")));
    }
    if logical.unwrap_or(512) > physical.unwrap_or(u32::MAX) {
        sheet.refuse("logical", "is larger than the physical size; use a smaller size");
    }
}
