//! Which kinds there are, and which nobody acts on yet.

use crate::denial::Denial;
use crate::request::{Operation, Request, Requester, Response};

/// What a resource is to admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    VirtualMachine,
    Instance,
    ReplicaSet,
    Migration,
    MigrationPolicy,
    Pool,
    Preset,
    KubeVirt,
    Instancetype,
    Preference,
    Snapshot,
    /// Made by our own controller.
    SnapshotContent,
    Restore,
    Clone,
    Export,
    /// Not ours; its eviction is.
    Pod,
    /// A kind of ours without a controller.
    Unbuilt(Unbuilt),
    /// Not ours.
    Foreign,
}

/// A kind that would be accepted and not acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unbuilt {
    kind: &'static str,
    instead: &'static str,
}

const BACKUPS: &str = "back up the disks with your storage system while the VM is stopped";

/// Kinds without a controller: group, resource, kind, and what to do instead.
const UNBUILT: [(&str, &str, &str, &str); 3] = [
    ("backup.kubevirt.io", "virtualmachinebackups", "VirtualMachineBackup", BACKUPS),
    ("backup.kubevirt.io", "virtualmachinebackuptrackers", "VirtualMachineBackupTracker", BACKUPS),
    ("plugin.kubevirt.io", "plugins", "Plugin", "set what the guest needs in its spec"),
];

impl Kind {
    pub(crate) fn of(group: &str, resource: &str) -> Self {
        match (group, resource) {
            ("kubevirt.io", "virtualmachines") => Self::VirtualMachine,
            ("kubevirt.io", "virtualmachineinstances") => Self::Instance,
            ("kubevirt.io", "virtualmachineinstancereplicasets") => Self::ReplicaSet,
            ("kubevirt.io", "virtualmachineinstancemigrations") => Self::Migration,
            ("migrations.kubevirt.io", "migrationpolicies") => Self::MigrationPolicy,
            ("kubevirt.io", "virtualmachineinstancepresets") => Self::Preset,
            ("pool.kubevirt.io", "virtualmachinepools") => Self::Pool,
            ("kubevirt.io", "kubevirts") => Self::KubeVirt,
            ("instancetype.kubevirt.io", "virtualmachineinstancetypes" | "virtualmachineclusterinstancetypes") => {
                Self::Instancetype
            }
            ("instancetype.kubevirt.io", "virtualmachinepreferences" | "virtualmachineclusterpreferences") => {
                Self::Preference
            }
            ("snapshot.kubevirt.io", "virtualmachinesnapshots") => Self::Snapshot,
            ("snapshot.kubevirt.io", "virtualmachinesnapshotcontents") => Self::SnapshotContent,
            ("snapshot.kubevirt.io", "virtualmachinerestores") => Self::Restore,
            ("clone.kubevirt.io", "virtualmachineclones") => Self::Clone,
            ("export.kubevirt.io", "virtualmachineexports") => Self::Export,
            ("", "pods") => Self::Pod,
            (group, resource) => {
                let unbuilt = UNBUILT.iter().find(|(of, plural, ..)| *of == group && *plural == resource);
                unbuilt.map_or(Self::Foreign, |(_, _, kind, instead)| Self::Unbuilt(Unbuilt { kind, instead }))
            }
        }
    }
}

/// Refuses new objects. Those that are there, from another installation for instance, can be changed and deleted.
pub(crate) fn admit_unbuilt(request: &Request<'_>, unbuilt: &Unbuilt) -> Response {
    let Unbuilt { kind, instead } = unbuilt;
    if request.operation != Operation::Create || request.requester == Requester::Component {
        return Response::allowed();
    }
    Response::denied(Denial::forbidden(format!("kind: {kind} is not supported yet; {instead}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_ours_is_decided_about() {
        for crd in api::crd::all().unwrap() {
            let (group, plural) = (crd.spec.group.as_str(), crd.spec.names.plural.as_str());
            let kind = Kind::of(group, plural);
            assert_ne!(kind, Kind::Foreign, "{plural}.{group}");
            if let Kind::Unbuilt(unbuilt) = kind {
                assert_eq!(unbuilt.kind, crd.spec.names.kind);
            }
        }
        assert_eq!(Kind::of("", "services"), Kind::Foreign);
    }
}
