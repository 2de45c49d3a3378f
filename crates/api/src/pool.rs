//! VirtualMachinePool: N virtual machines from one template.

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::conditions::ConditionStatus;
use crate::duration::Duration;
use crate::enums::closed_enum;
use crate::nullable::Nullable;
use crate::resource::resource;
use crate::schema;
use crate::schema::core;
use crate::vm::VirtualMachineSpec;

/// A set of similar virtual machines stamped out from one template.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachinePool {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// How many VMs to keep, from which template, and how to change them.
    pub spec: VirtualMachinePoolSpec,
    /// Observed replica counts and conditions.
    pub status: Option<VirtualMachinePoolStatus>,
}

resource!(VirtualMachinePool is namespaced "virtualmachinepools" of "pool.kubevirt.io" in "v1beta1" with { spec, status });

/// A page of virtual machine pools.
pub type VirtualMachinePoolList = k8s_openapi::List<VirtualMachinePool>;

/// Desired size, template and change strategies of a pool.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolSpec {
    /// Labels the pool finds its VMs by; must match those of the template.
    #[schemars(with = "core::LabelSelector")]
    pub selector: LabelSelector,
    /// Blueprint from which every VM of the pool is created.
    pub virtual_machine_template: VirtualMachineTemplateSpec,
    /// Replaces VMs that keep failing to start; off if unset.
    pub autohealing: Option<VirtualMachinePoolAutohealingStrategy>,
    /// VMs, as count or percentage, that an update may take down at once; 100% if unset.
    #[schemars(with = "Option<schema::IntOrString>")]
    pub max_unavailable: Option<IntOrString>,
    /// Which referenced object names get the VM's index appended.
    pub name_generation: Option<VirtualMachinePoolNameGeneration>,
    /// Stops the controller from creating, updating or deleting VMs.
    pub paused: Option<bool>,
    /// Number of VMs to keep; 1 if unset.
    #[schemars(extend("minimum" = 0))]
    pub replicas: Option<i32>,
    /// Which VMs go, and when, if replicas is lowered; proactive if unset.
    pub scale_in_strategy: Option<VirtualMachinePoolScaleInStrategy>,
    /// How template changes reach existing VMs; proactive if unset.
    pub update_strategy: Option<VirtualMachinePoolUpdateStrategy>,
}

/// What the pool controller last observed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolStatus {
    /// Pause and failure state of the pool.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Option<Vec<VirtualMachinePoolCondition>>,
    /// Selector in string form, read by autoscalers through the scale subresource.
    pub label_selector: Option<String>,
    /// VMs of the pool that are up and ready.
    pub ready_replicas: Option<i32>,
    /// VMs that exist now, ready or not.
    pub replicas: Option<i32>,
}

/// One aspect of the pool's state.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolCondition {
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// ReplicaFailure or ReplicaPaused.
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
    /// CamelCase word for the cause of the last change.
    pub reason: Option<String>,
}

/// Blueprint of a VM in a pool.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineTemplateSpec {
    /// Labels and annotations that every created VM receives.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::AnyObject>")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub metadata: Nullable<ObjectMeta>,
    /// VM specification that every created VM starts from.
    pub spec: Option<VirtualMachineSpec>,
}

/// Controls per-VM ConfigMaps and Secrets in a pool.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolNameGeneration {
    /// Gives each VM its own ConfigMap, named with its index; false if unset.
    pub append_index_to_config_map_refs: Option<bool>,
    /// Gives each VM its own Secret, named with its index; false if unset.
    pub append_index_to_secret_refs: Option<bool>,
}

/// How template changes are rolled out; set only one member.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachinePoolUpdateStrategy {
    /// Updates VM objects at once, running guests at their next restart.
    pub opportunistic: Option<VirtualMachineOpportunisticUpdateStrategy>,
    /// Restarts running VMs so that they take the change promptly.
    pub proactive: Option<VirtualMachinePoolProactiveUpdateStrategy>,
    /// Leaves existing VMs alone; only new ones use the new template.
    pub unmanaged: Option<VirtualMachinePoolUnmanagedStrategy>,
}

/// Leaves the matter to the user; has no settings.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachinePoolUnmanagedStrategy {}

/// Waits for guests to restart on their own; has no settings.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineOpportunisticUpdateStrategy {}

/// Settings for restarting VMs to update them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolProactiveUpdateStrategy {
    /// Order in which VMs are restarted; random if unset.
    pub selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
}

/// How surplus VMs are removed; set only one member.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachinePoolScaleInStrategy {
    /// Removes surplus VMs only once they have been shut down.
    pub opportunistic: Option<VirtualMachinePoolOpportunisticScaleInStrategy>,
    /// Shuts down and deletes surplus VMs right away.
    pub proactive: Option<VirtualMachinePoolProactiveScaleInStrategy>,
    /// Never deletes VMs; the user removes the surplus.
    pub unmanaged: Option<VirtualMachinePoolUnmanagedStrategy>,
}

/// Settings for removing only VMs that are down.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolOpportunisticScaleInStrategy {
    /// What outlives the VM: Disabled nothing, Offline its PVCs, Online memory too.
    pub state_preservation: Option<StatePreservation>,
}

/// Settings for deleting surplus VMs right away.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolProactiveScaleInStrategy {
    /// Which VMs are deleted first; random if unset.
    pub selection_policy: Option<VirtualMachinePoolSelectionPolicy>,
    /// What outlives the VM: Disabled nothing, Offline its PVCs, Online memory too.
    pub state_preservation: Option<StatePreservation>,
}

/// Decides which VMs of a pool are acted on first.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolSelectionPolicy {
    /// VMs that match these are taken before all others.
    pub selectors: Option<VirtualMachinePoolSelectors>,
    /// Order by VM index or age, or Random, which is the default.
    pub sort_policy: Option<VirtualMachinePoolSortPolicy>,
}

/// Filters that single out VMs of a pool.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolSelectors {
    /// Matches against the labels of the VM.
    #[schemars(with = "Option<core::LabelSelector>")]
    pub label_selector: Option<LabelSelector>,
    /// Matches against the labels of the node the VM runs on.
    #[schemars(with = "Option<Vec<core::NodeSelectorRequirement>>")]
    pub node_selector_requirement_matcher: Option<Vec<NodeSelectorRequirement>>,
}

/// When a VM that fails to start is replaced.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachinePoolAutohealingStrategy {
    /// How long starts must have been failing before replacement; 5m if unset.
    pub min_failing_to_start_duration: Option<Duration>,
    /// Consecutive failed starts before replacement; 3 if unset.
    #[schemars(extend("minimum" = 1))]
    pub start_up_failure_threshold: Option<u32>,
}

closed_enum! {
    /// What is kept of a VM that is scaled away.
    pub enum StatePreservation {
        Disabled = "Disabled",
        Offline = "Offline",
        Online = "Online",
    }
}

closed_enum! {
    /// Which VMs are scaled away first.
    pub enum VirtualMachinePoolSortPolicy {
        AscendingOrder = "AscendingOrder",
        DescendingOrder = "DescendingOrder",
        Newest = "Newest",
        Oldest = "Oldest",
        Random = "Random",
    }
}
