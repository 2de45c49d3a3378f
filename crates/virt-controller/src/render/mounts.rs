//! Volumes of the pod and where the compute container sees them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Volume, VolumeDevice, VolumeMount};

/// What has been gathered so far, in the order in which it will stand in the pod.
#[derive(Clone, Debug, Default)]
pub(super) struct Mounts {
    pub(super) volumes: Vec<Volume>,
    pub(super) mounts: Vec<VolumeMount>,
    pub(super) devices: Vec<VolumeDevice>,
    /// Where the launcher finds claims, by the claim's name.
    pub(super) claims: BTreeMap<String, String>,
    /// Where it finds the files of secrets, by the secret's name.
    pub(super) secrets: BTreeMap<String, String>,
    /// Where it finds the files of config maps, by the map's name.
    pub(super) config_maps: BTreeMap<String, String>,
    /// Where it finds the folders of host disks, by the volume's name.
    pub(super) host_disks: BTreeMap<String, String>,
    /// Where it finds container disks, by the volume's name.
    pub(super) container_disks: BTreeMap<String, String>,
    /// Where it finds the image with the guest's kernel.
    pub(super) kernel_boot: Option<String>,
}

/// Whether the compute container may write to a mount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Access {
    ReadOnly,
    ReadWrite,
}

impl Mounts {
    /// An empty folder that lives as long as the pod.
    pub(super) fn empty_dir(&mut self, name: &str, path: &str) {
        let empty_dir = Some(EmptyDirVolumeSource::default());
        self.mount(Volume { name: name.to_owned(), empty_dir, ..Volume::default() }, path, Access::ReadWrite);
    }

    /// A volume, and where it is seen.
    pub(super) fn mount(&mut self, volume: Volume, path: &str, access: Access) {
        self.mounts.push(VolumeMount {
            name: volume.name.clone(),
            mount_path: path.to_owned(),
            read_only: (access == Access::ReadOnly).then_some(true),
            ..VolumeMount::default()
        });
        self.volumes.push(volume);
    }

    /// A volume that is a device, and where it is seen.
    pub(super) fn device(&mut self, volume: Volume, path: &str) {
        self.devices.push(VolumeDevice { name: volume.name.clone(), device_path: path.to_owned() });
        self.volumes.push(volume);
    }
}
