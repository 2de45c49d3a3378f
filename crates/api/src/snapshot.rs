//! VirtualMachineSnapshot and VirtualMachineSnapshotContent: a VM at one moment.

use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, TypedLocalObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::conditions::ConditionStatus;
use crate::duration::Duration;
use crate::enums::open_enum;
use crate::nullable::Nullable;
use crate::resource::resource;
use crate::schema;
use crate::schema::core;
use crate::vm::{VirtualMachineSpec, VirtualMachineStatus};

/// Request for a point-in-time copy of a VM's definition and disks.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineSnapshot {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Which VM to copy, and how long that may take.
    pub spec: VirtualMachineSnapshotSpec,
    /// Progress and outcome of the snapshot.
    pub status: Option<VirtualMachineSnapshotStatus>,
}

resource!(VirtualMachineSnapshot is namespaced "virtualmachinesnapshots" of "snapshot.kubevirt.io" in "v1beta1" with { spec, status });

/// A page of virtual machine snapshots.
pub type VirtualMachineSnapshotList = k8s_openapi::List<VirtualMachineSnapshot>;

/// What to snapshot, and what happens on deletion.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSnapshotSpec {
    /// VirtualMachine in the same namespace to copy.
    #[schemars(with = "core::TypedLocalObjectReference")]
    pub source: TypedLocalObjectReference,
    /// Fate of the content when this object goes: delete (default) or retain.
    pub deletion_policy: Option<DeletionPolicy>,
    /// Gives up if not finished in this time; 5m if unset, 0 for no limit.
    pub failure_deadline: Option<Duration>,
}

/// Progress and result of a snapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSnapshotStatus {
    /// Ready, Progressing and Failure state.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Option<Vec<Condition>>,
    /// Moment that the copied state represents.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub creation_time: Nullable<Time>,
    /// Most recent failure, if any.
    pub error: Option<Error>,
    /// Deprecated: use sourceIndications.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub indications: Option<Vec<String>>,
    /// InProgress, Succeeded, Failed, Deleting or Unknown.
    pub phase: Option<VirtualMachineSnapshotPhase>,
    /// True once a restore from it is possible.
    pub ready_to_use: Option<bool>,
    /// Which of the VM's volumes were captured and which were not.
    pub snapshot_volumes: Option<SnapshotVolumesLists>,
    /// How the guest was captured, such as live or frozen by the agent.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub source_indications: Option<Vec<SourceIndication>>,
    /// UID of the VM copied, which tells it from a later namesake.
    #[serde(rename = "sourceUID")]
    pub source_uid: Option<String>,
    /// Content object that holds the copied data, set by the controller.
    pub virtual_machine_snapshot_content_name: Option<String>,
}

/// Volumes of the VM, split by whether the snapshot has them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotVolumesLists {
    /// Volumes left out, mostly as their storage cannot snapshot.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub excluded_volumes: Option<Vec<String>>,
    /// Volumes that were captured and can be restored.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub included_volumes: Option<Vec<String>>,
}

/// A circumstance that affects how consistent the snapshot is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SourceIndication {
    /// Online, GuestAgent, NoGuestAgent, QuiesceFailed or Paused.
    pub indication: String,
    /// What the indication means for the snapshot, in words.
    pub message: String,
}

/// One aspect of a snapshot's, restore's or clone's state.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Ready, Progressing or Failure.
    pub type_: String,
    /// When the condition was last checked.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_probe_time: Nullable<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_transition_time: Nullable<Time>,
    /// Details of the last change, for people to read.
    pub message: Option<String>,
    /// Cause of the last change, in short.
    pub reason: Option<String>,
}

/// Latest failure met while taking a snapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Error {
    /// What went wrong, as reported by the storage or controller.
    pub message: Option<String>,
    /// When the failure occurred.
    #[schemars(with = "Option<schema::Time>")]
    pub time: Option<Time>,
}

/// Data of a VM snapshot, made and kept by the controller.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineSnapshotContent {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Saved VM definition and the volumes to snapshot.
    pub spec: VirtualMachineSnapshotContentSpec,
    /// State of the volume snapshots.
    pub status: Option<VirtualMachineSnapshotContentStatus>,
}

resource!(VirtualMachineSnapshotContent is namespaced "virtualmachinesnapshotcontents" of "snapshot.kubevirt.io" in "v1beta1" with { spec, status });

/// A page of virtual machine snapshot contents.
pub type VirtualMachineSnapshotContentList = k8s_openapi::List<VirtualMachineSnapshotContent>;

/// What a VM snapshot consists of.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSnapshotContentSpec {
    /// Copy of the object as it was when captured.
    pub source: SourceSpec,
    /// Snapshot, in the same namespace, that this content belongs to.
    pub virtual_machine_snapshot_name: Option<String>,
    /// One entry per captured PVC.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volume_backups: Option<Vec<VolumeBackup>>,
}

/// How far the volume snapshots have come.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSnapshotContentStatus {
    /// When the last volume snapshot had been taken.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub creation_time: Nullable<Time>,
    /// Most recent failure, if any.
    pub error: Option<Error>,
    /// True once every volume snapshot is ready.
    pub ready_to_use: Option<bool>,
    /// State of each CSI VolumeSnapshot.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volume_snapshot_status: Option<Vec<VolumeSnapshotStatus>>,
}

/// Saved definition of what was snapshotted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceSpec {
    /// VM definition that a restore brings back.
    pub virtual_machine: Option<VirtualMachine>,
}

/// A VM's definition, frozen inside a snapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachine {
    /// Name, labels and annotations at snapshot time.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::AnyObject>")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub metadata: Nullable<ObjectMeta>,
    /// VM specification at snapshot time.
    pub spec: Option<VirtualMachineSpec>,
    /// VM status at snapshot time; informational only.
    pub status: Option<VirtualMachineStatus>,
}

/// One VM volume with its PVC definition and snapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeBackup {
    /// Definition from which a restore recreates the claim.
    pub persistent_volume_claim: PersistentVolumeClaim,
    /// Name of the volume in the VM spec.
    pub volume_name: String,
    /// CSI VolumeSnapshot that holds the data.
    pub volume_snapshot_name: Option<String>,
}

/// A claim's definition, frozen inside a snapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct PersistentVolumeClaim {
    /// Name, labels and annotations at snapshot time.
    #[schemars(with = "Option<schema::AnyObject>")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub metadata: Option<ObjectMeta>,
    /// Size, class and access modes at snapshot time.
    #[schemars(with = "Option<core::PersistentVolumeClaimSpec>")]
    pub spec: Option<PersistentVolumeClaimSpec>,
}

/// State of one CSI VolumeSnapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    /// VolumeSnapshot that this entry describes.
    pub volume_snapshot_name: String,
    /// When the storage took the snapshot.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub creation_time: Nullable<Time>,
    /// Failure reported by the CSI driver, if any.
    pub error: Option<Error>,
    /// True once a new volume can be made from it.
    pub ready_to_use: Option<bool>,
}

open_enum! {
    /// How far a snapshot is.
    pub enum VirtualMachineSnapshotPhase {
        Unset = "",
        InProgress = "InProgress",
        Succeeded = "Succeeded",
        Failed = "Failed",
        Deleting = "Deleting",
        Unknown = "Unknown",
    }
}

open_enum! {
    /// What happens to snapshot content when its snapshot is deleted.
    pub enum DeletionPolicy {
        Delete = "Delete",
        Retain = "Retain",
    }
}
