//! Bodies of requests and answers under subresources.kubevirt.io.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::TypedObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::devices::Disk;
use crate::duration::Duration;
use crate::schema::core;
use crate::vmi_status::{FsFreezeStatus, VirtualMachineInstanceGuestOSInfo};
use crate::volumes::HotplugVolumeSource;

/// Body of the start request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StartOptions {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Set to All to validate without starting.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub dry_run: Option<Vec<String>>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Holds the guest before its first instruction.
    pub paused: Option<bool>,
}

/// Body of the stop request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StopOptions {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Set to All to validate without stopping.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub dry_run: Option<Vec<String>>,
    /// Seconds until the guest is killed; overrides the spec.
    pub grace_period: Option<i64>,
    /// Kind of this object.
    pub kind: Option<String>,
}

/// Body of the restart request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartOptions {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Set to All to validate without restarting.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub dry_run: Option<Vec<String>>,
    /// 0 kills the guest at once; other values are refused.
    pub grace_period_seconds: Option<i64>,
    /// Kind of this object.
    pub kind: Option<String>,
}

/// Body of the pause request, which halts all vCPUs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseOptions {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Set to All to validate without pausing.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub dry_run: Option<Vec<String>>,
    /// Kind of this object.
    pub kind: Option<String>,
}

/// Body of the unpause request, which resumes vCPUs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnpauseOptions {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Set to All to validate without resuming.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub dry_run: Option<Vec<String>>,
    /// Kind of this object.
    pub kind: Option<String>,
}

/// Body of the live migration request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MigrateOptions {
    /// Labels the target needs beyond the VM's own selector.
    pub added_node_selector: Option<BTreeMap<String, String>>,
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Set to All to validate without migrating.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub dry_run: Option<Vec<String>>,
    /// Kind of this object.
    pub kind: Option<String>,
}

/// Body of the volume hotplug request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddVolumeOptions {
    /// Name given to the new volume and its disk.
    pub name: String,
    /// How the guest sees the new volume.
    pub disk: Disk,
    /// PVC or DataVolume to plug in.
    pub volume_source: HotplugVolumeSource,
    /// Set to All to validate without plugging.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub dry_run: Option<Vec<String>>,
}

/// Body of the volume unplug request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoveVolumeOptions {
    /// Hotplugged volume to take away.
    pub name: String,
    /// Set to All to validate without unplugging.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub dry_run: Option<Vec<String>>,
}

/// Body of the request that calls off an evacuation.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EvacuateCancelOptions {
    /// Cancels only evacuations away from this node.
    pub evacuation_node_name: String,
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Set to All to validate without cancelling.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub dry_run: Option<Vec<String>>,
    /// Kind of this object.
    pub kind: Option<String>,
}

/// Body of the filesystem freeze request.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FreezeUnfreezeTimeout {
    /// Thaws by itself after this long, e.g. 5m0s.
    pub unfreeze_timeout: Duration,
}

/// An object the VM depends on, with its dependencies.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectGraphNode {
    /// Group, kind, namespace and name of the object.
    #[schemars(with = "core::TypedObjectReference")]
    pub object_reference: TypedObjectReference,
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Objects that this one needs in turn.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub children: Option<Vec<ObjectGraphNode>>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Classification of the node, e.g. storage or network.
    pub labels: Option<BTreeMap<String, String>>,
    /// True if the VM can be restored without it.
    pub optional: Option<bool>,
}

/// Filters for the object graph request.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectGraphOptions {
    /// False drops nodes marked optional; true if unset.
    pub include_optional_nodes: Option<bool>,
    /// Keeps only nodes whose labels match.
    #[schemars(with = "Option<core::LabelSelector>")]
    pub label_selector: Option<LabelSelector>,
}

/// Launch data for a guest owner to verify.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SEVMeasurementInfo {
    /// Major API version of the SEV firmware.
    pub api_major: Option<i32>,
    /// Minor API version of the SEV firmware.
    pub api_minor: Option<i32>,
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Build number of the SEV firmware.
    #[serde(rename = "buildID")]
    pub build_id: Option<i32>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// SHA-256 of the guest firmware binary.
    #[serde(rename = "loaderSHA")]
    pub loader_sha: Option<String>,
    /// Launch measurement and nonce, base64.
    pub measurement: Option<String>,
    /// SEV policy bits the guest was launched with.
    pub policy: Option<i32>,
}

/// Certificates of the node's AMD secure processor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SEVPlatformInfo {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Chain that signs the platform key, base64.
    pub cert_chain: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Platform Diffie-Hellman public key, base64.
    pub pdh: Option<String>,
}

/// A secret to inject into an attested guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SEVSecretOptions {
    /// Packet header with IV and MAC, base64.
    pub header: Option<String>,
    /// Payload encrypted for this launch, base64.
    pub secret: Option<String>,
}

/// Launch session parameters from the guest owner.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SEVSessionOptions {
    /// Guest owner's Diffie-Hellman certificate, base64.
    pub dh_cert: Option<String>,
    /// Wrapped session keys and policy, base64.
    pub session: Option<String>,
}

/// What the QEMU guest agent reports.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceGuestAgentInfo {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Set to frozen while filesystems are quiesced.
    pub fs_freeze_status: Option<FsFreezeStatus>,
    /// Filesystems mounted in the guest.
    pub fs_info: Option<VirtualMachineInstanceFileSystemInfo>,
    /// Version of qemu-ga running in the guest.
    pub guest_agent_version: Option<String>,
    /// Host name as configured inside the guest.
    pub hostname: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Name, version and kernel of the guest system.
    pub os: Option<VirtualMachineInstanceGuestOSInfo>,
    /// Commands the agent knows, enabled or not.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub supported_commands: Option<Vec<GuestAgentCommandInfo>>,
    /// Zone and UTC offset in seconds, e.g. CET, 3600.
    pub timezone: Option<String>,
    /// Users logged in to the guest right now.
    pub user_list: Option<Vec<VirtualMachineInstanceGuestOSUser>>,
}

/// A command of the guest agent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct GuestAgentCommandInfo {
    /// QMP name, e.g. guest-fsfreeze-freeze.
    pub name: String,
    /// False if the agent's configuration blocks it.
    pub enabled: Option<bool>,
}

/// A user session in the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceGuestOSUser {
    /// Account name inside the guest.
    pub user_name: String,
    /// Windows logon domain; empty on Linux.
    pub domain: Option<String>,
    /// Login time in seconds since the Unix epoch.
    pub login_time: Option<f64>,
}

/// A filesystem mounted in the guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceFileSystem {
    /// Guest device name, e.g. vda1.
    pub disk_name: String,
    /// Driver name, e.g. ext4, xfs or NTFS.
    pub file_system_type: String,
    /// Path or drive letter inside the guest.
    pub mount_point: String,
    /// Capacity as the guest counts it.
    pub total_bytes: i32,
    /// Occupied space as the guest counts it.
    pub used_bytes: i32,
    /// Drives the filesystem lies on.
    pub disk: Option<Vec<VirtualMachineInstanceFileSystemDisk>>,
}

/// A drive below a guest filesystem.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceFileSystemDisk {
    /// Bus the guest sees, e.g. virtio, scsi or sata.
    pub bus_type: String,
    /// Drive serial number, matches the disk's serial field.
    pub serial: Option<String>,
}

/// Wrapper around the filesystem list.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineInstanceFileSystemInfo {
    /// One entry per mounted filesystem.
    pub disks: Vec<VirtualMachineInstanceFileSystem>,
}
