//! Whether disks can be had from what is behind them: what one can be depends on its volume, and one of its fields on another.

use api::devices::{Disk, DiskBus, DriverCache, DriverIO};
use api::vmi::VirtualMachineInstanceSpec;
use api::volumes::Volume;

use super::sheet::Sheet;

pub(super) fn check(sheet: &mut Sheet<'_>, spec: &VirtualMachineInstanceSpec) {
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    for (index, disk) in spec.domain.devices.disks.iter().flatten().enumerate() {
        let volume = volumes.iter().position(|volume| volume.name == disk.name);
        let volume = volume.and_then(|index| Some((index, volumes.get(index)?)));
        if let Some(problem) = no_native(disk, volume.map(|(_, volume)| volume)) {
            sheet.refuse(&format!("domain.devices.disks[{index}].io"), problem);
        }
        if let Some((index, Volume { persistent_volume_claim: Some(claim), .. })) = volume
            && claim.read_only == Some(true)
            && is_sata_disk(disk)
        {
            let problem = format!("sata disks cannot be read-only; put {:?} on virtio or scsi", disk.name);
            sheet.refuse(&format!("volumes[{index}].persistentVolumeClaim.readOnly"), problem);
        }
    }
}

/// Why the kernel's queues cannot serve a disk: they bypass the node's cache. Whether a file system lets them, its node knows.
fn no_native(disk: &Disk, volume: Option<&Volume>) -> Option<String> {
    if disk.io != Some(DriverIO::Native) {
        return None;
    }
    match &disk.cache {
        Some(cache @ (DriverCache::Writeback | DriverCache::Writethrough)) => {
            Some(format!("native does not work with cache {}; use cache none, or io threads", cache.as_str()))
        }
        None if volume.is_some_and(is_made_of_files) => {
            Some("native does not work for a disk made of files; use cache none, or io threads".to_owned())
        }
        None | Some(DriverCache::None | DriverCache::Other(_)) => None,
    }
}

/// Whether a launcher writes the image itself, through the node's cache.
fn is_made_of_files(volume: &Volume) -> bool {
    let Volume { cloud_init_config_drive, cloud_init_no_cloud, config_map, secret, .. } = volume;
    cloud_init_config_drive.is_some() || cloud_init_no_cloud.is_some() || config_map.is_some() || secret.is_some()
}

/// Whether it is a disk on SATA, as one is that says nothing.
fn is_sata_disk(disk: &Disk) -> bool {
    let bus = disk.disk.as_ref().and_then(|target| target.bus.as_ref());
    let is_disk = disk.cdrom.is_none() && disk.lun.is_none();
    is_disk && bus.is_none_or(|bus| *bus == DiskBus::Sata || bus.as_str().is_empty())
}
