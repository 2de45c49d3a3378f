//! Names that other tools know: labels, annotations, finalizers. They are the contract and never change.

/// API groups.
pub mod group {
    /// Virtual machines, their instances and the installation.
    pub const KUBEVIRT: &str = "kubevirt.io";
    /// Operations on a VM that are no objects: start, console, ...
    pub const SUBRESOURCES: &str = "subresources.kubevirt.io";
}

/// Labels on pods, instances, VMs and nodes.
pub mod label {
    /// Marks what belongs to a VM; the value is one of [`super::app`].
    pub const APP: &str = "kubevirt.io";
    /// On a pod: the UID of its instance.
    pub const CREATED_BY: &str = "kubevirt.io/created-by";
    /// On an instance: the node that owns it.
    pub const NODE_NAME: &str = "kubevirt.io/nodeName";
    /// On an instance in migration: the node it moves to.
    pub const MIGRATION_TARGET_NODE_NAME: &str = "kubevirt.io/migrationTargetNodeName";
    /// On a target pod: the UID of the migration it serves.
    pub const MIGRATION_JOB_UID: &str = "kubevirt.io/migrationJobUID";
    /// On a migration: the name of its instance.
    pub const MIGRATION_SELECTOR: &str = "kubevirt.io/vmi-name";
    /// On a node: whether it takes instances.
    pub const SCHEDULABLE: &str = "kubevirt.io/schedulable";
    /// On what a VM owns: the VM's name.
    pub const VM: &str = "kubevirt.io/vm";
    /// On an instance whose launcher is older than the installation.
    pub const OUTDATED_LAUNCHER_IMAGE: &str = "kubevirt.io/outdatedLauncherImage";
    /// On a node that can run realtime guests.
    pub const REALTIME: &str = "kubevirt.io/realtime";
    /// On a revision: the kind of the instancetype or preference in it.
    pub const REVISION_OBJECT_KIND: &str = "instancetype.kubevirt.io/object-kind";
    /// On a revision: the API version of the object in it.
    pub const REVISION_OBJECT_VERSION: &str = "instancetype.kubevirt.io/object-version";
    /// On a revision: the name of the object in it.
    pub const REVISION_OBJECT_NAME: &str = "instancetype.kubevirt.io/object-name";
    /// On a revision: the UID of the object in it.
    pub const REVISION_OBJECT_UID: &str = "instancetype.kubevirt.io/object-uid";
    /// On a revision: the generation of the object in it.
    pub const REVISION_OBJECT_GENERATION: &str = "instancetype.kubevirt.io/object-generation";
    /// On a VolumeSnapshot: the VM that it is of.
    pub const SNAPSHOT_SOURCE_NAME: &str = "snapshot.kubevirt.io/source-vm-name";
    /// On a VolumeSnapshot: the namespace of that VM.
    pub const SNAPSHOT_SOURCE_NAMESPACE: &str = "snapshot.kubevirt.io/source-vm-namespace";
    /// On a restored claim: the VM whose bytes it has.
    pub const RESTORE_SOURCE_NAME: &str = "restore.kubevirt.io/source-vm-name";
    /// On a restored claim: the namespace of that VM.
    pub const RESTORE_SOURCE_NAMESPACE: &str = "restore.kubevirt.io/source-vm-namespace";
    /// On a claim: the VM whose firmware and TPM state it holds.
    pub const PERSISTENT_STATE_FOR: &str = "persistent-state-for";
    /// On a node: CPU features, one label each.
    pub const CPU_FEATURE_PREFIX: &str = "cpu-feature.node.kubevirt.io/";
    /// On a node: CPU models it can run, one label each.
    pub const CPU_MODEL_PREFIX: &str = "cpu-model.node.kubevirt.io/";
    /// On a node: CPU models it can take by migration, one label each.
    pub const CPU_MODEL_MIGRATION_PREFIX: &str = "cpu-model-migration.node.kubevirt.io/";
    /// On a node: the model that host-model stands for.
    pub const HOST_MODEL_CPU_PREFIX: &str = "host-model-cpu.node.kubevirt.io/";
    /// On a node: features host-model needs beyond its model.
    pub const HOST_MODEL_REQUIRED_FEATURES_PREFIX: &str = "host-model-required-features.node.kubevirt.io/";
    /// On a node: the CPU vendor.
    pub const CPU_VENDOR_PREFIX: &str = "cpu-vendor.node.kubevirt.io/";
    /// On a node: facts about the time-stamp counter.
    pub const CPU_TIMER_PREFIX: &str = "cpu-timer.node.kubevirt.io/";
    /// On a node: Hyper-V enlightenments, one label each.
    pub const HYPERV_PREFIX: &str = "hyperv.node.kubevirt.io/";
    /// On a node: QEMU machine types, one label each.
    pub const MACHINE_TYPE_PREFIX: &str = "machine-type.node.kubevirt.io/";
}

/// Values of [`label::APP`].
pub mod app {
    /// The pod of an instance.
    pub const LAUNCHER: &str = "virt-launcher";
    /// The pod that brings a hotplugged volume to the node.
    pub const HOTPLUG_DISK: &str = "hotplug-disk";
}

/// Annotations.
pub mod annotation {
    /// On a launcher pod: the instance's name.
    pub const DOMAIN: &str = "kubevirt.io/domain";
    /// On a node: when its agent last said it was alive.
    pub const HEARTBEAT: &str = "kubevirt.io/heartbeat";
    /// On an instance: the generation of the VM it was started from.
    pub const VM_GENERATION: &str = "kubevirt.io/vm-generation";
    /// On a pod that only exists to bind claims.
    pub const EPHEMERAL_PROVISIONING: &str = "kubevirt.io/ephemeral-provisioning";
    /// On a VM: `false` leaves its data volumes alone until it starts.
    pub const IMMEDIATE_DATA_VOLUME_CREATION: &str = "kubevirt.io/immediate-data-volume-creation";
    /// On any object: the newest API version a controller saw it in.
    pub const LATEST_OBSERVED_API_VERSION: &str = "kubevirt.io/latest-observed-api-version";
    /// On any object: the API version it is stored in.
    pub const STORAGE_OBSERVED_API_VERSION: &str = "kubevirt.io/storage-observed-api-version";
    /// On a VM and on restored claims: the restore that last changed it, as `name-uid`.
    pub const LAST_RESTORE_UID: &str = "restore.kubevirt.io/lastRestoreUID";
    /// On a restored claim or data volume: the name of its restore.
    pub const RESTORE_NAME: &str = "restore.kubevirt.io/name";
    /// On a restored claim of a VM that does not exist yet: the restore after which the VM owns it.
    pub const RESTORE_OWNED_BY_VM: &str = "restore.kubevirt.io/owned-by-vm";
    /// On a claim: `false` until its data is complete. Nobody copies it before, or makes a disk in it.
    pub const POPULATED: &str = "orlop.dev/populated";
    /// On a claim: the data volume that it was filled for.
    pub const POPULATED_FOR: &str = "cdi.kubevirt.io/storage.populatedFor";
    /// On a data volume: its claim is filled already.
    pub const PRE_POPULATED: &str = "cdi.kubevirt.io/storage.prePopulated";
    /// On a claim: what its bytes are, as CDI says.
    pub const CONTENT_TYPE: &str = "cdi.kubevirt.io/storage.contentType";
    /// On a snapshot's content: the guest is stopped, or about to be, while its disks are copied. The value is
    /// the instance's UID and when the stop was decided on.
    pub const STOPPED_FOR_SNAPSHOT: &str = "orlop.dev/stopped-for-snapshot";
    /// On an instance: containers that may edit its domain.
    pub const HOOK_SIDECARS: &str = "hooks.kubevirt.io/hookSidecars";
    /// On an instance: the VirtualMachineInstancetype it was sized by.
    pub const INSTANCETYPE: &str = "kubevirt.io/instancetype-name";
    /// On an instance: the VirtualMachineClusterInstancetype it was sized by.
    pub const CLUSTER_INSTANCETYPE: &str = "kubevirt.io/cluster-instancetype-name";
    /// On an instance: the VirtualMachinePreference that filled it in.
    pub const PREFERENCE: &str = "kubevirt.io/preference-name";
    /// On an instance: the VirtualMachineClusterPreference that filled it in.
    pub const CLUSTER_PREFERENCE: &str = "kubevirt.io/cluster-preference-name";
    /// On a target pod: the name of the migration it serves.
    pub const MIGRATION_JOB_NAME: &str = "kubevirt.io/migrationJobName";
    /// On a migration: a node is emptied by it; the value is the node's name.
    pub const EVACUATION_MIGRATION: &str = "kubevirt.io/evacuationMigration";
    /// On a migration: an outdated launcher is replaced by it.
    pub const WORKLOAD_UPDATE_MIGRATION: &str = "kubevirt.io/workloadUpdateMigration";
    /// On an instance: its guest is not to be moved for an update, and one that is being moved for it stays.
    pub const WORKLOAD_UPDATE_ABORTION: &str = "kubevirt.io/testWorkloadUpdateMigrationAbortion";
    /// On an instance whose pod is being evicted: who asked for that, where it was the descheduler.
    pub const EVICTION_SOURCE: &str = "kubevirt.io/eviction-source";
    /// On a launcher pod: its eviction was asked for, and the guest is on its way out. The descheduler counts such pods.
    pub const EVICTION_IN_PROGRESS: &str = "descheduler.alpha.kubernetes.io/eviction-in-progress";
    /// On a migration: seconds that its target pod may be without a node that could take it.
    pub const MIGRATION_UNSCHEDULABLE_TIMEOUT: &str = "kubevirt.io/migrationUnschedulablePodTimeoutSeconds";
    /// On a migration: seconds that its target pod may take until it runs.
    pub const MIGRATION_PENDING_TIMEOUT: &str = "kubevirt.io/migrationPendingPodTimeoutSeconds";
    /// On a node: keeps the host-model labels of an obsolete CPU.
    pub const OBSOLETE_HOST_MODEL: &str = "node-labeller.kubevirt.io/obsolete-host-model";
    /// On an instance and its VM: what the guest sees, as its launcher knows it. The next start goes on from it.
    pub const GUEST: &str = "orlop.dev/guest";
    /// On a node: where its virt-handler serves virt-api.
    pub const VIRT_HANDLER: &str = "orlop.dev/virt-handler";
    /// On a node: its labels are kept by someone else.
    pub const SKIP_NODE_LABELLER: &str = "node-labeller.kubevirt.io/skip-node";
}

/// Finalizers.
pub mod finalizer {
    /// On an instance: its pod and its node are cleaned up first.
    pub const VMI: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
    /// On a VM and its instance: the VM controller has seen the end of the instance.
    pub const VM_CONTROLLER: &str = "kubevirt.io/virtualMachineControllerFinalize";
    /// On a migration: both sides are cleaned up first.
    pub const MIGRATION: &str = "kubevirt.io/migrationJobFinalize";
    /// On a snapshot of a VM: its VM is unlocked and its content is cleaned up first.
    pub const SNAPSHOT: &str = "snapshot.kubevirt.io/vmsnapshot-protection";
    /// On a snapshot's content: the guest goes on first.
    pub const SNAPSHOT_CONTENT: &str = "snapshot.kubevirt.io/vmsnapshotcontent-protection";
    /// On a VM: a snapshot is taken of it.
    pub const SNAPSHOT_SOURCE: &str = "snapshot.kubevirt.io/snapshot-source-protection";
    /// On a restore: its VM is unlocked first.
    pub const RESTORE: &str = "snapshot.kubevirt.io/vmrestore-protection";
    /// Kubernetes' own: children outlive their owner.
    pub const ORPHAN: &str = "orphan";
}

/// Taint keys.
pub mod taint {
    /// Drains a node of its VMs; deprecated in favour of `kubectl drain`.
    pub const DRAIN: &str = "kubevirt.io/drain";
}

/// The condition of a claim: it is False while there is not enough room for what it asks for.
pub const HAS_ROOM: &str = "orlop.dev/HasRoom";

/// The pod condition that tells whether the guest is not paused; a readiness gate of the launcher pod.
pub const UNPAUSED_READINESS_GATE: &str = "kubevirt.io/virtual-machine-unpaused";
