//! Disks that outlive the guest: behind claims, and of the machine itself.

use std::collections::BTreeMap;
use std::path::Path;

use api::quantity::Quantity;
use api::vmi::VirtualMachineInstance;
use api::volumes::{HostDisk, HostDiskType};
use hypervisor::wiring::{Format, Layer, Source, SourceKind};
use storage::disk;

use super::{VolumeError, VolumePaths, takes_direct_io};

/// What a claim is on this machine.
pub(super) struct Claimed {
    pub(super) disk: disk::Disk,
    pub(super) kind: SourceKind,
}

impl Claimed {
    pub(super) fn source(self, read_only: bool) -> Source {
        let direct_io = takes_direct_io(&self.disk.path);
        let top = Layer { path: self.disk.path, format: Format::Raw, kind: self.kind };
        Source { top, below: Vec::new(), read_only, direct_io }
    }
}

/// A claim is a block device, a file, or a directory that holds a file `disk.img`. Its bytes are the guest's: always raw.
/// A directory without that file gets one of this size, as an empty claim is an empty disk.
pub(super) fn claim(path: &str, name: &str, places: &VolumePaths, size: Option<u64>) -> Result<Claimed, VolumeError> {
    let Some(place) = places.claims.get(name) else {
        return Err(VolumeError::refused(path, format!("claim {name:?} does not exist on this machine")));
    };
    let failed = |source| VolumeError::Disk { path: path.to_owned(), source };
    if !place.is_dir() {
        return match disk::block_device(place) {
            Ok(disk) => Ok(Claimed { disk, kind: SourceKind::Block }),
            Err(_) => Ok(Claimed { disk: disk::raw_file(place).map_err(failed)?, kind: SourceKind::File }),
        };
    }
    let file = place.join("disk.img");
    let kind = if size.is_some() { disk::HostDisk::DiskOrCreate } else { disk::HostDisk::Disk };
    let disk = disk::host_disk(&file, kind, size.unwrap_or_default()).map_err(failed)?;
    Ok(Claimed { disk, kind: SourceKind::File })
}

/// How large the claim behind a volume is, as virt-controller has written it down: what was asked for, if that is less
/// than what was given.
pub(super) fn size(vmi: &VirtualMachineInstance, volume: &str) -> Option<u64> {
    let mut volumes = vmi.status.iter().flat_map(|status| status.volume_status.iter().flatten());
    let claim = volumes.find(|status| status.name == volume)?.persistent_volume_claim_info.as_ref()?;
    let storage = |amounts: &Option<BTreeMap<String, Quantity>>| {
        u64::try_from(amounts.as_ref()?.get("storage")?.amount().units()).ok().filter(|bytes| *bytes > 0)
    };
    [storage(&claim.requests), storage(&claim.capacity)].into_iter().flatten().min()
}

/// A disk of the machine.
pub(super) fn from_host(
    path: &str,
    volume: &str,
    host_disk: &HostDisk,
    places: &VolumePaths,
) -> Result<Source, VolumeError> {
    let kind = match &host_disk.type_ {
        HostDiskType::Disk => disk::HostDisk::Disk,
        HostDiskType::DiskOrCreate => disk::HostDisk::DiskOrCreate,
        HostDiskType::Other(other) => {
            let problem = format!("{other:?} is not valid; use one of {}", HostDiskType::KNOWN.join(", "));
            return Err(VolumeError::refused(format!("{path}.hostDisk.type"), problem));
        }
    };
    let file = Path::new(&host_disk.path);
    let place = match (places.host_disks.get(volume), file.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => file.to_owned(),
    };
    let capacity = host_disk.capacity.as_ref().map_or(0, |capacity| capacity.amount().units());
    let disk = disk::host_disk(&place, kind, u64::try_from(capacity).unwrap_or(0))
        .map_err(|source| VolumeError::Disk { path: format!("{path}.hostDisk"), source })?;
    Ok(Claimed { disk, kind: SourceKind::File }.source(false))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_empty_claim_becomes_a_disk_of_its_size_once() {
        let folder = tempfile::tempdir().unwrap();
        let places = VolumePaths {
            claims: BTreeMap::from([("c".to_owned(), folder.path().to_owned())]),
            ..VolumePaths::default()
        };
        let missing = claim("spec.volumes[0]", "c", &places, None);
        assert!(matches!(missing, Err(VolumeError::Disk { source: disk::DiskError::Missing(_), .. })));
        assert_eq!(claim("spec.volumes[0]", "c", &places, Some(4096)).unwrap().disk.virtual_size, 4096);
        // It keeps its size, and what is in it, whatever the claim says later.
        assert_eq!(claim("spec.volumes[0]", "c", &places, Some(8192)).unwrap().disk.virtual_size, 4096);
    }

    /// Whoever writes to a disk may write the header of another format there, one that names a file of the machine.
    #[test]
    fn a_claim_is_raw_whatever_its_bytes_look_like() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, file) = (folder.path().join("secret"), folder.path().join("disk.img"));
        std::fs::write(&secret, vec![7; 65536]).unwrap();
        storage::qcow2::create_overlay(&file, &secret, storage::qcow2::Format::Raw, 65536).unwrap();
        let length = std::fs::metadata(&file).unwrap().len();
        assert!(std::fs::read(&file).unwrap().starts_with(b"QFI\xfb"));
        for place in [folder.path().to_owned(), file.clone()] {
            let places = VolumePaths { claims: BTreeMap::from([("c".to_owned(), place)]), ..VolumePaths::default() };
            let source = claim("spec.volumes[0]", "c", &places, None).unwrap();
            // As large as the file, not as its header says.
            assert_eq!(source.disk.virtual_size, length);
            let source = source.source(false);
            assert_eq!((source.top.format, source.below.len(), &source.top.path), (Format::Raw, 0, &file));
        }
    }

    #[test]
    fn a_claim_is_as_large_as_was_asked_for() {
        let info = json!({ "claimName": "c", "requests": { "storage": "1Gi" }, "capacity": { "storage": "2Gi" } });
        let status = json!({ "volumeStatus": [{ "name": "v", "target": "", "persistentVolumeClaimInfo": info }] });
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "spec": { "domain": { "devices": {} } }, "status": status,
        });
        let vmi = api::decode::object::<VirtualMachineInstance>(vmi).unwrap().object;
        assert_eq!(size(&vmi, "v"), Some(1 << 30));
        assert_eq!(size(&vmi, "other"), None);
    }
}
