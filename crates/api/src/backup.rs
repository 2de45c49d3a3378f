//! VirtualMachineBackup and its tracker: full and incremental backups.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::duration::Duration;
use crate::enums::{closed_enum, open_enum};
use crate::resource::resource;
use crate::schema;
use crate::schema::core;

/// One full or incremental backup of a running VM's disks.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineBackup {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// What to back up, and where to.
    pub spec: VirtualMachineBackupSpec,
    /// Progress and outcome of the backup.
    pub status: Option<VirtualMachineBackupStatus>,
}

resource!(VirtualMachineBackup is namespaced "virtualmachinebackups" of "backup.kubevirt.io" in "v1alpha1" with { spec, status });

/// A page of virtual machine backups.
pub type VirtualMachineBackupList = k8s_openapi::List<VirtualMachineBackup>;

/// Source, target and manner of a backup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = serde_json::json!([{ "message": "spec is immutable after creation", "rule": "self == oldSelf" }, { "message": "pvcName is required", "rule": "has(self.pvcName) && self.pvcName != \"\"" }, { "message": "tokenSecretRef is required when mode is Pull", "rule": "!has(self.mode) || self.mode != 'Pull' || (has(self.tokenSecretRef) && self.tokenSecretRef != \"\")" }])))]
pub struct VirtualMachineBackupSpec {
    /// A VM, or a VirtualMachineBackupTracker for incremental backups.
    #[schemars(with = "core::TypedLocalObjectReference")]
    #[schemars(extend("x-kubernetes-validations" = serde_json::json!([{ "message": "apiGroup is required", "rule": "has(self.apiGroup)" }, { "message": "apiGroup must be kubevirt.io or backup.kubevirt.io", "rule": "!has(self.apiGroup) || self.apiGroup == 'kubevirt.io' || self.apiGroup == 'backup.kubevirt.io'" }, { "message": "kind must be VirtualMachine for kubevirt.io or VirtualMachineBackupTracker for backup.kubevirt.io", "rule": "!has(self.apiGroup) || (self.apiGroup == 'kubevirt.io' && self.kind == 'VirtualMachine') || (self.apiGroup == 'backup.kubevirt.io' && self.kind == 'VirtualMachineBackupTracker')" }, { "message": "name is required", "rule": "self.name != ''" }])))]
    pub source: TypedLocalObjectReference,
    /// Copies everything even if an increment were possible.
    pub force_full_backup: Option<bool>,
    /// Push writes to the PVC, Pull lets a client read; Push if unset.
    pub mode: Option<BackupMode>,
    /// PVC for the backup, or for scratch data in Pull mode.
    pub pvc_name: Option<String>,
    /// Does not freeze guest file systems; only crash consistent.
    pub skip_quiesce: Option<bool>,
    /// Secret with the token for clients in Pull mode.
    pub token_secret_ref: Option<String>,
    /// How long a Pull backup stays readable.
    pub ttl_duration: Option<Duration>,
}

/// Progress and result of a backup.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineBackupStatus {
    /// Libvirt checkpoint that the next increment can build on.
    pub checkpoint_name: Option<String>,
    /// Whether the backup is starting, running, done or failed.
    #[schemars(with = "Option<Vec<core::Condition>>")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// PEM CA certificate that verifies the Pull endpoints.
    pub endpoint_cert: Option<String>,
    /// UID of the export that serves a Pull backup.
    #[serde(rename = "exportUID")]
    pub export_uid: Option<String>,
    /// Volumes backed up, with their Pull endpoints.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub included_volumes: Option<Vec<BackupVolumeInfo>>,
    /// Full or Incremental, as chosen by the controller.
    pub type_: Option<BackupType>,
}

/// One volume that a backup covers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupVolumeInfo {
    /// Name of the volume in the VM spec.
    pub volume_name: String,
    /// URL that serves the blocks; Pull mode only.
    pub data_endpoint: Option<String>,
    /// URL that lists changed or allocated ranges; Pull mode only.
    pub map_endpoint: Option<String>,
}

/// Point in time from which changed blocks are tracked.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupCheckpoint {
    /// When tracking started.
    #[schemars(with = "Option<schema::Time>")]
    pub creation_time: Option<Time>,
    /// Name of the checkpoint.
    pub name: Option<String>,
    /// Volumes whose changes are tracked.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volumes: Option<Vec<BackupVolumeInfo>>,
}

/// Backup order from the controller to the launcher; internal.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupOptions {
    /// PEM TLS certificate of the launcher's Pull endpoint.
    pub backup_cert: Option<String>,
    /// PEM private key for backupCert.
    pub backup_key: Option<String>,
    /// VirtualMachineBackup that this order is for.
    pub backup_name: Option<String>,
    /// When the backup was begun; goes into checkpoint names.
    #[schemars(with = "Option<schema::Time>")]
    pub backup_start_time: Option<Time>,
    /// PEM CA certificate to verify the other side with.
    pub ca_cert: Option<String>,
    /// Start or Abort.
    pub cmd: Option<String>,
    /// Host and port of the export server in Pull mode.
    pub export_server_addr: Option<String>,
    /// Name expected in the export server's certificate.
    pub export_server_name: Option<String>,
    /// Checkpoint to take the difference from; full backup if unset.
    pub incremental: Option<String>,
    /// Push or Pull.
    pub mode: Option<String>,
    /// Does not freeze guest file systems first.
    pub skip_quiesce: Option<bool>,
    /// Directory in the launcher where the backup PVC is mounted.
    pub target_path: Option<String>,
}

/// Remembers a VM's last checkpoint for incremental backups.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineBackupTracker {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Which VM to track.
    pub spec: VirtualMachineBackupTrackerSpec,
    /// Checkpoint that the next backup builds on.
    pub status: Option<VirtualMachineBackupTrackerStatus>,
}

resource!(VirtualMachineBackupTracker is namespaced "virtualmachinebackuptrackers" of "backup.kubevirt.io" in "v1alpha1" with { spec, status });

/// A page of virtual machine backup trackers.
pub type VirtualMachineBackupTrackerList = k8s_openapi::List<VirtualMachineBackupTracker>;

/// The VM whose backups are tracked.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("x-kubernetes-validations" = serde_json::json!([{ "message": "spec is immutable after creation", "rule": "self == oldSelf" }])))]
pub struct VirtualMachineBackupTrackerSpec {
    /// VirtualMachine in the same namespace.
    #[schemars(with = "core::TypedLocalObjectReference")]
    #[schemars(extend("x-kubernetes-validations" = serde_json::json!([{ "message": "apiGroup must be kubevirt.io", "rule": "has(self.apiGroup) && self.apiGroup == 'kubevirt.io'" }, { "message": "kind must be VirtualMachine", "rule": "self.kind == 'VirtualMachine'" }, { "message": "name is required", "rule": "self.name != ''" }])))]
    pub source: TypedLocalObjectReference,
}

/// Where the chain of backups stands.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineBackupTrackerStatus {
    /// True after a VM restart, until QEMU knows the checkpoint again.
    pub checkpoint_redefinition_required: Option<bool>,
    /// Base of the next increment; unset before the first backup.
    pub latest_checkpoint: Option<BackupCheckpoint>,
}

closed_enum! {
    /// Who moves the data of a backup.
    pub enum BackupMode {
        Push = "Push",
        Pull = "Pull",
    }
}

open_enum! {
    /// What a backup holds.
    pub enum BackupType {
        Full = "Full",
        Incremental = "Incremental",
    }
}
