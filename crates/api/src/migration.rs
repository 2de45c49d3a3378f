//! VirtualMachineInstanceMigration: one live migration, and the knobs that steer all of them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::conditions::ConditionStatus;
use crate::enums::{closed_enum, open_enum};
use crate::nullable::Nullable;
use crate::quantity::Quantity;
use crate::resource::resource;
use crate::schema;

/// One live migration of a VMI; deleting it cancels the move.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigration {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Which VMI moves, and optionally where to.
    pub spec: VirtualMachineInstanceMigrationSpec,
    /// Progress, written by virt-controller.
    pub status: Option<VirtualMachineInstanceMigrationStatus>,
}

resource!(VirtualMachineInstanceMigration is namespaced "virtualmachineinstancemigrations" of "kubevirt.io" in "v1" with { spec, status });

/// A page of virtual machine instance migrations.
pub type VirtualMachineInstanceMigrationList = k8s_openapi::List<VirtualMachineInstanceMigration>;

/// Which VMI to move and where.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationSpec {
    /// Labels the target needs on top of the VMI nodeSelector.
    pub added_node_selector: Option<BTreeMap<String, String>>,
    /// Place in the queue, such as system-critical or user-triggered.
    pub priority: Option<MigrationPriority>,
    /// Set on the target side of a cross-cluster migration.
    pub receive: Option<VirtualMachineInstanceMigrationTarget>,
    /// Set on the source side of a cross-cluster migration.
    pub send_to: Option<VirtualMachineInstanceMigrationSource>,
    /// VMI to migrate, in the same namespace.
    pub vmi_name: Option<String>,
}

/// Observed progress of a migration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationStatus {
    /// Observed aspects such as a requested abort.
    pub conditions: Option<Vec<VirtualMachineInstanceMigrationCondition>>,
    /// Nodes, pods, times and outcome of the move.
    pub migration_state: Option<VirtualMachineInstanceMigrationState>,
    /// Pending, Scheduling, Scheduled, Running, Succeeded, Failed or a step between.
    pub phase: Option<VirtualMachineInstanceMigrationPhase>,
    /// When each phase was entered.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub phase_transition_timestamps: Option<Vec<VirtualMachineInstanceMigrationPhaseTransitionTimestamp>>,
    /// Addresses a remote source can give as connectURL.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub synchronization_addresses: Option<Vec<String>>,
}

/// One observed aspect of a migration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationCondition {
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Aspect reported, such as migrationAbortRequested.
    pub type_: String,
    /// When the condition was last checked.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_probe_time: Nullable<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_transition_time: Nullable<Time>,
    /// Details for a human reader.
    pub message: Option<String>,
    /// CamelCase word for why the status is as it is.
    pub reason: Option<String>,
}

/// When a migration entered a phase.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationPhaseTransitionTimestamp {
    /// Phase that was entered.
    pub phase: Option<VirtualMachineInstanceMigrationPhase>,
    /// Time of the change.
    #[schemars(with = "Option<schema::Time>")]
    pub phase_transition_timestamp: Option<Time>,
}

/// Sending side of a cross-cluster migration.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineInstanceMigrationSource {
    /// Host and port of the target synchronization controller.
    #[serde(rename = "connectURL")]
    pub connect_url: String,
    /// Any string; must equal the one on the receiving side.
    #[serde(rename = "migrationID")]
    pub migration_id: String,
}

/// Receiving side of a cross-cluster migration.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineInstanceMigrationTarget {
    /// Any string; must equal the one on the sending side.
    #[serde(rename = "migrationID")]
    pub migration_id: String,
}

/// Details and outcome of one live migration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationState {
    /// True once cancellation was asked for.
    pub abort_requested: Option<bool>,
    /// Cancellation result: Aborting, Succeeded or Failed.
    pub abort_status: Option<MigrationAbortStatus>,
    /// True once the migration ended, also after failure.
    pub completed: Option<bool>,
    /// When the migration ended.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub end_timestamp: Nullable<Time>,
    /// True if the guest did not make it to the target.
    pub failed: Option<bool>,
    /// Error text of a failed migration.
    pub failure_reason: Option<String>,
    /// Settings in force, with the migration policy applied.
    pub migration_configuration: Option<VMIMConfigurationOptions>,
    /// Network that carries the data: Pod or Migration.
    pub migration_network_type: Option<String>,
    /// MigrationPolicy that matched, if any.
    pub migration_policy_name: Option<String>,
    /// UID of the migration object behind this state.
    pub migration_uid: Option<String>,
    /// PreCopy, PostCopy or Paused.
    pub mode: Option<MigrationMode>,
    /// Node the guest leaves.
    pub source_node: Option<String>,
    /// Source claim with TPM and EFI state.
    #[serde(rename = "sourcePersistentStatePVCName")]
    pub source_persistent_state_pvc_name: Option<String>,
    /// Launcher pod the guest leaves.
    pub source_pod: Option<String>,
    /// What the source side knows and shares.
    pub source_state: Option<VirtualMachineInstanceMigrationSourceState>,
    /// When data began to flow.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub start_timestamp: Nullable<Time>,
    /// UID of the pod that hotplugs volumes on the target.
    #[serde(rename = "targetAttachmentPodUID")]
    pub target_attachment_pod_uid: Option<String>,
    /// Host CPUs on the target for pinned vCPUs.
    #[serde(rename = "targetCPUSet")]
    #[schemars(with = "Option<Vec<schema::Integer>>")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub target_cpu_set: Option<Vec<u32>>,
    /// Target ports, each mapped to the channel behind it.
    #[schemars(with = "Option<BTreeMap<String, schema::Integer>>")]
    pub target_direct_migration_node_ports: Option<BTreeMap<String, u32>>,
    /// Memory overhead reckoned for the target pod.
    pub target_memory_overhead: Option<Quantity>,
    /// Node the guest moves to.
    pub target_node: Option<String>,
    /// Address on the target that receives the data.
    pub target_node_address: Option<String>,
    /// True once the target has seen the domain.
    pub target_node_domain_detected: Option<bool>,
    /// When the guest began to run on the target.
    #[schemars(with = "Option<schema::Time>")]
    pub target_node_domain_ready_timestamp: Option<Time>,
    /// NUMA and CPU layout of the target node, as JSON.
    pub target_node_topology: Option<String>,
    /// Target claim for TPM and EFI state.
    #[serde(rename = "targetPersistentStatePVCName")]
    pub target_persistent_state_pvc_name: Option<String>,
    /// Launcher pod that receives the guest.
    pub target_pod: Option<String>,
    /// What the target side knows and shares.
    pub target_state: Option<VirtualMachineInstanceMigrationTargetState>,
}

/// Source side of a migration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationSourceState {
    /// Domain name on the source.
    pub domain_name: Option<String>,
    /// Namespace of the VMI on the source.
    pub domain_namespace: Option<String>,
    /// UID of the migration object on the source.
    #[serde(rename = "migrationUID")]
    pub migration_uid: Option<String>,
    /// Node the guest leaves.
    pub node: Option<String>,
    /// Labels the target node needs, such as CPU model.
    pub node_selectors: Option<BTreeMap<String, String>>,
    /// Claim with TPM and EFI state to copy from.
    #[serde(rename = "persistentStatePVCName")]
    pub persistent_state_pvc_name: Option<String>,
    /// Launcher pod the guest leaves.
    pub pod: Option<String>,
    /// SELinux label of the source pod.
    pub selinux_context: Option<String>,
    /// Address of the source synchronization controller.
    pub sync_address: Option<String>,
    /// UID of the VMI on the source.
    #[serde(rename = "virtualMachineInstanceUID")]
    pub virtual_machine_instance_uid: Option<String>,
}

/// Target side of a migration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceMigrationTargetState {
    /// UID of the pod that hotplugs volumes on the target.
    #[serde(rename = "attachmentPodUID")]
    pub attachment_pod_uid: Option<String>,
    /// Host CPUs on the target for pinned vCPUs.
    #[schemars(with = "Option<Vec<schema::Integer>>")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cpu_set: Option<Vec<u32>>,
    /// Target ports, each mapped to the channel behind it.
    #[schemars(with = "Option<BTreeMap<String, schema::Integer>>")]
    pub direct_migration_node_ports: Option<BTreeMap<String, u32>>,
    /// True once the target has seen the domain.
    pub domain_detected: Option<bool>,
    /// Domain name on the target.
    pub domain_name: Option<String>,
    /// Namespace of the VMI on the target.
    pub domain_namespace: Option<String>,
    /// When the guest began to run on the target.
    #[schemars(with = "Option<schema::Time>")]
    pub domain_ready_timestamp: Option<Time>,
    /// UID of the migration object on the target.
    #[serde(rename = "migrationUID")]
    pub migration_uid: Option<String>,
    /// Node the guest moves to.
    pub node: Option<String>,
    /// Address on the target that receives the data.
    pub node_address: Option<String>,
    /// NUMA and CPU layout of the target node, as JSON.
    pub node_topology: Option<String>,
    /// Claim that TPM and EFI state is copied to.
    #[serde(rename = "persistentStatePVCName")]
    pub persistent_state_pvc_name: Option<String>,
    /// Launcher pod that receives the guest.
    pub pod: Option<String>,
    /// SELinux label of the target pod.
    pub selinux_context: Option<String>,
    /// Address of the target synchronization controller.
    pub sync_address: Option<String>,
    /// UID of the VMI on the target.
    #[serde(rename = "virtualMachineInstanceUID")]
    pub virtual_machine_instance_uid: Option<String>,
}

/// Settings in force for one migration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VMIMConfigurationOptions {
    /// Throttles vCPUs of a guest that dirties memory too fast.
    pub allow_auto_converge: Option<bool>,
    /// May start the guest on the target before all memory is there.
    pub allow_post_copy: Option<bool>,
    /// On timeout, pauses the guest or goes post-copy, not abort.
    pub allow_workload_disruption: Option<bool>,
    /// Bytes per second for each migration; 0 is unlimited.
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds per GiB to move before giving up; 150 if unset.
    #[serde(rename = "completionTimeoutPerGiB")]
    pub completion_timeout_per_gib: Option<i64>,
    /// Sends migration data unencrypted.
    #[serde(rename = "disableTLS")]
    pub disable_tls: Option<bool>,
    /// Tuning that may change or vanish.
    pub experimental: Option<ExperimentalMigrationOptions>,
    /// Gives the target pod the SELinux level of the source.
    #[serde(rename = "matchSELinuxLevelOnMigration")]
    pub match_se_linux_level_on_migration: Option<bool>,
    /// Longest pause at switchover, in milliseconds.
    #[schemars(extend("minimum" = 1, "maximum" = 2000000))]
    pub max_downtime_ms: Option<i64>,
    /// NetworkAttachmentDefinition for the data; pod network if unset.
    pub network: Option<String>,
    /// Node taint that starts evacuation; kubevirt.io/drain if unset.
    pub node_drain_taint_key: Option<String>,
    /// Migrations at once in the cluster; 5 if unset.
    pub parallel_migrations_per_cluster: Option<u32>,
    /// Migrations at once leaving a node; 2 if unset.
    pub parallel_outbound_migrations_per_node: Option<u32>,
    /// Seconds without progress before it fails; 150 if unset.
    pub progress_timeout: Option<i64>,
    /// Migrates even where a disk cache makes it unsafe.
    pub unsafe_migration_override: Option<bool>,
    /// Seconds a migration waits for utility volumes to detach.
    pub utility_volumes_timeout: Option<i64>,
}

/// Cluster-wide defaults for live migrations.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrationConfiguration {
    /// Throttles vCPUs of a guest that dirties memory too fast.
    pub allow_auto_converge: Option<bool>,
    /// May start the guest on the target before all memory is there.
    pub allow_post_copy: Option<bool>,
    /// On timeout, pauses the guest or goes post-copy, not abort.
    pub allow_workload_disruption: Option<bool>,
    /// Bytes per second for each migration; 0 is unlimited.
    pub bandwidth_per_migration: Option<Quantity>,
    /// Seconds per GiB to move before giving up; 150 if unset.
    #[serde(rename = "completionTimeoutPerGiB")]
    pub completion_timeout_per_gib: Option<i64>,
    /// Sends migration data unencrypted; false if unset.
    #[serde(rename = "disableTLS")]
    pub disable_tls: Option<bool>,
    /// Gives the target pod the SELinux level of the source.
    #[serde(rename = "matchSELinuxLevelOnMigration")]
    pub match_se_linux_level_on_migration: Option<bool>,
    /// Longest pause at switchover, in milliseconds.
    #[schemars(extend("minimum" = 1, "maximum" = 2000000))]
    pub max_downtime_ms: Option<i64>,
    /// NetworkAttachmentDefinition for the data; pod network if unset.
    pub network: Option<String>,
    /// Node taint that starts evacuation; kubevirt.io/drain if unset.
    pub node_drain_taint_key: Option<String>,
    /// Migrations at once in the cluster; 5 if unset.
    pub parallel_migrations_per_cluster: Option<u32>,
    /// Migrations at once leaving a node; 2 if unset.
    pub parallel_outbound_migrations_per_node: Option<u32>,
    /// Seconds without progress before it fails; 150 if unset.
    pub progress_timeout: Option<i64>,
    /// Migrates even where a disk cache makes it unsafe.
    pub unsafe_migration_override: Option<bool>,
    /// Seconds a migration waits for utility volumes to detach.
    pub utility_volumes_timeout: Option<i64>,
}

/// Migration tuning without stability promise.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExperimentalMigrationOptions {
    /// Compression of memory pages in transit: none or zstd.
    pub compression: Option<MigrationCompression>,
    /// Raises the allowed downtime in steps during pre-copy.
    pub downtime_tuning: Option<DowntimeTuningOptions>,
    /// Decides when pre-copy no longer converges.
    pub stall_detector: Option<StallDetectorOptions>,
}

/// Tuning of how a stalled pre-copy is recognized.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StallDetectorOptions {
    /// Multiplier applied to the completion timeout.
    pub completion_timeout_factor: Option<Quantity>,
    /// Weight of the newest sample in the moving average, 0 to 1.
    pub ewma_alpha: Option<Quantity>,
    /// How fast the wait for progress shrinks over time.
    pub patience_window_decay_factor: Option<Quantity>,
    /// Slack in judging whether pre-copy can still finish.
    pub precopy_possible_factor: Option<Quantity>,
    /// Switches over when remaining data is at a low point.
    pub search_local_minima: Option<bool>,
    /// Change in remaining data too small to count as progress.
    #[schemars(extend("minimum" = 0, "maximum" = 100))]
    pub stall_margin: Option<i64>,
    /// Seconds without progress that count as a stall.
    #[schemars(extend("minimum" = 0))]
    pub stall_progress_timeout: Option<i64>,
    /// Seconds to wait for a good moment to switch over.
    #[schemars(extend("minimum" = 0))]
    pub switchover_timeout: Option<i64>,
}

/// Stepwise raising of the allowed downtime.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DowntimeTuningOptions {
    /// Seconds between two raises.
    #[schemars(extend("minimum" = 1))]
    pub cooldown_seconds: Option<i32>,
    /// Allowed downtime at the start, in milliseconds.
    #[schemars(extend("minimum" = 1))]
    pub initial_ms: Option<i64>,
    /// Memory pass after which raising begins.
    #[schemars(extend("minimum" = 1))]
    pub start_after_iteration: Option<i64>,
    /// Raises from the initial value to maxDowntimeMs.
    #[schemars(extend("minimum" = 1))]
    pub steps: Option<i32>,
}

open_enum! {
    /// How far a migration is.
    pub enum VirtualMachineInstanceMigrationPhase {
        Unset = "",
        Pending = "Pending",
        Scheduling = "Scheduling",
        Scheduled = "Scheduled",
        PreparingTarget = "PreparingTarget",
        TargetReady = "TargetReady",
        WaitingForSync = "WaitingForSync",
        Synchronizing = "Synchronizing",
        Running = "Running",
        Succeeded = "Succeeded",
        Failed = "Failed",
    }
}

open_enum! {
    /// How far the abortion of a migration is.
    pub enum MigrationAbortStatus {
        Succeeded = "Succeeded",
        Failed = "Failed",
        Aborting = "Aborting",
    }
}

open_enum! {
    /// How memory is being copied.
    pub enum MigrationMode {
        PreCopy = "PreCopy",
        PostCopy = "PostCopy",
        Paused = "Paused",
    }
}

open_enum! {
    /// Which waiting migration goes first.
    pub enum MigrationPriority {
        SystemCritical = "system-critical",
        UserTriggered = "user-triggered",
        SystemMaintenance = "system-maintenance",
    }
}

closed_enum! {
    /// Compression of the migration stream.
    pub enum MigrationCompression {
        None = "none",
        Zstd = "zstd",
    }
}

impl VirtualMachineInstanceMigrationPhase {
    /// It has ended, well or not.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}
