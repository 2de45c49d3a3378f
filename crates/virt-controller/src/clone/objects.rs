//! The snapshot and the restore that a clone makes.

use api::clone::VolumeNamePolicy;
use api::owner::controller_reference;
use api::restore::{VirtualMachineRestore as Restore, VirtualMachineRestoreSpec, VolumeRestorePolicy};
use api::snapshot::{VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotSpec};
use api::vm::VirtualMachineSpec;
use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Making, VM, patches, restore_name, snapshot_name, target_name};

const GROUP: &str = "kubevirt.io";

impl Making<'_> {
    pub(super) fn own_snapshot(&self) -> Snapshot {
        let clone = self.seen.clone;
        Snapshot {
            metadata: self.own_metadata(snapshot_name(clone)),
            spec: VirtualMachineSnapshotSpec {
                source: machine(clone.spec.source.name.clone()),
                ..VirtualMachineSnapshotSpec::default()
            },
            ..Snapshot::default()
        }
    }

    pub(super) fn own_restore(&self, snapshot: &str, spec: &VirtualMachineSpec, metadata: &ObjectMeta) -> Restore {
        let clone = self.seen.clone;
        let policy = clone.spec.volume_name_policy.map(|policy| match policy {
            VolumeNamePolicy::RandomizeNames => VolumeRestorePolicy::RandomizeNames,
            VolumeNamePolicy::PrefixTargetName => VolumeRestorePolicy::PrefixTargetName,
        });
        Restore {
            metadata: self.own_metadata(restore_name(clone)),
            spec: VirtualMachineRestoreSpec {
                target: machine(target_name(clone)),
                virtual_machine_snapshot_name: snapshot.to_owned(),
                patches: Some(patches::of(&clone.spec, metadata, spec)).filter(|patches| !patches.is_empty()),
                volume_restore_policy: policy,
                ..VirtualMachineRestoreSpec::default()
            },
            ..Restore::default()
        }
    }

    fn own_metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: self.seen.clone.metadata.namespace.clone(),
            owner_references: controller_reference(self.seen.clone).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        }
    }
}

fn machine(name: String) -> TypedLocalObjectReference {
    TypedLocalObjectReference { api_group: Some(GROUP.to_owned()), kind: VM.to_owned(), name }
}
