//! DataVolumes of the Containerized Data Importer, as far as VMs embed and use them.

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaimSpec, TypedLocalObjectReference, TypedObjectReference, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::conditions::ConditionStatus;
use crate::enums::{closed_enum, open_enum};
use crate::nullable::Nullable;
use crate::resource::resource;
use crate::schema;
use crate::schema::core;

/// A claim and the data that it is filled with.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct DataVolume {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// The claim, and where its data comes from.
    pub spec: DataVolumeSpec,
    /// How far it is.
    pub status: Option<DataVolumeStatus>,
}

resource!(DataVolume is namespaced "datavolumes" of "cdi.kubevirt.io" in "v1beta1" with { spec, status });

/// How far a DataVolume is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeStatus {
    /// Name of the claim.
    pub claim_name: Option<String>,
    /// Bound, Running and Ready, each with its cause.
    pub conditions: Option<Vec<DataVolumeCondition>>,
    /// How far it is, in a word.
    pub phase: Option<DataVolumePhase>,
    /// How much of the data has arrived, such as 42.00%; N/A if nobody knows.
    pub progress: Option<String>,
    /// How often the import was started again.
    pub restart_count: Option<i32>,
}

/// One aspect of a DataVolume's state.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeCondition {
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Bound, Running or Ready.
    pub type_: String,
    /// When somebody last looked.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_heartbeat_time: Nullable<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_transition_time: Nullable<Time>,
    /// Details of the last change, for people to read.
    pub message: Option<String>,
    /// CamelCase word for the cause of the last change.
    pub reason: Option<String>,
}

open_enum! {
    /// How far a DataVolume is.
    pub enum DataVolumePhase {
        /// Nobody has looked at it yet.
        Unset = "",
        /// Its claim is not bound yet.
        Pending = "Pending",
        /// Its claim is bound, and nothing else has happened yet.
        PvcBound = "PVCBound",
        /// The pod that imports its data does not run yet.
        ImportScheduled = "ImportScheduled",
        /// Its data is being imported.
        ImportInProgress = "ImportInProgress",
        /// What it is copied from is not ready yet.
        CloneScheduled = "CloneScheduled",
        /// Its claim is being copied from another claim.
        CsiCloneInProgress = "CSICloneInProgress",
        /// Its claim is being made from a snapshot.
        CloneFromSnapshotSourceInProgress = "CloneFromSnapshotSourceInProgress",
        /// Its data is there.
        Succeeded = "Succeeded",
        /// Its data will not come.
        Failed = "Failed",
        /// Its claim is bound only when a pod uses it.
        WaitForFirstConsumer = "WaitForFirstConsumer",
        /// Its claim is filled when a pod uses it.
        PendingPopulation = "PendingPopulation",
    }
}

/// A PVC to create and the data CDI fills it with.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSpec {
    /// Snapshots copied one after another in a warm migration.
    pub checkpoints: Option<Vec<DataVolumeCheckpoint>>,
    /// kubevirt (default) for a disk image, archive for a tar of files.
    pub content_type: Option<DataVolumeContentType>,
    /// Whether the last checkpoint listed completes the import.
    pub final_checkpoint: Option<bool>,
    /// Allocates all blocks up front; cluster setting if unset.
    pub preallocation: Option<bool>,
    /// Priority of the import, clone and upload pods.
    pub priority_class_name: Option<String>,
    /// Claim as given, without defaults; excludes storage.
    #[schemars(with = "Option<core::PersistentVolumeClaimSpec>")]
    pub pvc: Option<PersistentVolumeClaimSpec>,
    /// Where the data comes from; excludes sourceRef.
    pub source: Option<DataVolumeSource>,
    /// DataSource that in turn names the data; excludes source.
    pub source_ref: Option<DataVolumeSourceRef>,
    /// Claim with gaps filled from the StorageProfile; excludes pvc.
    pub storage: Option<StorageSpec>,
}

/// Origin of the data; set exactly one member.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DataVolumeSource {
    /// Starts with an empty disk.
    pub blank: Option<DataVolumeBlankImage>,
    /// Imports from a Google Cloud Storage bucket.
    pub gcs: Option<DataVolumeSourceGCS>,
    /// Imports from a web server.
    pub http: Option<DataVolumeSourceHTTP>,
    /// Imports a disk from oVirt.
    pub imageio: Option<DataVolumeSourceImageIO>,
    /// Clones an existing PVC.
    pub pvc: Option<DataVolumeSourcePVC>,
    /// Imports a container disk from an image registry.
    pub registry: Option<DataVolumeSourceRegistry>,
    /// Imports from an S3 bucket.
    pub s3: Option<DataVolumeSourceS3>,
    /// Clones a CSI VolumeSnapshot.
    pub snapshot: Option<DataVolumeSourceSnapshot>,
    /// Waits for a client such as virtctl image-upload.
    pub upload: Option<DataVolumeSourceUpload>,
    /// Imports a disk from VMware vSphere.
    pub vddk: Option<DataVolumeSourceVDDK>,
}

/// Points at an object that names the data's origin.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DataVolumeSourceRef {
    /// Name of the DataSource.
    pub name: String,
    /// Kind referred to; only DataSource is supported.
    pub kind: String,
    /// Namespace of the DataSource; that of the DataVolume if unset.
    pub namespace: Option<String>,
}

/// An image or archive on a web server.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceHTTP {
    /// Address of the file, http or https.
    pub url: String,
    /// ConfigMap with CA certificates to trust.
    pub cert_config_map: Option<String>,
    /// What the file must hash to, such as sha256: and 64 hex digits; md5, sha1 and sha512 are known, too.
    pub checksum: Option<String>,
    /// Request headers, each as Name: value.
    pub extra_headers: Option<Vec<String>>,
    /// Secrets whose values are sent as request headers.
    pub secret_extra_headers: Option<Vec<String>>,
    /// Secret with accessKeyId and secretKey for basic authentication.
    pub secret_ref: Option<String>,
}

/// An image or archive in an S3 bucket.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceS3 {
    /// Address of the object, bucket included.
    pub url: String,
    /// ConfigMap with CA certificates to trust.
    pub cert_config_map: Option<String>,
    /// Secret with accessKeyId and secretKey.
    pub secret_ref: Option<String>,
}

/// An image or archive in Google Cloud Storage.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceGCS {
    /// Address of the object, bucket included.
    pub url: String,
    /// Secret with the service account key; anonymous if unset.
    pub secret_ref: Option<String>,
}

/// A disk image inside a container image.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceRegistry {
    /// ConfigMap with CA certificates of the registry.
    pub cert_config_map: Option<String>,
    /// OpenShift ImageStream to use in place of url; needs pullMethod node.
    pub image_stream: Option<String>,
    /// Variant to choose from a multi-platform image.
    pub platform: Option<PlatformOptions>,
    /// Who pulls: pod (default), the importer itself, or node, its runtime.
    pub pull_method: Option<String>,
    /// Secret with accessKeyId and secretKey for the registry.
    pub secret_ref: Option<String>,
    /// Image address, starting with docker:// or oci-archive://.
    pub url: Option<String>,
}

/// Which variant of a multi-platform image to take.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PlatformOptions {
    /// CPU architecture, such as amd64 or arm64.
    pub architecture: Option<String>,
}

/// A claim to clone.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DataVolumeSourcePVC {
    /// PVC to copy; should not be in use.
    pub name: String,
    /// Namespace of the PVC; may differ if RBAC permits.
    pub namespace: String,
}

/// A CSI VolumeSnapshot to clone.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DataVolumeSourceSnapshot {
    /// VolumeSnapshot to copy from.
    pub name: String,
    /// Namespace of the VolumeSnapshot; may differ if RBAC permits.
    pub namespace: String,
}

/// Data sent by a client; has no settings.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DataVolumeSourceUpload {}

/// An empty disk; has no settings.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DataVolumeBlankImage {}

/// A disk in oVirt, read through its ImageIO service.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceImageIO {
    /// ID of the disk in oVirt.
    pub disk_id: String,
    /// API address of the oVirt engine.
    pub url: String,
    /// ConfigMap with the CA certificate of the engine.
    pub cert_config_map: Option<String>,
    /// Accepts any TLS certificate; for tests only.
    pub insecure_skip_verify: Option<bool>,
    /// Secret with accessKeyId and secretKey for the engine login.
    pub secret_ref: Option<String>,
}

/// A vSphere disk, read through VMware's VDDK library.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataVolumeSourceVDDK {
    /// Datastore path of the VMDK file.
    pub backing_file: Option<String>,
    /// ConfigMap with additional VDDK library settings.
    pub extra_args: Option<String>,
    /// Container image that carries the VDDK library.
    #[serde(rename = "initImageURL")]
    pub init_image_url: Option<String>,
    /// Secret with accessKeyId and secretKey for the vSphere login.
    pub secret_ref: Option<String>,
    /// SHA-1 fingerprint of the server's TLS certificate.
    pub thumbprint: Option<String>,
    /// SDK address of the vCenter or ESXi host.
    pub url: Option<String>,
    /// UUID of the VM in vSphere that owns the disk.
    pub uuid: Option<String>,
}

/// One step of a warm migration.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DataVolumeCheckpoint {
    /// Snapshot to copy in this step.
    pub current: String,
    /// Snapshot or change ID to copy the difference from; empty at first.
    pub previous: String,
}

/// A claim whose gaps CDI fills from the StorageProfile.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageSpec {
    /// Such as ReadWriteMany; from the StorageProfile if unset.
    pub access_modes: Option<Vec<String>>,
    /// Existing PVC or VolumeSnapshot that Kubernetes populates from.
    #[schemars(with = "Option<core::TypedLocalObjectReference>")]
    pub data_source: Option<TypedLocalObjectReference>,
    /// Like dataSource, but for populators of any kind.
    #[schemars(with = "Option<core::TypedObjectReference>")]
    pub data_source_ref: Option<TypedObjectReference>,
    /// Requested size; CDI adds file system overhead.
    #[schemars(with = "Option<core::VolumeResourceRequirements>")]
    pub resources: Option<VolumeResourceRequirements>,
    /// Labels a preprovisioned volume must have.
    #[schemars(with = "Option<core::LabelSelector>")]
    pub selector: Option<LabelSelector>,
    /// Class to provision from; the virtualization default if unset.
    pub storage_class_name: Option<String>,
    /// Block or Filesystem; from the StorageProfile if unset.
    pub volume_mode: Option<VolumeMode>,
    /// Existing PersistentVolume to bind to.
    pub volume_name: Option<String>,
}

closed_enum! {
    /// What the source of a data volume holds.
    pub enum DataVolumeContentType {
        KubeVirt = "kubevirt",
        Archive = "archive",
    }
}

open_enum! {
    /// Whether a claim is a file system or a block device.
    pub enum VolumeMode {
        Filesystem = "Filesystem",
        Block = "Block",
        FromStorageProfile = "FromStorageProfile",
    }
}
