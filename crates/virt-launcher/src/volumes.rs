//! From the volumes of an instance to files and devices that QEMU can open.
//!
//! What a claim, a secret or a config map is on this machine, the caller says: a pod mounts them, `orlop run` is told by
//! flags. Everything that is made here is in the guest's own directory and goes with it.

mod claims;
mod cloud_init;
mod error;
mod images;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::vmi::VirtualMachineInstance;
use api::volumes::Volume;
use hypervisor::wiring::{Format, Kernel, Layer, Source, SourceKind};
use rustix::fs::{Mode, OFlags};
use storage::cache::{Cache, CachedFile};
use storage::pull::{Progress, Registries};
use storage::{iso, qcow2};
use virt_rules::support;

pub use error::VolumeError;

/// Where things that an instance names are on this machine.
#[derive(Clone, Debug, Default)]
pub struct VolumePaths {
    /// Files and block devices behind claims, by the claim's name.
    pub claims: BTreeMap<String, PathBuf>,
    /// Directories with the files of secrets, by the secret's name.
    pub secrets: BTreeMap<String, PathBuf>,
    /// Directories with the files of config maps, by the map's name.
    pub config_maps: BTreeMap<String, PathBuf>,
    /// Images with container disks that are mounted already, or the disks in them, by the volume's name.
    pub container_disks: BTreeMap<String, PathBuf>,
    /// Directories of host disks, by the volume's name; where there is none, the path is this machine's.
    pub host_disks: BTreeMap<String, PathBuf>,
    /// The mounted image with the guest's kernel.
    pub kernel: Option<PathBuf>,
}

/// What preparing needs besides the instance.
pub struct Workshop<'a> {
    /// Where disks are made that go with the guest.
    pub folder: &'a Path,
    /// Where claims, secrets and config maps are.
    pub places: &'a VolumePaths,
    /// Images that are here already.
    pub cache: &'a Cache,
    /// How to reach registries.
    pub registries: &'a Registries,
    /// Who watches a pull.
    pub progress: &'a dyn Progress,
}

/// What was prepared. Images stay in the cache as long as this is held.
#[derive(Debug, Default)]
pub struct Prepared {
    /// By the volume's name.
    pub volumes: BTreeMap<String, Source>,
    /// The files of a direct kernel boot.
    pub kernel: Option<Kernel>,
    /// Keeps the images from being cleaned away.
    held: Vec<CachedFile>,
    /// What each was prepared for.
    asked: BTreeMap<String, Volume>,
    /// How many files were made.
    made: u32,
}

/// Prepares every volume, and the files of a kernel boot. It can be done again: each attempt begins anew.
///
/// # Assumptions
/// No guest runs on what an earlier attempt has made.
///
/// # Errors
/// The first volume that cannot be had, by its path.
pub async fn prepare(vmi: &VirtualMachineInstance, workshop: &Workshop<'_>) -> Result<Prepared, VolumeError> {
    check(vmi)?;
    let mut prepared = Prepared::default();
    for (index, volume) in vmi.spec.volumes.iter().flatten().enumerate() {
        prepared.add(index, volume, vmi, workshop).await?;
    }
    let kernel_boot = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    if let Some(container) = kernel_boot.and_then(|boot| boot.container.as_ref()) {
        prepared.kernel = Some(images::kernel(container, workshop, &mut prepared.held).await?);
    }
    Ok(prepared)
}

impl Prepared {
    /// Prepares the volumes that are not there yet. Those that are stay untouched: a guest may run on them. Returns those that cannot be
    /// had, by their names; they keep no other one waiting.
    pub(crate) async fn add_missing(
        &mut self,
        vmi: &VirtualMachineInstance,
        workshop: &Workshop<'_>,
    ) -> BTreeMap<String, VolumeError> {
        let mut missing = BTreeMap::new();
        for (index, volume) in vmi.spec.volumes.iter().flatten().enumerate() {
            if let Err(error) = self.add(index, volume, vmi, workshop).await {
                missing.insert(volume.name.clone(), error);
            }
        }
        missing
    }

    async fn add(
        &mut self,
        index: usize,
        volume: &Volume,
        vmi: &VirtualMachineInstance,
        workshop: &Workshop<'_>,
    ) -> Result<(), VolumeError> {
        if self.volumes.contains_key(&volume.name) {
            return Ok(());
        }
        let path = format!("spec.volumes[{index}]");
        // Numbered in the order of their making: a name is the user's, and places in the list change.
        let file = workshop.folder.join(format!("volume{}", self.made));
        let source = prepare_volume(&path, file, volume, vmi, workshop, &mut self.held).await?;
        self.made += 1;
        self.volumes.insert(volume.name.clone(), source);
        self.asked.insert(volume.name.clone(), volume.clone());
        Ok(())
    }

    /// Volumes that are there and are asked for otherwise now: a disk that a guest has open is not replaced.
    pub(crate) fn changed(&self, vmi: &VirtualMachineInstance) -> Vec<String> {
        let volumes = vmi.spec.volumes.iter().flatten();
        let changed = volumes.filter(|volume| self.asked.get(&volume.name).is_some_and(|asked| asked != *volume));
        changed.map(|volume| format!("spec.volumes[name={}]", volume.name)).collect()
    }

    /// The volumes whose contents are here and nowhere else, with where they are.
    pub(crate) fn local(&self) -> impl Iterator<Item = (&str, &Source)> {
        let local = self.asked.iter().filter(|(_, volume)| {
            let Volume { persistent_volume_claim, data_volume, host_disk, .. } = volume;
            persistent_volume_claim.is_none() && data_volume.is_none() && host_disk.is_none()
        });
        local.filter_map(|(name, _)| Some((name.as_str(), self.volumes.get(name)?)))
    }

    /// Forgets a volume that the guest has let go of, unless the same one is still asked for.
    pub(crate) fn release(&mut self, name: &str, vmi: &VirtualMachineInstance) {
        let wanted = vmi.spec.volumes.iter().flatten().find(|volume| volume.name == name);
        if wanted.is_none() || wanted != self.asked.get(name) {
            self.volumes.remove(name);
            self.asked.remove(name);
        }
    }
}

/// Whether a disk can be made of every volume, as far as the instance itself tells.
///
/// # Errors
/// The first of which none can, by its path.
pub fn check(vmi: &VirtualMachineInstance) -> Result<(), VolumeError> {
    let refused = support::unsupported(vmi).into_iter().find(|refusal| refusal.path().starts_with("spec.volumes["));
    if let Some(refusal) = refused {
        return Err(VolumeError::Refused(refusal.into()));
    }
    let mut volumes = vmi.spec.volumes.iter().flatten().enumerate();
    volumes.try_for_each(|(index, volume)| {
        let path = format!("spec.volumes[{index}]");
        let invalid = |source| VolumeError::Iso { path: path.clone(), source };
        labels(volume).try_for_each(|label| iso::check_label(label).map_err(invalid))?;
        cloud_init::check(&path, volume)
    })
}

/// What the disks with files are called that a volume asks for.
fn labels(volume: &Volume) -> impl Iterator<Item = &str> {
    let map = volume.config_map.iter().map(|map| label(map.volume_label.as_deref()));
    map.chain(volume.secret.iter().map(|secret| label(secret.volume_label.as_deref())))
}

/// As KubeVirt does, an empty label is as good as none.
fn label(asked: Option<&str>) -> &str {
    asked.filter(|label| !label.is_empty()).unwrap_or("cfgdata")
}

async fn prepare_volume(
    path: &str,
    file: PathBuf,
    volume: &Volume,
    vmi: &VirtualMachineInstance,
    workshop: &Workshop<'_>,
    held: &mut Vec<CachedFile>,
) -> Result<Source, VolumeError> {
    let Volume { container_disk, empty_disk, ephemeral, host_disk, persistent_volume_claim, data_volume, .. } = volume;
    let Volume { cloud_init_no_cloud, cloud_init_config_drive, config_map, secret, .. } = volume;
    clear(path, &file)?;
    if let Some(container_disk) = container_disk {
        return images::container_disk(path, volume, container_disk, &file, workshop, held).await;
    }
    if let Some(empty) = empty_disk {
        let path = format!("{path}.emptyDisk.capacity");
        let size = u64::try_from(empty.capacity.amount().units()).unwrap_or(0);
        qcow2::create_empty(&file, size).map_err(|source| VolumeError::Overlay { path, source })?;
        return Ok(overlay(file, Vec::new()));
    }
    if let Some(host_disk) = host_disk {
        return claims::from_host(path, &volume.name, host_disk, workshop.places);
    }
    if let Some(ephemeral) = ephemeral {
        let name = ephemeral.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str());
        let path = format!("{path}.ephemeral.persistentVolumeClaim");
        let below = claims::claim(&path, name.unwrap_or_default(), workshop.places, None)?;
        qcow2::create_overlay(&file, &below.disk.path, qcow2::Format::Raw, below.disk.virtual_size)
            .map_err(|source| VolumeError::Overlay { path, source })?;
        let below = Layer { path: below.disk.path, format: Format::Raw, kind: below.kind };
        return Ok(overlay(file, vec![below]));
    }
    if let Some(claimed) = persistent_volume_claim {
        let path = format!("{path}.persistentVolumeClaim");
        let size = claims::size(vmi, &volume.name);
        let claim = claims::claim(&path, &claimed.claim_name, workshop.places, size)?;
        return Ok(claim.source(claimed.read_only == Some(true)));
    }
    if let Some(data_volume) = data_volume {
        // A data volume fills a claim of its own name.
        let path = format!("{path}.dataVolume");
        let size = claims::size(vmi, &volume.name);
        return Ok(claims::claim(&path, &data_volume.name, workshop.places, size)?.source(false));
    }
    if let Some(config) = cloud_init_no_cloud {
        return cloud_init::no_cloud(&format!("{path}.cloudInitNoCloud"), config, vmi, &file, workshop.places);
    }
    if let Some(config) = cloud_init_config_drive {
        return cloud_init::config_drive(&format!("{path}.cloudInitConfigDrive"), config, vmi, &file, workshop.places);
    }
    if let Some(map) = config_map {
        let label = label(map.volume_label.as_deref());
        let folder = map.name.as_ref().and_then(|name| workshop.places.config_maps.get(name));
        return files_disk(&format!("{path}.configMap"), label, folder, map.optional, &file);
    }
    if let Some(secret) = secret {
        let label = label(secret.volume_label.as_deref());
        let folder = secret.secret_name.as_ref().and_then(|name| workshop.places.secrets.get(name));
        return files_disk(&format!("{path}.secret"), label, folder, secret.optional, &file);
    }
    Err(VolumeError::refused(path, "has no source"))
}

/// Takes away what an attempt that failed has left: no guest has run on it.
fn clear(path: &str, file: &Path) -> Result<(), VolumeError> {
    match std::fs::remove_file(file) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(VolumeError::Clear { path: path.to_owned(), file: file.to_owned(), source })
        }
        _ => Ok(()),
    }
}

/// The files of a config map or a secret, as a disk.
fn files_disk(
    path: &str,
    label: &str,
    folder: Option<&PathBuf>,
    optional: Option<bool>,
    file: &Path,
) -> Result<Source, VolumeError> {
    let files = match folder {
        Some(folder) => read_folder(path, folder)?,
        None if optional == Some(true) => BTreeMap::new(),
        None => return Err(VolumeError::refused(path, "does not exist on this machine")),
    };
    storage::cloud_init::config_disk(file, label, &files)
        .map_err(|source| VolumeError::Iso { path: path.to_owned(), source })?;
    Ok(image(file.to_owned()))
}

/// The regular files of a directory. What a pod mounts has links and directories of its own beside them, under `..` names.
fn read_folder(path: &str, folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, VolumeError> {
    let failed = |file: &Path, source| VolumeError::Read { path: path.to_owned(), file: file.to_owned(), source };
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(|source| failed(folder, source))? {
        let entry = entry.map_err(|source| failed(folder, source))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && entry.path().is_file() {
            files.insert(name, std::fs::read(entry.path()).map_err(|source| failed(&entry.path(), source))?);
        }
    }
    Ok(files)
}

fn overlay(path: PathBuf, below: Vec<Layer>) -> Source {
    // The whole chain is opened in one way.
    let direct_io = takes_direct_io(&path) && below.iter().all(|layer| takes_direct_io(&layer.path));
    let top = Layer { path, format: Format::Qcow2, kind: SourceKind::File };
    Source { top, below, read_only: false, direct_io }
}

/// Whether a file can be read around the host's cache; file systems in memory cannot.
fn takes_direct_io(path: &Path) -> bool {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

/// A disk that was made here for this guest alone. It may be written to: a SATA disk cannot be read-only, and nobody
/// reads it again.
fn image(path: PathBuf) -> Source {
    let top = Layer { path, format: Format::Raw, kind: SourceKind::File };
    Source { top, below: Vec::new(), read_only: false, direct_io: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_label_is_as_good_as_none() {
        assert_eq!([label(None), label(Some("")), label(Some("mine"))], ["cfgdata", "cfgdata", "mine"]);
    }
}
