//! VirtualMachineClone: a new VM from another one or from a snapshot.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::enums::{closed_enum, open_enum};
use crate::nullable::Nullable;
use crate::resource::resource;
use crate::schema;
use crate::schema::core;
use crate::snapshot::Condition;

/// Makes a new VM from an existing VM or snapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineClone {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// What to clone, and what to change on the copy.
    pub spec: VirtualMachineCloneSpec,
    /// Progress and outcome of the clone.
    pub status: Option<VirtualMachineCloneStatus>,
}

resource!(VirtualMachineClone is namespaced "virtualmachineclones" of "clone.kubevirt.io" in "v1beta1" with { spec, status });

/// A page of virtual machine clones.
pub type VirtualMachineCloneList = k8s_openapi::List<VirtualMachineClone>;

/// Source, target and alterations of a clone.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineCloneSpec {
    /// VirtualMachine or VirtualMachineSnapshot to copy.
    #[schemars(with = "core::TypedLocalObjectReference")]
    pub source: TypedLocalObjectReference,
    /// Wildcards for VM annotations to copy; a leading ! excludes, all if unset.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub annotation_filters: Option<Vec<String>>,
    /// Wildcards for VM labels to copy; a leading ! excludes, all if unset.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub label_filters: Option<Vec<String>>,
    /// MAC address by interface name; others are generated.
    pub new_mac_addresses: Option<BTreeMap<String, String>>,
    /// SMBIOS serial number of the copy; cleared if unset.
    #[serde(rename = "newSMBiosSerial")]
    pub new_sm_bios_serial: Option<String>,
    /// JSON patch operations, each a string, applied to the copy last.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub patches: Option<Vec<String>>,
    /// VirtualMachine to create; a name is generated if unset.
    #[schemars(with = "Option<core::TypedLocalObjectReference>")]
    pub target: Option<TypedLocalObjectReference>,
    /// Filters for the metadata below spec.template.
    pub template: Option<VirtualMachineCloneTemplateFilters>,
    /// Naming of the copied PVCs; RandomizeNames if unset.
    pub volume_name_policy: Option<VolumeNamePolicy>,
}

/// Progress and result of a clone.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineCloneStatus {
    /// Ready and Progressing state.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Option<Vec<Condition>>,
    /// When the clone was completed.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub creation_time: Nullable<Time>,
    /// SnapshotInProgress, RestoreInProgress, CreatingTargetVM, Succeeded or Failed.
    pub phase: Option<VirtualMachineClonePhase>,
    /// Temporary VirtualMachineRestore in use; cleared afterwards.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub restore_name: Nullable<String>,
    /// VirtualMachineSnapshot in use, temporary if the source is a VM.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub snapshot_name: Nullable<String>,
    /// Name of the new VM, given or generated.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub target_name: Nullable<String>,
}

/// Which template metadata the clone keeps.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineCloneTemplateFilters {
    /// Wildcards for template annotations to copy; a leading ! excludes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub annotation_filters: Option<Vec<String>>,
    /// Wildcards for template labels to copy; a leading ! excludes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub label_filters: Option<Vec<String>>,
}

open_enum! {
    /// How far a clone is.
    pub enum VirtualMachineClonePhase {
        Unset = "",
        SnapshotInProgress = "SnapshotInProgress",
        CreatingTargetVM = "CreatingTargetVM",
        RestoreInProgress = "RestoreInProgress",
        Succeeded = "Succeeded",
        Failed = "Failed",
        Unknown = "Unknown",
    }
}

closed_enum! {
    /// How the volumes of a clone are named.
    pub enum VolumeNamePolicy {
        RandomizeNames = "RandomizeNames",
        PrefixTargetName = "PrefixTargetName",
    }
}
