//! VirtualMachineInstanceReplicaSet: N identical instances without state of their own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::conditions::ConditionStatus;
use crate::nullable::Nullable;
use crate::resource::resource;
use crate::schema;
use crate::schema::core;
use crate::vm::VirtualMachineInstanceTemplateSpec;

/// Keeps a number of identical, disposable VMIs running.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineInstanceReplicaSet {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// How many VMIs to keep, and what they look like.
    pub spec: VirtualMachineInstanceReplicaSetSpec,
    /// How many VMIs exist and are ready.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub status: Nullable<VirtualMachineInstanceReplicaSetStatus>,
}

resource!(VirtualMachineInstanceReplicaSet is namespaced "virtualmachineinstancereplicasets" of "kubevirt.io" in "v1" with { spec, status });

/// A page of virtual machine instance replica sets.
pub type VirtualMachineInstanceReplicaSetList = k8s_openapi::List<VirtualMachineInstanceReplicaSet>;

/// Replica count, selector and VMI template.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineInstanceReplicaSetSpec {
    /// Labels of the VMIs it owns; must match the template.
    #[schemars(with = "core::LabelSelector")]
    pub selector: LabelSelector,
    /// Blueprint of new VMIs; edits leave existing ones as they are.
    pub template: VirtualMachineInstanceTemplateSpec,
    /// True stops creating and deleting VMIs.
    pub paused: Option<bool>,
    /// VMIs to keep running; 1 if unset.
    pub replicas: Option<i32>,
}

/// Replica counts as seen by virt-controller.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceReplicaSetStatus {
    /// Whether scaling is paused or failing.
    pub conditions: Option<Vec<VirtualMachineInstanceReplicaSetCondition>>,
    /// Selector as a string, for the scale subresource.
    pub label_selector: Option<String>,
    /// VMIs whose Ready condition is true.
    pub ready_replicas: Option<i32>,
    /// VMIs that exist and are not finished.
    pub replicas: Option<i32>,
}

/// One observed aspect of the replica set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceReplicaSetCondition {
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// ReplicaPaused or ReplicaFailure.
    pub type_: String,
    /// When the condition was last checked.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_probe_time: Nullable<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_transition_time: Nullable<Time>,
    /// Details for people to read.
    pub message: Option<String>,
    /// CamelCase word for why the status is as it is.
    pub reason: Option<String>,
}
