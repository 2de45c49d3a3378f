//! Container disks and kernels: from images that are mounted already, or else are pulled.

use std::path::{Path, PathBuf};

use api::firmware::KernelBootContainer;
use api::volumes::{ContainerDiskSource, PullPolicy, Volume};
use hypervisor::wiring::{Format, Kernel, Layer, Source, SourceKind};
use storage::cache::{self, CachedFile};
use storage::image::Reference;
use storage::pull::{Limits, Wanted};
use storage::{mounted, qcow2};

use super::{VolumeError, Workshop, overlay};

/// The disk of an image, below an overlay for what the guest writes.
pub(super) async fn container_disk(
    path: &str,
    volume: &Volume,
    disk: &ContainerDiskSource,
    file: &Path,
    workshop: &Workshop<'_>,
    held: &mut Vec<CachedFile>,
) -> Result<Source, VolumeError> {
    let path = format!("{path}.containerDisk");
    let (below, format, size) = match workshop.places.container_disks.get(&volume.name) {
        Some(place) => {
            let found = mounted::disk(place, disk.path.as_deref(), &Limits::default())
                .map_err(|source| VolumeError::Mounted { path: path.clone(), source })?;
            (found.path, found.format, found.virtual_size)
        }
        None => {
            let wanted = Wanted::Disk(disk.path.clone());
            let policy = policy(disk.image_pull_policy.as_ref());
            let cached = pull(&path, &disk.image, &wanted, policy, workshop).await?;
            let found = (cached.path().to_owned(), cached.format(), cached.virtual_size());
            held.push(cached);
            found
        }
    };
    qcow2::create_overlay(file, &below, format, size).map_err(|source| VolumeError::Overlay { path, source })?;
    let format = match format {
        qcow2::Format::Raw => Format::Raw,
        qcow2::Format::Qcow2 => Format::Qcow2,
    };
    Ok(overlay(file.to_owned(), vec![Layer { path: below, format, kind: SourceKind::File }]))
}

/// The files of a direct kernel boot.
pub(super) async fn kernel(
    container: &KernelBootContainer,
    workshop: &Workshop<'_>,
    held: &mut Vec<CachedFile>,
) -> Result<Kernel, VolumeError> {
    let path = "spec.domain.firmware.kernelBoot.container";
    let mut find = async |file: Option<&String>| -> Result<Option<PathBuf>, VolumeError> {
        let Some(file) = file else { return Ok(None) };
        if let Some(place) = &workshop.places.kernel {
            // The whole image, or where images cannot be mounted the files alone.
            let name = file.rsplit('/').next().unwrap_or_default();
            let found = mounted::file(place, file).or_else(|error| mounted::file(place, name).map_err(|_| error));
            return found.map(Some).map_err(|source| VolumeError::Mounted { path: path.to_owned(), source });
        }
        let policy = policy(container.image_pull_policy.as_ref());
        let cached = pull(path, &container.image, &Wanted::File(file.clone()), policy, workshop).await?;
        let place = cached.path().to_owned();
        held.push(cached);
        Ok(Some(place))
    };
    let kernel = find(container.kernel_path.as_ref()).await?;
    let initrd = find(container.initrd_path.as_ref()).await?;
    Ok(Kernel { kernel, initrd })
}

async fn pull(
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
