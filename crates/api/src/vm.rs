//! VirtualMachine: the durable description of a VM and what became of it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::conditions::ConditionStatus;
use crate::data_volume::DataVolumeSpec;
use crate::enums::open_enum;
use crate::nullable::Nullable;
use crate::resource::resource;
use crate::schema;
use crate::subresources::{AddVolumeOptions, RemoveVolumeOptions};
use crate::vmi::VirtualMachineInstanceSpec;
use crate::vmi_status::{ChangedBlockTrackingStatus, StorageMigratedVolumeInfo};

/// A virtual machine that outlives its running instances.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachine {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Wanted state: the guest, its disks and when it runs.
    pub spec: VirtualMachineSpec,
    /// Observed state, written by virt-controller.
    pub status: Option<VirtualMachineStatus>,
}

resource!(VirtualMachine is namespaced "virtualmachines" of "kubevirt.io" in "v1" with { spec, status });

/// A page of virtual machines.
pub type VirtualMachineList = k8s_openapi::List<VirtualMachine>;

/// What a VM runs and when it should be running.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineSpec {
    /// Blueprint of the VMI created at each start.
    pub template: VirtualMachineInstanceTemplateSpec,
    /// DataVolumes created along with the VM and deleted with it.
    pub data_volume_templates: Option<Vec<DataVolumeTemplateSpec>>,
    /// Instance type that sets CPU, memory and other resources.
    pub instancetype: Option<InstancetypeMatcher>,
    /// Preference that fills in guest settings left unset.
    pub preference: Option<PreferenceMatcher>,
    /// When to start and restart: Always, RerunOnFailure, Manual, Halted or Once.
    pub run_strategy: Option<VirtualMachineRunStrategy>,
    /// Deprecated: use runStrategy, which excludes this field.
    pub running: Option<bool>,
    /// How changed volumes reach a running guest: Replacement or Migration.
    pub update_volumes_strategy: Option<UpdateVolumesStrategy>,
}

/// Observed state of a VM and requests still pending on it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineStatus {
    /// State of dirty block tracking for incremental backups.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub changed_block_tracking: Nullable<ChangedBlockTrackingStatus>,
    /// Observed aspects such as Ready, Paused or RestartRequired.
    pub conditions: Option<Vec<VirtualMachineCondition>>,
    /// True while a VMI exists for this VM.
    pub created: Option<bool>,
    /// Generation of the VM as last edited.
    pub desired_generation: Option<i64>,
    /// Instance type in use, with the revision that was captured.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub instancetype_ref: Nullable<InstancetypeStatusRef>,
    /// Memory dump last requested and how far it got.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub memory_dump_request: Nullable<VirtualMachineMemoryDumpRequest>,
    /// Generation of the VM the running VMI was created from.
    pub observed_generation: Option<i64>,
    /// Preference in use, with the revision that was captured.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub preference_ref: Nullable<InstancetypeStatusRef>,
    /// One-word summary such as Stopped, Running or Migrating.
    #[schemars(extend("default" = "Stopped"))]
    pub printable_status: Option<VirtualMachinePrintableStatus>,
    /// True while the VMI runs and is ready.
    pub ready: Option<bool>,
    /// VirtualMachineRestore now working on this VM.
    pub restore_in_progress: Option<String>,
    /// Run strategy the controller last acted on.
    pub run_strategy: Option<VirtualMachineRunStrategy>,
    /// VirtualMachineSnapshot now being taken of this VM.
    pub snapshot_in_progress: Option<String>,
    /// Backoff after failed starts; absent once a start succeeds.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub start_failure: Nullable<VirtualMachineStartFailure>,
    /// Start and stop requests not carried out yet.
    pub state_change_requests: Option<Vec<VirtualMachineStateChangeRequest>>,
    /// Hotplug requests not applied to the template yet.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volume_requests: Option<Vec<VirtualMachineVolumeRequest>>,
    /// For each volume, whether it can be snapshotted.
    pub volume_snapshot_statuses: Option<Vec<VolumeSnapshotStatus>>,
    /// Progress of volume changes made while the VM runs.
    pub volume_update_state: Option<VolumeUpdateState>,
}

/// One observed aspect of a VM.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineCondition {
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Aspect reported, such as Ready, Paused or RestartRequired.
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

/// Record of repeated failed starts, used to delay the next one.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineStartFailure {
    /// Failed starts in a row; each lengthens the delay.
    #[schemars(with = "Option<schema::Integer>")]
    pub consecutive_fail_count: Option<u32>,
    /// UID of the VMI that failed last, so it counts only once.
    #[serde(rename = "lastFailedVMIUID")]
    pub last_failed_vmiuid: Option<String>,
    /// Earliest time of the next start attempt.
    #[schemars(with = "Option<schema::Time>")]
    pub retry_after_timestamp: Option<Time>,
}

/// A start or stop asked for through the API.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineStateChangeRequest {
    /// Start or Stop.
    pub action: StateChangeRequestAction,
    /// Options of the request, such as paused for a start.
    pub data: Option<BTreeMap<String, String>>,
    /// UID of the VMI to stop; unset for a start.
    pub uid: Option<String>,
}

/// A hotplug change to a volume; exactly one field is set.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineVolumeRequest {
    /// Volume and disk to attach.
    pub add_volume_options: Option<AddVolumeOptions>,
    /// Name of the volume to detach.
    pub remove_volume_options: Option<RemoveVolumeOptions>,
}

/// A dump of guest memory into a claim, with its progress.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineMemoryDumpRequest {
    /// Claim in the same namespace that receives the dump.
    pub claim_name: String,
    /// Associating, InProgress, Unmounting, Completed, Dissociating or Failed.
    pub phase: MemoryDumpPhase,
    /// When the dump finished or failed.
    #[schemars(with = "Option<schema::Time>")]
    pub end_timestamp: Option<Time>,
    /// File inside the claim that holds the dump.
    pub file_name: Option<String>,
    /// Error text when the dump failed.
    pub message: Option<String>,
    /// True to detach the claim from the VM.
    pub remove: Option<bool>,
    /// When the dump began.
    #[schemars(with = "Option<schema::Time>")]
    pub start_timestamp: Option<Time>,
}

/// Progress of volume changes on a running VM.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeUpdateState {
    /// Volumes whose data is being copied to new claims.
    pub volume_migration_state: Option<VolumeMigrationState>,
}

/// Progress of moving volumes between claims.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMigrationState {
    /// Volumes that move, each with old and new claim.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub migrated_volumes: Option<Vec<StorageMigratedVolumeInfo>>,
}

/// Whether one volume takes part in VM snapshots.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VolumeSnapshotStatus {
    /// Volume name from the VM template.
    pub name: String,
    /// True if the storage of the volume supports snapshots.
    pub enabled: bool,
    /// Why the volume can or cannot be snapshotted.
    pub reason: Option<String>,
}

/// Picks the instance type of a VM.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstancetypeMatcher {
    /// Volume whose default-instancetype labels name the type.
    pub infer_from_volume: Option<String>,
    /// If inference fails: Reject the VM (default) or Ignore.
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
    /// Namespaced or cluster-wide kind; VirtualMachineClusterInstancetype if unset.
    pub kind: Option<String>,
    /// Instance type to use; excludes inferFromVolume.
    pub name: Option<String>,
    /// ControllerRevision to pin; captured at first start if unset.
    pub revision_name: Option<String>,
}

/// Picks the preference of a VM.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreferenceMatcher {
    /// Volume whose default-preference labels name it.
    pub infer_from_volume: Option<String>,
    /// If inference fails: Reject the VM (default) or Ignore.
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
    /// Namespaced or cluster-wide kind; VirtualMachineClusterPreference if unset.
    pub kind: Option<String>,
    /// Preference to use; excludes inferFromVolume.
    pub name: Option<String>,
    /// ControllerRevision to pin; captured at first start if unset.
    pub revision_name: Option<String>,
}

/// Instance type or preference that a VM really uses.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstancetypeStatusRef {
    /// Frozen copy that later starts of the VM use.
    pub controller_revision_ref: Option<ControllerRevisionRef>,
    /// Volume the name was taken from, if it was inferred.
    pub infer_from_volume: Option<String>,
    /// Policy in force for inference: Reject or Ignore.
    pub infer_from_volume_failure_policy: Option<InferFromVolumeFailurePolicy>,
    /// Kind found, namespaced or cluster-wide.
    pub kind: Option<String>,
    /// Instance type or preference that was found.
    pub name: Option<String>,
}

/// Points to a ControllerRevision in the namespace of the VM.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ControllerRevisionRef {
    /// ControllerRevision that stores the captured object.
    pub name: Option<String>,
}

/// Blueprint from which VMIs are created.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineInstanceTemplateSpec {
    /// Labels and annotations copied to each VMI.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::AnyObject>")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub metadata: Nullable<ObjectMeta>,
    /// Spec of each VMI; edits mostly need a restart.
    pub spec: Option<VirtualMachineInstanceSpec>,
}

/// Blueprint of a DataVolume that the VM owns.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("nullable" = true))]
pub struct DataVolumeTemplateSpec {
    /// API group and version of the DataVolume; optional.
    pub api_version: Option<String>,
    /// DataVolume; optional.
    pub kind: Option<String>,
    /// Metadata of the DataVolume; volumes refer to its name.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::AnyObject>")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub metadata: Nullable<ObjectMeta>,
    /// Where the data comes from and the storage it needs.
    pub spec: DataVolumeSpec,
    /// Ignored; accepted so that whole DataVolumes can be pasted.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub status: Nullable<DataVolumeTemplateDummyStatus>,
}

/// Empty placeholder; a template has no status.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DataVolumeTemplateDummyStatus {}

open_enum! {
    /// When a VM is started and restarted.
    pub enum VirtualMachineRunStrategy {
        /// Keep an instance running whatever happens to it.
        Always = "Always",
        /// Start again after a failure, not after a clean shutdown.
        RerunOnFailure = "RerunOnFailure",
        /// Start and stop on request only.
        Manual = "Manual",
        /// Keep it stopped.
        Halted = "Halted",
        /// Start one instance, never a second.
        Once = "Once",
        /// Wait for the state of a VM that migrates here from elsewhere.
        WaitAsReceiver = "WaitAsReceiver",
    }
}

open_enum! {
    /// One word for the state of a VM, as `kubectl get vm` shows it.
    pub enum VirtualMachinePrintableStatus {
        Stopped = "Stopped",
        Provisioning = "Provisioning",
        Starting = "Starting",
        Running = "Running",
        Paused = "Paused",
        Migrating = "Migrating",
        Stopping = "Stopping",
        Terminating = "Terminating",
        CrashLoopBackOff = "CrashLoopBackOff",
        Unknown = "Unknown",
        Unschedulable = "ErrorUnschedulable",
        ErrImagePull = "ErrImagePull",
        ImagePullBackOff = "ImagePullBackOff",
        PvcNotFound = "ErrorPvcNotFound",
        DataVolumeError = "DataVolumeError",
        WaitingForVolumeBinding = "WaitingForVolumeBinding",
        WaitingForReceiver = "WaitingForReceiver",
    }
}

open_enum! {
    /// What a pending request wants of a VM.
    pub enum StateChangeRequestAction {
        Start = "Start",
        Stop = "Stop",
    }
}

open_enum! {
    /// How far a memory dump is.
    pub enum MemoryDumpPhase {
        Associating = "Associating",
        InProgress = "InProgress",
        Unmounting = "Unmounting",
        Completed = "Completed",
        Dissociating = "Dissociating",
        Failed = "Failed",
    }
}

open_enum! {
    /// What to do when no instancetype can be inferred from a volume.
    pub enum InferFromVolumeFailurePolicy {
        Reject = "Reject",
        Ignore = "Ignore",
    }
}

open_enum! {
    /// How a changed volume list reaches a running instance.
    pub enum UpdateVolumesStrategy {
        Replacement = "Replacement",
        Migration = "Migration",
    }
}

/// Both ways to say when a VM runs were used at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("spec.running and spec.runStrategy are mutually exclusive; remove spec.running")]
pub struct RunStrategyError;

impl VirtualMachineSpec {
    /// When the VM shall run, from `runStrategy` or its predecessor `running`. A VM that says neither is halted.
    ///
    /// # Errors
    /// When both are set: whichever were taken, some client would be surprised.
    pub fn effective_run_strategy(&self) -> Result<VirtualMachineRunStrategy, RunStrategyError> {
        match (self.running, &self.run_strategy) {
            (Some(_), Some(_)) => Err(RunStrategyError),
            (Some(true), None) => Ok(VirtualMachineRunStrategy::Always),
            (Some(false), None) | (None, None) => Ok(VirtualMachineRunStrategy::Halted),
            (None, Some(strategy)) => Ok(strategy.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strategy(
        running: Option<bool>,
        run_strategy: Option<&str>,
    ) -> Result<VirtualMachineRunStrategy, RunStrategyError> {
        let spec =
            VirtualMachineSpec { running, run_strategy: run_strategy.map(Into::into), ..VirtualMachineSpec::default() };
        spec.effective_run_strategy()
    }

    #[test]
    fn running_is_the_old_way_to_say_always_or_halted() {
        assert_eq!(strategy(Some(true), None), Ok(VirtualMachineRunStrategy::Always));
        assert_eq!(strategy(Some(false), None), Ok(VirtualMachineRunStrategy::Halted));
    }

    #[test]
    fn a_vm_that_says_nothing_is_halted() {
        assert_eq!(strategy(None, None), Ok(VirtualMachineRunStrategy::Halted));
    }

    #[test]
    fn saying_it_twice_is_refused() {
        assert_eq!(strategy(Some(true), Some("Always")), Err(RunStrategyError));
        assert_eq!(strategy(Some(false), Some("Halted")), Err(RunStrategyError));
    }

    #[test]
    fn a_strategy_from_the_future_is_kept() {
        let future = strategy(None, Some("OnFullMoon"));
        assert_eq!(future, Ok(VirtualMachineRunStrategy::Other("OnFullMoon".into())));
    }
}
