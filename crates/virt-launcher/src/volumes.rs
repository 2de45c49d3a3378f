//! From the volumes of an instance to files and devices that QEMU can open.
//!
//! What a claim, a secret or a config map is on this machine, the caller says: a pod mounts them, `orlop run` is told by
//! flags. Everything that is made here is in the guest's own folder and goes with it.

mod cloud_init;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use api::vmi::VirtualMachineInstance;
use api::volumes::{ContainerDiskSource, HostDisk, HostDiskType, PullPolicy, Volume};
use hypervisor::Refusal;
use hypervisor::resources::{Base, Format, Kernel, Source, SourceKind};
use rustix::fs::{Mode, OFlags};
use storage::cache::{self, Cache, CachedFile};
use storage::image::Reference;
use storage::pull::{Progress, Registries, Wanted};
use storage::{disk, qcow2};

/// Where things that an instance names are on this machine.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Files and block devices behind claims, by the claim's name.
    pub claims: BTreeMap<String, PathBuf>,
    /// Folders with the files of secrets, by the secret's name.
    pub secrets: BTreeMap<String, PathBuf>,
    /// Folders with the files of config maps, by the map's name.
    pub config_maps: BTreeMap<String, PathBuf>,
}

/// What preparing needs besides the instance.
pub struct Workshop<'a> {
    /// The guest's own folder.
    pub folder: &'a Path,
    /// Where claims, secrets and config maps are.
    pub places: &'a Places,
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
        /// Why not.
        source: storage::cache::CacheError,
    },
    /// A reference makes no sense.
    #[error("{path}")]
    Reference {
        /// The field.
        path: String,
        /// Why.
        source: storage::image::ReferenceError,
    },
    /// A disk could not be made or opened.
    #[error("{path}")]
    Disk {
        /// The field that asks for it.
        path: String,
        /// Why not.
        source: disk::DiskError,
    },
    /// An overlay could not be made.
    #[error("{path}")]
    Overlay {
        /// The field that asks for it.
        path: String,
        /// Why not.
        source: qcow2::Qcow2Error,
    },
    /// A configuration disk could not be made.
    #[error("{path}")]
    Iso {
        /// The field that asks for it.
        path: String,
        /// Why not.
        source: storage::iso::IsoError,
    },
    /// A file could not be read.
    #[error("{path}: read {}", file.display())]
    Read {
        /// The field that names it.
        path: String,
        /// The file.
        file: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

impl VolumeError {
    fn refused(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Refused(Refusal { path: path.into(), problem: problem.into() })
    }
}

/// Prepares every volume, and the files of a kernel boot.
///
/// # Errors
/// The first volume that cannot be had, by its path.
pub async fn prepare(vmi: &VirtualMachineInstance, workshop: &Workshop<'_>) -> Result<Prepared, VolumeError> {
    let mut prepared = Prepared::default();
    for (index, volume) in vmi.spec.volumes.iter().flatten().enumerate() {
        let path = format!("spec.volumes[{index}]");
        let source = prepare_volume(&path, index, volume, vmi, workshop, &mut prepared.held).await?;
        prepared.volumes.insert(volume.name.clone(), source);
    }
    let kernel_boot = vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    if let Some(container) = kernel_boot.and_then(|boot| boot.container.as_ref()) {
        let path = "spec.domain.firmware.kernelBoot.container";
        let mut fetch = async |file: Option<&String>| -> Result<Option<PathBuf>, VolumeError> {
            let Some(file) = file else { return Ok(None) };
            let policy = policy(container.image_pull_policy.as_ref());
            let wanted = Wanted::File(file.clone());
            let cached = fetch_image(path, &container.image, &wanted, policy, workshop).await?;
            let place = cached.path().to_owned();
            prepared.held.push(cached);
            Ok(Some(place))
        };
        let kernel = fetch(container.kernel_path.as_ref()).await?;
        let initrd = fetch(container.initrd_path.as_ref()).await?;
        prepared.kernel = Some(Kernel { kernel, initrd });
    }
    Ok(prepared)
}

async fn prepare_volume(
    path: &str,
    index: usize,
    volume: &Volume,
    vmi: &VirtualMachineInstance,
    workshop: &Workshop<'_>,
    held: &mut Vec<CachedFile>,
) -> Result<Source, VolumeError> {
    refuse_unsupported(path, volume)?;
    let Volume { container_disk, empty_disk, ephemeral, host_disk, persistent_volume_claim, data_volume, .. } = volume;
    let Volume { cloud_init_no_cloud, cloud_init_config_drive, config_map, secret, .. } = volume;
    // Numbered, not named: a volume's name is the user's.
    let file = workshop.folder.join(format!("volume{index}"));
    if let Some(container_disk) = container_disk {
        return container(path, container_disk, &file, workshop, held).await;
    }
    if let Some(empty) = empty_disk {
        let path = format!("{path}.emptyDisk.capacity");
        let size = u64::try_from(empty.capacity.amount().units()).unwrap_or(0);
        qcow2::create_empty(&file, size).map_err(|source| VolumeError::Overlay { path, source })?;
        return Ok(overlay(file, None));
    }
    if let Some(host_disk) = host_disk {
        return from_host(path, host_disk);
    }
    if let Some(ephemeral) = ephemeral {
        let name = ephemeral.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str());
        let path = format!("{path}.ephemeral.persistentVolumeClaim");
        let below = claim(&path, name.unwrap_or_default(), workshop.places)?;
        qcow2::create_overlay(&file, &below.disk.path, qcow2::Format::Raw, below.disk.virtual_size)
            .map_err(|source| VolumeError::Overlay { path, source })?;
        return Ok(overlay(file, Some(Base { path: below.disk.path, format: Format::Raw, kind: below.kind })));
    }
    if let Some(claimed) = persistent_volume_claim {
        let path = format!("{path}.persistentVolumeClaim");
        return Ok(claim(&path, &claimed.claim_name, workshop.places)?.source(claimed.read_only == Some(true)));
    }
    if let Some(data_volume) = data_volume {
        // A data volume fills a claim of its own name.
        return Ok(claim(&format!("{path}.dataVolume"), &data_volume.name, workshop.places)?.source(false));
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
    Err(VolumeError::refused(path, "says nothing about where its bytes come from"))
}

/// Refuses sources that nothing makes a disk of yet; a new one does not compile until somebody has thought of it.
fn refuse_unsupported(path: &str, volume: &Volume) -> Result<(), VolumeError> {
    let Volume {
        name: _,
        cloud_init_config_drive: _,
        cloud_init_no_cloud: _,
        config_map: _,
        container_disk: _,
        container_path,
        data_volume: _,
        downward_api,
        downward_metrics,
        empty_disk: _,
        ephemeral: _,
        host_disk: _,
        memory_dump,
        persistent_volume_claim: _,
        secret: _,
        service_account,
        sysprep,
    } = volume;
    for (name, set) in [
        ("containerPath", container_path.is_some()),
        ("downwardAPI", downward_api.is_some()),
        ("downwardMetrics", downward_metrics.is_some()),
        ("memoryDump", memory_dump.is_some()),
        ("serviceAccount", service_account.is_some()),
        ("sysprep", sysprep.is_some()),
    ] {
        if set {
            return Err(VolumeError::refused(format!("{path}.{name}"), "is not supported yet; remove it"));
        }
    }
    Ok(())
}

async fn container(
    path: &str,
    disk: &ContainerDiskSource,
    file: &Path,
    workshop: &Workshop<'_>,
    held: &mut Vec<CachedFile>,
) -> Result<Source, VolumeError> {
    let path = format!("{path}.containerDisk");
    let wanted = Wanted::Disk(disk.path.clone());
    let cached = fetch_image(&path, &disk.image, &wanted, policy(disk.image_pull_policy.as_ref()), workshop).await?;
    qcow2::create_overlay(file, cached.path(), cached.format(), cached.virtual_size())
        .map_err(|source| VolumeError::Overlay { path, source })?;
    let format = match cached.format() {
        qcow2::Format::Raw => Format::Raw,
        qcow2::Format::Qcow2 => Format::Qcow2,
    };
    let base = Base { path: cached.path().to_owned(), format, kind: SourceKind::File };
    held.push(cached);
    Ok(overlay(file.to_owned(), Some(base)))
}

async fn fetch_image(
    path: &str,
    image: &str,
    wanted: &Wanted,
    policy: cache::PullPolicy,
    workshop: &Workshop<'_>,
) -> Result<CachedFile, VolumeError> {
    let reference: Reference =
        image.parse().map_err(|source| VolumeError::Reference { path: format!("{path}.image"), source })?;
    let Workshop { cache, registries, progress, .. } = workshop;
    let fetched = match wanted {
        Wanted::Disk(path) => cache.disk(&reference, path.as_deref(), policy, registries, *progress).await,
        Wanted::File(path) => cache.file(&reference, path, policy, registries, *progress).await,
    };
    fetched.map_err(|source| VolumeError::Image { path: format!("{path}.image"), source })
}

/// What is not known is treated as what is usual: pull what is not here.
fn policy(policy: Option<&PullPolicy>) -> cache::PullPolicy {
    match policy {
        Some(PullPolicy::Always) => cache::PullPolicy::Always,
        Some(PullPolicy::Never) => cache::PullPolicy::Never,
        None | Some(PullPolicy::IfNotPresent | PullPolicy::Other(_)) => cache::PullPolicy::IfNotPresent,
    }
}

fn from_host(path: &str, host_disk: &HostDisk) -> Result<Source, VolumeError> {
    let kind = match &host_disk.type_ {
        HostDiskType::Disk => disk::HostDisk::Disk,
        HostDiskType::DiskOrCreate => disk::HostDisk::DiskOrCreate,
        HostDiskType::Other(other) => {
            let problem = format!("{other:?} is none of {}", HostDiskType::KNOWN.join(", "));
            return Err(VolumeError::refused(format!("{path}.hostDisk.type"), problem));
        }
    };
    let capacity = host_disk.capacity.as_ref().map_or(0, |capacity| capacity.amount().units());
    let capacity = u64::try_from(capacity).unwrap_or(0);
    let disk = disk::host_disk(Path::new(&host_disk.path), kind, capacity)
        .map_err(|source| VolumeError::Disk { path: format!("{path}.hostDisk"), source })?;
    Ok(Claimed { disk, kind: SourceKind::File }.source(false))
}

/// What a claim is on this machine.
struct Claimed {
    disk: disk::Disk,
    kind: SourceKind,
}

impl Claimed {
    fn source(self, read_only: bool) -> Source {
        let direct_io = takes_direct_io(&self.disk.path);
        Source { path: self.disk.path, format: Format::Raw, kind: self.kind, base: None, read_only, direct_io }
    }
}

/// A claim is a block device, a file, or a folder that holds a file `disk.img`. Its bytes are the guest's: always raw.
fn claim(path: &str, name: &str, places: &Places) -> Result<Claimed, VolumeError> {
    let Some(place) = places.claims.get(name) else {
        return Err(VolumeError::refused(path, format!("there is no claim {name:?} on this machine")));
    };
    let failed = |source| VolumeError::Disk { path: path.to_owned(), source };
    let place = if place.is_dir() { place.join("disk.img") } else { place.clone() };
    match disk::block_device(&place) {
        Ok(disk) => Ok(Claimed { disk, kind: SourceKind::Block }),
        Err(_) => Ok(Claimed { disk: disk::raw_file(&place).map_err(failed)?, kind: SourceKind::File }),
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
        None => return Err(VolumeError::refused(path, "is not on this machine")),
    };
    storage::cloud_init::config_disk(file, label, &files)
        .map_err(|source| VolumeError::Iso { path: path.to_owned(), source })?;
    Ok(image(file.to_owned()))
}

/// The regular files of a folder. What a pod mounts has links and folders of its own beside them, under `..` names.
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

fn overlay(path: PathBuf, base: Option<Base>) -> Source {
    // The whole chain is opened in one way.
    let direct_io = takes_direct_io(&path) && base.as_ref().is_none_or(|base| takes_direct_io(&base.path));
    Source { path, format: Format::Qcow2, kind: SourceKind::File, base, read_only: false, direct_io }
}

/// Whether a file can be read around the host's cache; file systems in memory cannot.
fn takes_direct_io(path: &Path) -> bool {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

/// A disk that was made here for this guest alone. It may be written to: a SATA disk cannot be read-only, and nobody
/// reads it again.
fn image(path: PathBuf) -> Source {
    Source { path, format: Format::Raw, kind: SourceKind::File, base: None, read_only: false, direct_io: false }
}
