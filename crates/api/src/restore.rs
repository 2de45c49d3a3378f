//! VirtualMachineRestore: a VM set back to a snapshot.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::enums::{closed_enum, open_enum};
use crate::resource::resource;
use crate::schema;
use crate::schema::core;
use crate::snapshot::Condition;

/// Brings a VM back to the state held in a snapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineRestore {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Which snapshot goes to which VM, and how.
    pub spec: VirtualMachineRestoreSpec,
    /// Progress and outcome of the restore.
    pub status: Option<VirtualMachineRestoreStatus>,
}

resource!(VirtualMachineRestore is namespaced "virtualmachinerestores" of "snapshot.kubevirt.io" in "v1beta1" with { spec, status });

/// A page of virtual machine restores.
pub type VirtualMachineRestoreList = k8s_openapi::List<VirtualMachineRestore>;

/// What to restore, and where to.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineRestoreSpec {
    /// VM to overwrite, or to create if it does not exist.
    #[schemars(with = "core::TypedLocalObjectReference")]
    pub target: TypedLocalObjectReference,
    /// Snapshot to restore from, in the same namespace.
    pub virtual_machine_snapshot_name: String,
    /// JSON patch operations, each a string, applied to the restored VM.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub patches: Option<Vec<String>>,
    /// What to do if the target still runs; WaitGracePeriod if unset.
    #[schemars(extend("default" = "WaitGracePeriod"))]
    pub target_readiness_policy: Option<TargetReadinessPolicy>,
    /// Owner of restored volumes: Vm (default), so deleted with it, or None.
    pub volume_ownership_policy: Option<VolumeOwnershipPolicy>,
    /// Names, labels and annotations for individual restored volumes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volume_restore_overrides: Option<Vec<VolumeRestoreOverride>>,
    /// Naming of restored PVCs: RandomizeNames (default), PrefixTargetName or InPlace.
    pub volume_restore_policy: Option<VolumeRestorePolicy>,
}

/// Progress and result of a restore.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineRestoreStatus {
    /// True once volumes and VM are restored.
    pub complete: Option<bool>,
    /// Ready, Progressing and Failure state.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Option<Vec<Condition>>,
    /// DataVolumes removed because restored volumes replace them.
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub deleted_data_volumes: Option<Vec<String>>,
    /// When the restore finished.
    #[schemars(with = "Option<schema::Time>")]
    pub restore_time: Option<Time>,
    /// New volumes made, one entry per captured volume.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub restores: Option<Vec<VolumeRestore>>,
}

/// One volume brought back from a snapshot.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRestore {
    /// Name of the PVC that receives the data.
    pub persistent_volume_claim: String,
    /// Name of the volume in the VM spec.
    pub volume_name: String,
    /// CSI VolumeSnapshot the data comes from.
    pub volume_snapshot_name: String,
    /// DataVolume recreated for the claim, if it had one.
    pub data_volume_name: Option<String>,
}

/// Changes how one volume is restored.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeRestoreOverride {
    /// Annotations added to the restored PVC.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels added to the restored PVC.
    pub labels: Option<BTreeMap<String, String>>,
    /// Name for the restored PVC, in place of a generated one.
    pub restore_name: Option<String>,
    /// Volume of the VM spec that this applies to.
    pub volume_name: Option<String>,
}

closed_enum! {
    /// What a restore does about a target that still runs.
    pub enum TargetReadinessPolicy {
        StopTarget = "StopTarget",
        WaitGracePeriod = "WaitGracePeriod",
        FailImmediate = "FailImmediate",
        WaitEventually = "WaitEventually",
    }
}

open_enum! {
    /// Where restored data goes.
    pub enum VolumeRestorePolicy {
        RandomizeNames = "RandomizeNames",
        InPlace = "InPlace",
        PrefixTargetName = "PrefixTargetName",
    }
}

open_enum! {
    /// Who owns the restored volumes.
    pub enum VolumeOwnershipPolicy {
        Vm = "Vm",
        None = "None",
    }
}
