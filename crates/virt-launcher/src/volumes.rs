//! From the volumes of an instance to files and devices that QEMU can open.
//!
//! What a claim, a secret or a config map is on this machine, the caller says: a pod mounts them, `orlop run` is told by
//! flags. Everything that is made here is in the guest's own directory and goes with it.

mod claims;
mod cloud_init;
mod images;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::vmi::VirtualMachineInstance;
use api::volumes::Volume;
use hypervisor::Refusal;
use hypervisor::wiring::{Format, Kernel, Layer, Source, SourceKind};
use rustix::fs::{Mode, OFlags};
use storage::cache::{Cache, CachedFile};
use storage::pull::{Progress, Registries};
use storage::{disk, qcow2};
use virt_rules::support;

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

/// Why a volume is not there.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The instance asks for something that cannot be had.
    #[error("{0}")]
    Refused(Refusal),
    /// An image could not be had.
    #[error("{path}")]
    Image {
        /// The field that names it.
        path: String,
        source: storage::cache::CacheError,
    },
    /// A mounted image has no such disk.
    #[error("{path}")]
    Mounted {
        /// The field that names it.
        path: String,
        source: storage::mounted::MountedError,
    },
    /// A reference makes no sense.
    #[error("{path}")]
    Reference {
        /// The field.
        path: String,
        source: storage::image::ReferenceError,
    },
    /// A disk could not be made or opened.
    #[error("{path}")]
    Disk {
        /// The field that asks for it.
        path: String,
        source: disk::DiskError,
    },
    /// An overlay could not be made.
    #[error("{path}")]
    Overlay {
        /// The field that asks for it.
        path: String,
        source: qcow2::Qcow2Error,
    },
    /// A configuration disk could not be made.
    #[error("{path}")]
    Iso {
        /// The field that asks for it.
        path: String,
        source: storage::iso::IsoError,
    },
    /// What an earlier attempt has left could not be removed.
    #[error("{path}: remove {}", file.display())]
    Clear {
        /// The field that asks for a new one.
        path: String,
        file: PathBuf,
        source: std::io::Error,
    },
    /// A file could not be read.
    #[error("{path}: read {}", file.display())]
    Read {
        /// The field that names it.
        path: String,
        file: PathBuf,
        source: std::io::Error,
    },
}

impl VolumeError {
    fn refused(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Refused(Refusal { path: path.into(), problem: problem.into() })
    }
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
    prepared.add_missing(vmi, workshop).await?;
    let kernel_boot = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    if let Some(container) = kernel_boot.and_then(|boot| boot.container.as_ref()) {
        prepared.kernel = Some(images::kernel(container, workshop, &mut prepared.held).await?);
    }
    Ok(prepared)
}

impl Prepared {
    /// Prepares the volumes that are not there yet. Those that are stay untouched: a guest may run on them.
    ///
    /// # Errors
    /// The first volume that cannot be had, by its path; what came before it is there.
    pub async fn add_missing(
        &mut self,
        vmi: &VirtualMachineInstance,
        workshop: &Workshop<'_>,
    ) -> Result<(), VolumeError> {
        for (index, volume) in vmi.spec.volumes.iter().flatten().enumerate() {
            if self.volumes.contains_key(&volume.name) {
                continue;
            }
            let path = format!("spec.volumes[{index}]");
            // Numbered in the order of their making: a name is the user's, and places in the list change.
            let file = workshop.folder.join(format!("volume{}", self.made));
            let source = prepare_volume(&path, file, volume, vmi, workshop, &mut self.held).await?;
            self.made += 1;
            self.volumes.insert(volume.name.clone(), source);
            self.asked.insert(volume.name.clone(), volume.clone());
        }
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

    /// Forgets a volume that the guest has let go of.
    pub(crate) fn remove(&mut self, name: &str) {
        self.volumes.remove(name);
        self.asked.remove(name);
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
    volumes.try_for_each(|(index, volume)| cloud_init::check(&format!("spec.volumes[{index}]"), volume))
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
        let label = map.volume_label.as_deref().unwrap_or("cfgdata");
        let folder = map.name.as_ref().and_then(|name| workshop.places.config_maps.get(name));
        return files_disk(&format!("{path}.configMap"), label, folder, map.optional, &file);
    }
    if let Some(secret) = secret {
        let label = secret.volume_label.as_deref().unwrap_or("cfgdata");
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
