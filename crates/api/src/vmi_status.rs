//! What is observed about an instance: phase, conditions, addresses, volumes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::conditions::ConditionStatus;
use crate::data_volume::VolumeMode;
use crate::domain::Machine;
use crate::enums::open_enum;
use crate::migration::VirtualMachineInstanceMigrationState;
use crate::nullable::Nullable;
use crate::quantity::Quantity;
use crate::schema;

/// Observed state of a running guest.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceStatus {
    /// VSOCK context ID by which the host reaches the guest.
    #[serde(rename = "VSOCKCID")]
    #[schemars(extend("format" = "int64", "maximum" = u32::MAX))]
    pub vsock_cid: Option<u32>,
    /// Launcher pod UIDs mapped to nodes; two during migration.
    pub active_pods: Option<BTreeMap<String, String>>,
    /// State of dirty block tracking for incremental backups.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub changed_block_tracking: Nullable<ChangedBlockTrackingStatus>,
    /// Observed aspects such as Ready or LiveMigratable.
    pub conditions: Option<Vec<VirtualMachineInstanceCondition>>,
    /// Topology the guest sees now, after CPU hotplug.
    #[serde(rename = "currentCPUTopology")]
    pub current_cpu_topology: Option<CPUTopology>,
    /// Node being drained that the guest must leave.
    pub evacuation_node_name: Option<String>,
    /// frozen while guest filesystems are quiesced, else empty.
    pub fs_freeze_status: Option<FsFreezeStatus>,
    /// Operating system as told by the guest agent.
    #[serde(rename = "guestOSInfo")]
    pub guest_os_info: Option<VirtualMachineInstanceGuestOSInfo>,
    /// Network interfaces with addresses seen at run time.
    pub interfaces: Option<Vec<VirtualMachineInstanceNetworkInterface>>,
    /// Checksums of kernel and initrd for direct boot.
    pub kernel_boot_status: Option<KernelBootStatus>,
    /// virt-launcher image that the guest runs in.
    pub launcher_container_image_version: Option<String>,
    /// QEMU machine type in use, with aliases resolved.
    pub machine: Option<Machine>,
    /// Guest memory at boot, requested and plugged in.
    pub memory: Option<MemoryStatus>,
    /// Volumes whose data moves to other claims.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub migrated_volumes: Option<Vec<StorageMigratedVolumeInfo>>,
    /// LiveMigration, or BlockMigration if disks are copied.
    pub migration_method: Option<MigrationMethod>,
    /// Progress of the current or last live migration.
    pub migration_state: Option<VirtualMachineInstanceMigrationState>,
    /// Unix if migrations go through unix sockets.
    pub migration_transport: Option<MigrationTransport>,
    /// Node the guest runs on.
    pub node_name: Option<String>,
    /// Pending, Scheduling, Scheduled, Running, Succeeded, Failed or Unknown.
    pub phase: Option<VirtualMachineInstancePhase>,
    /// When each phase was entered.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub phase_transition_timestamps: Option<Vec<VirtualMachineInstancePhaseTransitionTimestamp>>,
    /// Guaranteed, Burstable or BestEffort.
    pub qos_class: Option<String>,
    /// CamelCase word for why the VMI failed, such as Evicted.
    pub reason: Option<String>,
    /// UID that QEMU runs as: 107, or 0 for root.
    pub runtime_user: Option<i64>,
    /// SELinux label of the launcher pod; none if disabled.
    pub selinux_context: Option<String>,
    /// What a node must offer to run or receive the guest.
    pub topology_hints: Option<TopologyHints>,
    /// ControllerRevision of the VM spec it was started from.
    pub virtual_machine_revision_name: Option<String>,
    /// State of each volume, hotplugged ones included.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volume_status: Option<Vec<VolumeStatus>>,
}

/// One observed aspect of a VMI.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceCondition {
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Aspect reported, such as LiveMigratable or AgentConnected.
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

/// When a VMI entered a phase.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstancePhaseTransitionTimestamp {
    /// Phase that was entered.
    pub phase: Option<VirtualMachineInstancePhase>,
    /// Time of the change.
    #[schemars(with = "Option<schema::Time>")]
    pub phase_transition_timestamp: Option<Time>,
}

/// A network interface of the guest as observed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceNetworkInterface {
    /// Where the data is from: domain, guest-agent, multus-status.
    pub info_source: Option<String>,
    /// Device name inside the guest, such as eth0.
    pub interface_name: Option<String>,
    /// First of ipAddresses.
    pub ip_address: Option<String>,
    /// All IPv4 and IPv6 addresses of the interface.
    pub ip_addresses: Option<Vec<String>>,
    /// Carrier seen by the guest: up or down.
    pub link_state: Option<String>,
    /// MAC address of the guest side.
    pub mac: Option<String>,
    /// Network in the spec; empty if only the guest knows it.
    pub name: Option<String>,
    /// Device name inside the launcher pod.
    pub pod_interface_name: Option<String>,
    /// virtio-net queue pairs given to the device.
    pub queue_count: Option<i32>,
}

/// Operating system data from the guest agent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceGuestOSInfo {
    /// Short identifier such as fedora or mswindows.
    pub id: Option<String>,
    /// Kernel release as in uname -r.
    pub kernel_release: Option<String>,
    /// Kernel build string as in uname -v.
    pub kernel_version: Option<String>,
    /// Hardware name as in uname -m, such as x86_64.
    pub machine: Option<String>,
    /// Distribution or product, such as Fedora Linux.
    pub name: Option<String>,
    /// Name and version made for display.
    pub pretty_name: Option<String>,
    /// Version with its code name, if it has one.
    pub version: Option<String>,
    /// Bare version number, such as 42 or 9.6.
    pub version_id: Option<String>,
}

/// Observed state of one volume of a VMI.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// Volume name from the spec.
    pub name: String,
    /// Device name the guest is likely to show, such as vda.
    pub target: String,
    /// Image checksum, if the volume is a containerDisk.
    pub container_disk_volume: Option<ContainerDiskInfo>,
    /// Attachment pod, if the volume was hotplugged.
    pub hotplug_volume: Option<HotplugVolumeStatus>,
    /// Dump details, if the volume receives memory dumps.
    pub memory_dump_volume: Option<DomainMemoryDumpInfo>,
    /// Details on the phase for a human reader.
    pub message: Option<String>,
    /// Properties of the claim behind the volume.
    pub persistent_volume_claim_info: Option<PersistentVolumeClaimInfo>,
    /// Hotplug step: Pending, Bound, AttachedToNode, MountedToPod, Ready or Detaching.
    pub phase: Option<VolumePhase>,
    /// CamelCase word for why the phase was reached.
    pub reason: Option<String>,
    /// Bytes the volume occupies.
    pub size: Option<i64>,
}

/// Pod that brings a hotplugged volume to the node.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HotplugVolumeStatus {
    /// Attachment pod that mounts the volume.
    pub attach_pod_name: Option<String>,
    /// UID of that attachment pod.
    #[serde(rename = "attachPodUID")]
    pub attach_pod_uid: Option<String>,
}

/// Identity of a containerDisk image.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ContainerDiskInfo {
    /// CRC32 of the image, compared on migration.
    #[schemars(extend("format" = "int64", "maximum" = u32::MAX))]
    pub checksum: Option<u32>,
}

/// Claim properties that guest and migration depend on.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolumeClaimInfo {
    /// ReadWriteMany here is what allows live migration.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub access_modes: Option<Vec<String>>,
    /// Size that was provisioned.
    pub capacity: Option<BTreeMap<String, Quantity>>,
    /// Claim in the namespace of the VMI.
    pub claim_name: Option<String>,
    /// Share kept free for the filesystem, such as 0.055.
    #[schemars(extend("pattern" = r"^(0(?:\.\d{1,3})?|1)$"))]
    pub filesystem_overhead: Option<String>,
    /// True if all blocks were written in advance.
    pub preallocated: Option<bool>,
    /// Size that was asked for; at most the capacity.
    pub requests: Option<BTreeMap<String, Quantity>>,
    /// Block or Filesystem.
    pub volume_mode: Option<VolumeMode>,
}

/// A memory dump kept on a volume.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainMemoryDumpInfo {
    /// Claim that holds the dump.
    pub claim_name: Option<String>,
    /// When the dump finished or failed.
    #[schemars(with = "Option<schema::Time>")]
    pub end_timestamp: Option<Time>,
    /// When the dump began.
    #[schemars(with = "Option<schema::Time>")]
    pub start_timestamp: Option<Time>,
    /// File inside the claim that holds the dump.
    pub target_file_name: Option<String>,
}

/// Boot files taken from the kernelBoot container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelBootStatus {
    /// Identity of the initial RAM disk.
    pub initrd_info: Option<InitrdInfo>,
    /// Identity of the kernel image.
    pub kernel_info: Option<KernelInfo>,
}

/// Identity of a kernel booted directly.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct KernelInfo {
    /// CRC32 of the kernel file, compared on migration.
    #[schemars(extend("format" = "int64", "maximum" = u32::MAX))]
    pub checksum: Option<u32>,
}

/// Identity of an initial RAM disk booted directly.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct InitrdInfo {
    /// CRC32 of the initrd file, compared on migration.
    #[schemars(extend("format" = "int64", "maximum" = u32::MAX))]
    pub checksum: Option<u32>,
}

/// Host properties a target node must match.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyHints {
    /// Time stamp counter rate in Hz that the guest relies on.
    pub tsc_frequency: Option<i64>,
}

/// Guest memory sizes, which differ after hotplug.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryStatus {
    /// Memory the guest started with.
    pub guest_at_boot: Option<Quantity>,
    /// Memory the guest has now.
    pub guest_current: Option<Quantity>,
    /// Memory last asked for by hotplug.
    pub guest_requested: Option<Quantity>,
    /// Added to guest memory for QEMU and the launcher pod.
    pub memory_overhead: Option<Quantity>,
}

/// Layout of the virtual CPUs; the product is their number.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct CPUTopology {
    /// Cores per socket.
    pub cores: Option<u32>,
    /// Sockets; the dimension that CPU hotplug changes.
    pub sockets: Option<u32>,
    /// Threads per core.
    pub threads: Option<u32>,
}

/// A volume that moves from one claim to another.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageMigratedVolumeInfo {
    /// Volume name from the spec; stays the same.
    pub volume_name: String,
    /// Claim the data is copied to.
    #[serde(rename = "destinationPVCInfo")]
    pub destination_pvc_info: Option<PersistentVolumeClaimInfo>,
    /// Claim the data is copied from.
    #[serde(rename = "sourcePVCInfo")]
    pub source_pvc_info: Option<PersistentVolumeClaimInfo>,
}

/// State of dirty block tracking of the disks.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedBlockTrackingStatus {
    /// Tracking state, such as Initializing, Enabled or PendingRestart.
    pub state: ChangedBlockTrackingState,
    /// Backup that is running or ran last.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    pub backup_status: Nullable<VirtualMachineInstanceBackupStatus>,
}

/// Progress of a backup of the guest disks.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceBackupStatus {
    /// Warning or error text about the backup.
    pub backup_msg: Option<String>,
    /// VirtualMachineBackup being served.
    pub backup_name: Option<String>,
    /// Checkpoint the next incremental can start from.
    pub checkpoint_name: Option<String>,
    /// True once the backup ended, also after failure.
    pub completed: Option<bool>,
    /// When the backup ended.
    #[schemars(with = "Option<schema::Time>")]
    pub end_timestamp: Option<Time>,
    /// True if the backup ended in an error.
    pub failed: Option<bool>,
    /// Whether guest filesystems were frozen for consistency.
    pub quiesce_status: Option<String>,
    /// When the backup began.
    #[schemars(with = "Option<schema::Time>")]
    pub start_timestamp: Option<Time>,
    /// Volumes included in the backup.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub volumes: Option<Vec<VirtualMachineInstanceBackupVolumeInfo>>,
}

/// A volume included in a backup.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineInstanceBackupVolumeInfo {
    /// Volume name from the VMI spec.
    pub volume_name: String,
}

open_enum! {
    /// Where an instance is in its life.
    pub enum VirtualMachineInstancePhase {
        /// No controller has seen it yet.
        Unset = "",
        /// Accepted; its pod does not exist yet.
        Pending = "Pending",
        /// Its pod waits for a node or for its containers.
        Scheduling = "Scheduling",
        /// The pod is ready; the node takes over.
        Scheduled = "Scheduled",
        /// QEMU runs, paused or not.
        Running = "Running",
        /// It ended as intended.
        Succeeded = "Succeeded",
        /// It ended with an error.
        Failed = "Failed",
        /// A migration target that waits for its source.
        WaitingForSync = "WaitingForSync",
        /// The node does not answer.
        Unknown = "Unknown",
    }
}

open_enum! {
    /// How far a volume is on its way into the guest.
    pub enum VolumePhase {
        Pending = "Pending",
        Bound = "Bound",
        AttachedToNode = "AttachedToNode",
        MountedToPod = "MountedToPod",
        Ready = "Ready",
        Detaching = "Detaching",
        UnMountedFromPod = "UnMountedFromPod",
        MemoryDumpInProgress = "MemoryDumpInProgress",
        MemoryDumpCompleted = "MemoryDumpCompleted",
        MemoryDumpFailed = "MemoryDumpFailed",
    }
}

open_enum! {
    /// What a live migration of this instance would copy.
    pub enum MigrationMethod {
        LiveMigration = "LiveMigration",
        BlockMigration = "BlockMigration",
    }
}

open_enum! {
    /// How migration traffic leaves the pod.
    pub enum MigrationTransport {
        Unix = "Unix",
    }
}

open_enum! {
    /// Whether the guest file systems accept writes.
    pub enum FsFreezeStatus {
        Thawed = "thawed",
        Frozen = "frozen",
    }
}

open_enum! {
    /// Whether changed blocks are tracked for incremental backups.
    pub enum ChangedBlockTrackingState {
        Undefined = "",
        PendingRestart = "PendingRestart",
        Initializing = "Initializing",
        Enabled = "Enabled",
        Disabled = "Disabled",
        FeatureGateDisabled = "IncrementalBackupFeatureGateDisabled",
    }
}

impl VirtualMachineInstancePhase {
    /// It has ended and never comes back.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// QEMU runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running)
    }

    /// Its pod is ready and its node has taken over, but QEMU does not run yet.
    #[must_use]
    pub fn is_scheduled(&self) -> bool {
        matches!(self, Self::Scheduled)
    }

    /// Its pod exists and is not ready yet.
    #[must_use]
    pub fn is_scheduling(&self) -> bool {
        matches!(self, Self::Scheduling)
    }

    /// No pod was made for it yet.
    #[must_use]
    pub fn is_unprocessed(&self) -> bool {
        matches!(self, Self::Unset | Self::Pending)
    }
}
