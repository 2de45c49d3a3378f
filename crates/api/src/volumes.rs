//! Where the bytes behind a disk come from.

use k8s_openapi::api::core::v1::{self as core_v1, DownwardAPIVolumeFile, LocalObjectReference};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::enums::open_enum;
use crate::quantity::Quantity;
use crate::schema::core;

/// A data source that a disk or filesystem uses; set one source.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Key by which a disk or filesystem refers to it.
    pub name: String,
    /// Generated cloud-init drive in OpenStack layout.
    pub cloud_init_config_drive: Option<CloudInitConfigDriveSource>,
    /// Generated cloud-init drive in NoCloud layout.
    pub cloud_init_no_cloud: Option<CloudInitNoCloudSource>,
    /// ConfigMap keys as files on an ISO or virtiofs share.
    pub config_map: Option<ConfigMapVolumeSource>,
    /// Disk image from a registry; writes are lost at stop.
    pub container_disk: Option<ContainerDiskSource>,
    /// Directory of the launcher pod, shared by virtiofs.
    pub container_path: Option<ContainerPathVolumeSource>,
    /// PVC that CDI fills from an image, clone or upload.
    pub data_volume: Option<DataVolumeSource>,
    /// Pod labels and other metadata as files.
    #[serde(rename = "downwardAPI")]
    pub downward_api: Option<DownwardAPIVolumeSource>,
    /// Small disk with host metrics in vhostmd format.
    pub downward_metrics: Option<DownwardMetricsVolumeSource>,
    /// Blank scratch disk that lives as long as the instance.
    pub empty_disk: Option<EmptyDiskSource>,
    /// Copy-on-write layer over a PVC; writes are lost at stop.
    pub ephemeral: Option<EphemeralVolumeSource>,
    /// Image file on the node; needs the HostDisk feature gate.
    pub host_disk: Option<HostDisk>,
    /// PVC that receives a dump of guest memory.
    pub memory_dump: Option<MemoryDumpVolumeSource>,
    /// Disk image or block device on an existing PVC.
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    /// Secret keys as files on an ISO or virtiofs share.
    pub secret: Option<SecretVolumeSource>,
    /// Service account token as files for the guest.
    pub service_account: Option<ServiceAccountVolumeSource>,
    /// CD-ROM with answer files for Windows Setup.
    pub sysprep: Option<SysprepSource>,
}

/// A PVC plugged into the launcher pod, not the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UtilityVolume {
    /// Key, unique among volumes and utility volumes.
    pub name: String,
    /// PVC to plug, in the same namespace.
    pub claim_name: String,
    /// Mounts the PVC without write access; false if unset.
    pub read_only: Option<bool>,
    /// Purpose of the PVC, e.g. MemoryDump or Backup.
    pub type_: Option<UtilityVolumeType>,
}

/// Contents of a drive labelled cidata.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudInitNoCloudSource {
    /// Network config inline, as plain text.
    pub network_data: Option<String>,
    /// Network config inline, base64 encoded.
    pub network_data_base64: Option<String>,
    /// Secret whose networkdata key holds the network config.
    #[schemars(with = "Option<core::LocalObjectReference>")]
    pub network_data_secret_ref: Option<LocalObjectReference>,
    /// Secret whose userdata key holds the user data.
    #[schemars(with = "Option<core::LocalObjectReference>")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Inline cloud-config or script, up to 2048 bytes.
    pub user_data: Option<String>,
    /// Inline user data, base64 encoded.
    pub user_data_base64: Option<String>,
}

/// Contents of a drive labelled config-2.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudInitConfigDriveSource {
    /// Network config inline, as plain text.
    pub network_data: Option<String>,
    /// Network config inline, base64 encoded.
    pub network_data_base64: Option<String>,
    /// Secret whose networkdata key holds the network config.
    #[schemars(with = "Option<core::LocalObjectReference>")]
    pub network_data_secret_ref: Option<LocalObjectReference>,
    /// Secret whose userdata key holds the user data.
    #[schemars(with = "Option<core::LocalObjectReference>")]
    pub secret_ref: Option<LocalObjectReference>,
    /// Inline cloud-config or Ignition, up to 2048 bytes.
    pub user_data: Option<String>,
    /// Inline user data, base64 encoded.
    pub user_data_base64: Option<String>,
}

/// A ConfigMap shown to the guest as files.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ConfigMapVolumeSource {
    /// ConfigMap in the same namespace.
    #[schemars(extend("default" = ""))]
    pub name: Option<String>,
    /// Starts even if the ConfigMap or a key is missing.
    pub optional: Option<bool>,
    /// Filesystem label of the generated ISO.
    pub volume_label: Option<String>,
}

/// A Secret shown to the guest as files.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretVolumeSource {
    /// Starts even if the Secret or a key is missing.
    pub optional: Option<bool>,
    /// Secret in the same namespace.
    pub secret_name: Option<String>,
    /// Filesystem label of the generated ISO.
    pub volume_label: Option<String>,
}

/// Credentials for calling the Kubernetes API.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountVolumeSource {
    /// Account in the same namespace, also used by the pod.
    pub service_account_name: Option<String>,
}

/// Pod metadata shown to the guest as files.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DownwardAPIVolumeSource {
    /// Files to create and the pod field each one holds.
    #[schemars(with = "Option<Vec<core::DownwardAPIVolumeFile>>")]
    pub fields: Option<Vec<DownwardAPIVolumeFile>>,
    /// Filesystem label of the generated ISO.
    pub volume_label: Option<String>,
}

/// Empty marker that picks the metrics disk.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DownwardMetricsVolumeSource {}

/// A disk image shipped inside a container image.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerDiskSource {
    /// Registry reference, by tag or digest.
    pub image: String,
    /// Always, IfNotPresent or Never.
    pub image_pull_policy: Option<PullPolicy>,
    /// Secret with registry credentials, same namespace.
    pub image_pull_secret: Option<String>,
    /// Image file in the container; the one under /disk if unset.
    pub path: Option<String>,
}

/// A directory of the compute container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPathVolumeSource {
    /// Absolute path of a mount inside the launcher pod.
    #[schemars(extend("x-kubernetes-validations" = serde_json::json!([{ "message": "path must be absolute (start with '/')", "rule": "self.startsWith('/')" }, { "message": "path must not contain '..'", "rule": "!self.contains('..')" }]), "maxLength" = 4096))]
    pub path: String,
    /// Keeps the guest from writing; true if unset.
    #[schemars(extend("x-kubernetes-validations" = serde_json::json!([{ "message": "readOnly must be true, write access is not supported", "rule": "self == true" }]), "default" = true))]
    pub read_only: Option<bool>,
}

/// Storage owned by a CDI DataVolume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DataVolumeSource {
    /// DataVolume, and its PVC, in the same namespace.
    pub name: String,
    /// Allows unplugging while the guest runs.
    pub hotpluggable: Option<bool>,
}

/// Storage of an existing PVC.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeClaimVolumeSource {
    /// PVC in the same namespace.
    pub claim_name: String,
    /// Allows unplugging while the guest runs.
    pub hotpluggable: Option<bool>,
    /// Mounts the PVC in the pod without write access.
    pub read_only: Option<bool>,
}

/// A throwaway overlay on shared base data.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EphemeralVolumeSource {
    /// Base image; never written to.
    #[schemars(with = "Option<core::PersistentVolumeClaimVolumeSource>")]
    pub persistent_volume_claim: Option<core_v1::PersistentVolumeClaimVolumeSource>,
}

/// A sparse qcow2 file made at start.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct EmptyDiskSource {
    /// Virtual size; fills up only as data is written.
    pub capacity: Quantity,
}

/// A raw image file on the node's own filesystem.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostDisk {
    /// Absolute path of the image on the node.
    pub path: String,
    /// Disk must exist; DiskOrCreate makes it if missing.
    pub type_: HostDiskType,
    /// Size of the sparse file made by DiskOrCreate.
    pub capacity: Option<Quantity>,
    /// States that all nodes see the same path.
    pub shared: Option<bool>,
}

/// Storage that can be added at runtime; set one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HotplugVolumeSource {
    /// Plugs in the PVC of a DataVolume.
    pub data_volume: Option<DataVolumeSource>,
    /// Plugs in an existing PVC.
    pub persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
}

/// Filesystem PVC for a memory dump.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryDumpVolumeSource {
    /// PVC in the same namespace, larger than guest RAM.
    pub claim_name: String,
    /// Always true in practice, as the PVC is plugged at runtime.
    pub hotpluggable: Option<bool>,
    /// Must stay false, since the dump is written here.
    pub read_only: Option<bool>,
}

/// Answer files for unattended Windows setup; set one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SysprepSource {
    /// ConfigMap with autounattend.xml or unattend.xml.
    #[schemars(with = "Option<core::LocalObjectReference>")]
    pub config_map: Option<LocalObjectReference>,
    /// Secret with autounattend.xml or unattend.xml.
    #[schemars(with = "Option<core::LocalObjectReference>")]
    pub secret: Option<LocalObjectReference>,
}

open_enum! {
    /// What a host disk may do about its file.
    pub enum HostDiskType {
        /// The file must exist.
        Disk = "Disk",
        /// The file is made if it is missing.
        DiskOrCreate = "DiskOrCreate",
    }
}

open_enum! {
    /// When an image is pulled.
    pub enum PullPolicy {
        Always = "Always",
        IfNotPresent = "IfNotPresent",
        Never = "Never",
    }
}

open_enum! {
    /// What a utility volume is for.
    pub enum UtilityVolumeType {
        Backup = "Backup",
        MemoryDump = "MemoryDump",
    }
}
