//! Where the bytes of disks come from.

use api::quantity::Quantity;
use api::volumes::{
    CloudInitConfigDriveSource, CloudInitNoCloudSource, ConfigMapVolumeSource, ContainerDiskSource, DataVolumeSource,
    EmptyDiskSource, EphemeralVolumeSource, HostDisk, HostDiskType, PersistentVolumeClaimVolumeSource, PullPolicy,
    SecretVolumeSource, Volume,
};

use super::disks::NO_METRICS;
use super::sheet::Sheet;
use crate::config::Gate;

const NO_HOTPLUG: &str = "attach the volume from the start, without hotpluggable";
const USE_FILES: &str = "use configMap or secret";
/// The largest disk that a qcow2 file describes in the table that we write.
const MOST_BYTES: i128 = 1 << 51;
/// What a CD can be called.
const LABEL: &str = "at most 32 printable ASCII characters";

pub(super) fn place(sheet: &mut Sheet<'_>, volume: &Volume) {
    let Volume {
        name,
        cloud_init_config_drive,
        cloud_init_no_cloud,
        config_map: config_map_of_it,
        container_disk: container_disk_of_it,
        container_path,
        data_volume,
        downward_api,
        downward_metrics,
        empty_disk,
        ephemeral,
        host_disk: host_disk_of_it,
        memory_dump,
        persistent_volume_claim,
        secret: secret_of_it,
        service_account,
        sysprep,
    } = volume;
    sheet.works("name", name);
    sheet.part("cloudInitConfigDrive", cloud_init_config_drive.as_ref(), config_drive);
    sheet.part("cloudInitNoCloud", cloud_init_no_cloud.as_ref(), no_cloud);
    sheet.part("configMap", config_map_of_it.as_ref(), config_map);
    sheet.part("containerDisk", container_disk_of_it.as_ref(), container_disk);
    sheet.unsupported("containerPath", "copy the files into a config map or secret", container_path.is_some());
    sheet.part("dataVolume", data_volume.as_ref(), |sheet, DataVolumeSource { name, hotpluggable }| {
        sheet.works("name", name);
        sheet.unsupported("hotpluggable", NO_HOTPLUG, *hotpluggable == Some(true));
    });
    sheet.unsupported("downwardAPI", USE_FILES, downward_api.is_some());
    sheet.unsupported("downwardMetrics", NO_METRICS, downward_metrics.is_some());
    sheet.part("emptyDisk", empty_disk.as_ref(), |sheet, EmptyDiskSource { capacity }| {
        sheet.within("capacity", "greater than 0, at most 2Pi", out_of_range(capacity));
    });
    sheet.part("ephemeral", ephemeral.as_ref(), |sheet, EphemeralVolumeSource { persistent_volume_claim }| {
        sheet.works("persistentVolumeClaim", persistent_volume_claim);
    });
    sheet.gated("hostDisk", Gate::HostDisk, host_disk_of_it.is_some());
    sheet.part("hostDisk", host_disk_of_it.as_ref(), host_disk);
    sheet.unsupported("memoryDump", "remove it", memory_dump.is_some());
    sheet.part("persistentVolumeClaim", persistent_volume_claim.as_ref(), claim);
    sheet.part("secret", secret_of_it.as_ref(), secret);
    let token = "use a secret that contains a token";
    sheet.unsupported("serviceAccount", token, service_account.is_some());
    sheet.unsupported("sysprep", USE_FILES, sysprep.is_some());
}

fn config_drive(sheet: &mut Sheet<'_>, source: &CloudInitConfigDriveSource) {
    let CloudInitConfigDriveSource {
        network_data,
        network_data_base64,
        network_data_secret_ref,
        secret_ref,
        user_data,
        user_data_base64,
    } = source;
    sheet.works("networkData", network_data);
    sheet.works("networkDataBase64", network_data_base64);
    sheet.works("networkDataSecretRef", network_data_secret_ref);
    sheet.works("secretRef", secret_ref);
    sheet.works("userData", user_data);
    sheet.works("userDataBase64", user_data_base64);
}

fn no_cloud(sheet: &mut Sheet<'_>, source: &CloudInitNoCloudSource) {
    let CloudInitNoCloudSource {
        network_data,
        network_data_base64,
        network_data_secret_ref,
        secret_ref,
        user_data,
        user_data_base64,
    } = source;
    sheet.works("networkData", network_data);
    sheet.works("networkDataBase64", network_data_base64);
    sheet.works("networkDataSecretRef", network_data_secret_ref);
    sheet.works("secretRef", secret_ref);
    sheet.works("userData", user_data);
    sheet.works("userDataBase64", user_data_base64);
}

fn config_map(sheet: &mut Sheet<'_>, source: &ConfigMapVolumeSource) {
    let ConfigMapVolumeSource { name, optional, volume_label } = source;
    sheet.works("name", name);
    sheet.works("optional", optional);
    sheet.within("volumeLabel", LABEL, label_problem(volume_label.as_deref()));
}

fn secret(sheet: &mut Sheet<'_>, source: &SecretVolumeSource) {
    let SecretVolumeSource { optional, secret_name, volume_label } = source;
    sheet.works("optional", optional);
    sheet.works("secretName", secret_name);
    sheet.within("volumeLabel", LABEL, label_problem(volume_label.as_deref()));
}

fn container_disk(sheet: &mut Sheet<'_>, source: &ContainerDiskSource) {
    let ContainerDiskSource { image, image_pull_policy, image_pull_secret, path } = source;
    sheet.works("image", image);
    sheet.words("imagePullPolicy", image_pull_policy.as_ref().map(PullPolicy::as_str), PullPolicy::KNOWN);
    sheet.works("imagePullSecret", image_pull_secret);
    sheet.works("path", path);
}

fn host_disk(sheet: &mut Sheet<'_>, disk: &HostDisk) {
    let HostDisk { path, type_, capacity, shared } = disk;
    sheet.needs_node("path", "the file, or a directory to create it in", path);
    sheet.words("type", Some(type_.as_str()), HostDiskType::KNOWN);
    sheet.works("capacity", capacity);
    sheet.not_acted_on("shared", "informational only", shared);
}

fn claim(sheet: &mut Sheet<'_>, claim: &PersistentVolumeClaimVolumeSource) {
    let PersistentVolumeClaimVolumeSource { claim_name, hotpluggable, read_only } = claim;
    sheet.works("claimName", claim_name);
    sheet.unsupported("hotpluggable", NO_HOTPLUG, *hotpluggable == Some(true));
    sheet.works("readOnly", read_only);
}

/// What is wrong with the label of a disk with files. An empty one is as good as none.
fn label_problem(label: Option<&str>) -> Option<String> {
    let fits = |label: &&str| label.len() <= 32 && label.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let label = label.filter(|label| !fits(label))?;
    Some(format!("{label:?} is not a valid label; use {LABEL}"))
}

fn out_of_range(capacity: &Quantity) -> Option<String> {
    let wrong = !(1..=MOST_BYTES).contains(&capacity.amount().units());
    wrong.then(|| format!("{capacity} is out of range; use a size such as 2Gi"))
}
