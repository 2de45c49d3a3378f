//! Disks and kernels that come in container images.
//!
//! Where nodes can mount images, each is a volume and nothing else runs. Elsewhere each image is a container that holds
//! its files open, as KubeVirt does it: a program is copied into an empty folder, run in the image to have it pulled
//! before the launcher starts, and run again to offer its files until the pod ends.

use std::collections::BTreeMap;

use api::quantity::{Amount, Quantity};
use api::volumes::PullPolicy;
use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, ImageVolumeSource, ResourceRequirements, Volume, VolumeMount,
};
use launcher_api::names::{self, CONTAINER_DISKS, KERNEL_BOOT};

use super::mounts::{Access, Mounts};
use super::overhead::wants_guaranteed;
use super::{Input, PROGRAM, cpu, resources, security};

/// The volume with the program that offers an image's files.
pub(super) const PROGRAM_FOLDER: &str = "virt-bin-share-dir";
/// Where that image is seen.
const KERNEL_PATH: &str = "/var/run/kubevirt-kernel-boot";
/// Where images with disks are seen, by the index of their volume.
const IMAGES_PATH: &str = "/var/run/kubevirt-image-volume";

/// What the pod needs besides volumes.
#[derive(Debug, Default)]
pub(super) struct Disks {
    pub(super) init_containers: Vec<Container>,
    pub(super) containers: Vec<Container>,
    pub(super) pull_secrets: Vec<String>,
}

struct Image<'a> {
    volume: &'a str,
    reference: &'a str,
    policy: Option<&'a PullPolicy>,
    secret: Option<&'a String>,
    /// The last part of its path.
    place: String,
}

/// The images of an instance, mounted or held by containers.
pub(super) fn container_disks(input: &Input<'_>, mounts: &mut Mounts) -> Disks {
    let images = images(input);
    let pull_secrets = images.iter().filter_map(|image| image.secret.cloned()).collect();
    let mut disks = Disks { pull_secrets, ..Disks::default() };
    if images.is_empty() {
        return disks;
    }
    if input.mounts_images() {
        images.iter().for_each(|image| mount(image, mounts));
        return disks;
    }
    disks.init_containers.push(program(input));
    let directories = &input.launcher.directories;
    mounts.empty_dir(CONTAINER_DISKS, &directories.container_disks);
    // virt-handler mounts the disks there after the container has started.
    if let Some(last) = mounts.mounts.last_mut() {
        last.mount_propagation = Some("HostToContainer".to_owned());
    }
    let empty_dir = Some(EmptyDirVolumeSource::default());
    mounts.volumes.push(Volume { name: PROGRAM_FOLDER.to_owned(), empty_dir, ..Volume::default() });
    for image in &images {
        disks.init_containers.push(hold(input, image, "-init", &["--no-op".to_owned()]));
        let place = format!("{}/container-disk-data/{}/{}", directories.ephemeral_disks, input.uid(), image.place);
        disks.containers.push(hold(input, image, "", &["--copy-path".to_owned(), place]));
        if image.volume == KERNEL_BOOT {
            mounts.kernel_boot = Some(format!("{}/{KERNEL_BOOT}", directories.container_disks));
        } else {
            let path = format!("{}/{}.img", directories.container_disks, image.place);
            mounts.container_disks.insert(image.volume.to_owned(), path);
        }
    }
    disks
}

fn images<'a>(input: &Input<'a>) -> Vec<Image<'a>> {
    let volumes = input.vmi.spec.volumes.iter().flatten().enumerate();
    let disks = volumes.filter_map(|(index, volume)| {
        let disk = volume.container_disk.as_ref()?;
        Some(Image {
            volume: &volume.name,
            reference: &disk.image,
            policy: disk.image_pull_policy.as_ref(),
            secret: disk.image_pull_secret.as_ref(),
            place: names::container_disk(index),
        })
    });
    let boot = input.vmi.spec.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
    let kernel = boot.and_then(|boot| boot.container.as_ref()).map(|container| Image {
        volume: KERNEL_BOOT,
        reference: &container.image,
        policy: container.image_pull_policy.as_ref(),
        secret: container.image_pull_secret.as_ref(),
        place: KERNEL_BOOT.to_owned(),
    });
    disks.chain(kernel).collect()
}

fn mount(image: &Image<'_>, mounts: &mut Mounts) {
    let source =
        ImageVolumeSource { reference: Some(image.reference.to_owned()), pull_policy: Some(pull_policy(image)) };
    let volume = Volume { name: image.volume.to_owned(), image: Some(source), ..Volume::default() };
    let path =
        if image.volume == KERNEL_BOOT { KERNEL_PATH.to_owned() } else { format!("{IMAGES_PATH}/{}", image.place) };
    mounts.mount(volume, &path, Access::ReadOnly);
    if image.volume == KERNEL_BOOT {
        mounts.kernel_boot = Some(path);
    } else {
        mounts.container_disks.insert(image.volume.to_owned(), path);
    }
}

/// Kubernetes' own rule, said aloud: what can change under its tag is pulled each time.
fn pull_policy(image: &Image<'_>) -> String {
    if let Some(policy) = image.policy.filter(|policy| !policy.as_str().is_empty()) {
        return policy.to_string();
    }
    let name = image.reference.rsplit('/').next().unwrap_or_default();
    let pinned = name.contains('@') || name.split_once(':').is_some_and(|(_, tag)| tag != "latest");
    if pinned { PullPolicy::IfNotPresent.to_string() } else { PullPolicy::Always.to_string() }
}

/// Copies the program that will run inside the images.
fn program(input: &Input<'_>) -> Container {
    Container {
        name: "container-disk-binary".to_owned(),
        image: Some(input.launcher.image.clone()),
        image_pull_policy: Some(input.pull_policy()),
        command: Some(
            [PROGRAM, "container-disk", "--install", "/init/usr/bin/container-disk"].map(str::to_owned).into(),
        ),
        volume_mounts: Some(vec![program_mount("/init/usr/bin", false)]),
        resources: Some(helper_resources(input)),
        security_context: Some(security::helper()),
        ..Container::default()
    }
}

fn hold(input: &Input<'_>, image: &Image<'_>, suffix: &str, arguments: &[String]) -> Container {
    let folder = format!("{}/container-disk-data/{}", input.launcher.directories.ephemeral_disks, input.uid());
    let offered = VolumeMount { name: CONTAINER_DISKS.to_owned(), mount_path: folder, ..VolumeMount::default() };
    Container {
        name: format!("volume{}{suffix}", image.volume),
        image: Some(image.reference.to_owned()),
        image_pull_policy: Some(pull_policy(image)),
        command: Some(vec!["/usr/bin/container-disk".to_owned()]),
        args: Some(arguments.to_vec()),
        volume_mounts: Some(vec![program_mount("/usr/bin", true), offered]),
        resources: Some(helper_resources(input)),
        security_context: Some(security::helper()),
        ..Container::default()
    }
}

fn program_mount(path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: PROGRAM_FOLDER.to_owned(),
        mount_path: path.to_owned(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// The cluster's choice, else little; as much as the limit where the pod is to be Guaranteed.
fn helper_resources(input: &Input<'_>) -> ResourceRequirements {
    let list = |cpu: i64, memory: i64| {
        BTreeMap::from([("cpu".to_owned(), Amount::milli(cpu)), ("memory".to_owned(), Amount::from(memory))])
    };
    let chosen = input.config.support_container("container-disk");
    let amounts = |list: &BTreeMap<String, Quantity>| -> BTreeMap<String, Amount> {
        list.iter().map(|(name, quantity)| (name.clone(), quantity.amount())).collect()
    };
    let mut limits = list(100, 40_000_000);
    limits.extend(chosen.and_then(|chosen| chosen.limits.as_ref()).map(amounts).unwrap_or_default());
    let mut requests = list(10, 1_000_000);
    requests.extend(chosen.and_then(|chosen| chosen.requests.as_ref()).map(amounts).unwrap_or_default());
    if cpu::is_dedicated(input.vmi) || wants_guaranteed(input.vmi) {
        requests.clone_from(&limits);
    }
    // A mistake in the CR must not keep every guest from starting.
    for (name, request) in &mut requests {
        *request = limits.get(name).map_or(*request, |limit| (*request).min(*limit));
    }
    ResourceRequirements { requests: resources::write(requests), limits: resources::write(limits), claims: None }
}

#[cfg(test)]
mod tests;
