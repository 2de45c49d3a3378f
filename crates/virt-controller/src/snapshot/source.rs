//! The VM that a snapshot is of: it is locked, told of, and unlocked.

use api::data_volume::DataVolumePhase;
use api::names::{annotation, finalizer};
use api::owner::{controller_of, controller_reference};
use api::snapshot::{
    PersistentVolumeClaim as FrozenClaim, SourceSpec, VirtualMachine as Frozen, VirtualMachineSnapshot as Snapshot,
    VirtualMachineSnapshotContent as Content, VirtualMachineSnapshotContentSpec, VolumeBackup,
};
use api::vm::VirtualMachine;
use api::volumes::Volume;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::events::Kind;
use manager::writing::guarded;
use serde_json::json;

use super::{AGAIN, Making, content_name, has, with_finalizer, without_finalizer};
use crate::vm::revision::specification;
use crate::vmi::Event;
use crate::volume_snapshots::{claim_of, storage_class};

pub(super) const LOCKED: &str = "Source locked and operation in progress";
pub(super) const NOT_LOCKED: &str = "Source not locked";

impl Making<'_> {
    /// Whether this snapshot holds the VM.
    pub(super) fn is_locked(&self, snapshot: &Snapshot) -> bool {
        self.seen.vm.is_some_and(|vm| holds(snapshot, vm) && has(&vm.metadata, finalizer::SNAPSHOT_SOURCE))
    }

    /// Takes the VM if nothing stands in the way. Returns what does.
    pub(super) fn lock(&mut self, snapshot: &Snapshot, vm: &VirtualMachine) -> String {
        if let Some(excuse) = self.obstacle(snapshot, vm) {
            self.recheck(Some(AGAIN));
            return excuse;
        }
        if !holds(snapshot, vm) {
            let status = json!({ "status": { "snapshotInProgress": snapshot.metadata.name } });
            self.plan.vm_status = Some(guarded(&vm.metadata, status));
        } else {
            self.plan.vm = Some(with_finalizer(&vm.metadata, finalizer::SNAPSHOT_SOURCE));
        }
        String::new()
    }

    /// Gives the VM back: first the finalizer goes, then the lock.
    pub(super) fn unlock(&mut self, snapshot: &Snapshot) {
        let Some(vm) = self.seen.vm.filter(|vm| holds(snapshot, vm)) else { return };
        if has(&vm.metadata, finalizer::SNAPSHOT_SOURCE) {
            self.plan.vm = Some(without_finalizer(&vm.metadata, finalizer::SNAPSHOT_SOURCE));
        } else {
            self.plan.vm_status = Some(guarded(&vm.metadata, json!({ "status": { "snapshotInProgress": null } })));
        }
    }

    /// Why the VM cannot be taken now, in KubeVirt's words.
    fn obstacle(&self, snapshot: &Snapshot, vm: &VirtualMachine) -> Option<String> {
        let claims: Vec<&str> = volumes(vm).filter_map(claim_of).collect();
        if let Some(why) = claims.iter().find_map(|claim| self.claim_obstacle(claim)) {
            let name = |part: &Option<String>| part.clone().unwrap_or_default();
            return Some(format!(" source {}/{} {why}", name(&vm.metadata.namespace), name(&vm.metadata.name)));
        }
        if self.seen.vmi.is_none() && self.seen.users > 0 {
            let claims = claims.join(" ");
            return Some(format!(" source is offline but {} pods using PVCs [{claims}]", self.seen.users));
        }
        let holder = vm.status.as_ref().and_then(|status| status.snapshot_in_progress.as_deref());
        let other = holder.filter(|holder| !holder.is_empty() && Some(*holder) != snapshot.metadata.name.as_deref())?;
        Some(format!(" snapshot {other:?} in progress"))
    }

    fn claim_obstacle(&self, name: &str) -> Option<String> {
        let Some(claim) = self.seen.volumes.claims.get(name) else {
            return Some(format!("volume doesnt exist: {name}"));
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return Some(format!("volume is being deleted: {name}"));
        }
        if !is_bound(claim) {
            return Some(format!("volume not bound: {name}"));
        }
        (!self.is_populated(claim)).then(|| format!("volume not populated: {name}"))
    }

    /// A claim that a data volume fills is not used before it is full.
    fn is_populated(&self, claim: &PersistentVolumeClaim) -> bool {
        let Some(owner) = controller_of(&claim.metadata).filter(|owner| owner.kind == "DataVolume") else {
            return true;
        };
        let made = self.seen.volumes.data_volumes.as_ref().and_then(|all| all.get(owner.name.as_str()));
        let annotations = claim.metadata.annotations.as_ref();
        let filled_for = annotations.and_then(|all| all.get(annotation::POPULATED_FOR));
        let phase = made.and_then(|made| made.status.as_ref()?.phase.as_ref());
        filled_for == Some(&owner.name) || phase == Some(&DataVolumePhase::Succeeded)
    }

    /// The content is made of the VM as it is, or as its instance was started.
    pub(super) fn make_content(&mut self, snapshot: &Snapshot, vm: &VirtualMachine) {
        let backups = volumes(vm).filter_map(|volume| self.backup(snapshot, volume));
        let content = Content {
            metadata: ObjectMeta {
                name: Some(content_name(snapshot)),
                namespace: snapshot.metadata.namespace.clone(),
                finalizers: Some(vec![finalizer::SNAPSHOT_CONTENT.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: VirtualMachineSnapshotContentSpec {
                virtual_machine_snapshot_name: snapshot.metadata.name.clone(),
                volume_backups: Some(backups.collect()),
                source: SourceSpec { virtual_machine: None },
            },
            ..Content::default()
        };
        let source = self.frozen(snapshot, vm);
        let spec = VirtualMachineSnapshotContentSpec { source, ..content.spec };
        let message = format!("Successfully created VirtualMachineSnapshotContent {}", content_name(snapshot));
        let reason = "SuccessfulVirtualMachineSnapshotContentCreate";
        self.plan.events.push(Event { kind: Kind::Normal, reason, message });
        self.plan.content = Some(Box::new(Content { spec, ..content }));
    }

    /// What is kept of one volume; none if it cannot be copied.
    fn backup(&self, snapshot: &Snapshot, volume: &Volume) -> Option<VolumeBackup> {
        let claim = self.seen.volumes.claims.get(claim_of(volume)?).filter(|claim| is_bound(claim))?;
        self.seen.classes.copies(storage_class(claim)?).ok()??;
        let uid = snapshot.metadata.uid.as_deref().unwrap_or_default();
        Some(VolumeBackup {
            volume_name: volume.name.clone(),
            volume_snapshot_name: Some(format!("vmsnapshot-{uid}-volume-{}", volume.name)),
            persistent_volume_claim: FrozenClaim {
                metadata: Some(simplified(&claim.metadata)),
                spec: claim.spec.clone(),
            },
        })
    }

    fn frozen(&mut self, snapshot: &Snapshot, vm: &VirtualMachine) -> SourceSpec {
        let mut spec = vm.spec.clone();
        // A guest that runs is restored as it was started, with the disks that it has now.
        let name = self.seen.vmi.and_then(|vmi| vmi.status.as_ref()?.virtual_machine_revision_name.as_deref());
        let started = name.and_then(|name| self.seen.revisions.get(name)).and_then(|one| specification(one));
        if let Some(mut started) = started {
            if let (Some(then), Some(now)) = (&mut started.template.spec, &spec.template.spec) {
                then.volumes.clone_from(&now.volumes);
                then.domain.devices.disks.clone_from(&now.domain.devices.disks);
            }
            started.data_volume_templates = spec.data_volume_templates.take();
            spec = started;
        }
        let source = vm.metadata.name.as_deref().unwrap_or_default();
        if let Some(name) = spec.instancetype.as_mut().and_then(|matcher| matcher.revision_name.as_mut()) {
            self.keep(snapshot, source, name);
        }
        if let Some(name) = spec.preference.as_mut().and_then(|matcher| matcher.revision_name.as_mut()) {
            self.keep(snapshot, source, name);
        }
        let metadata = Some(simplified(&vm.metadata)).into();
        SourceSpec { virtual_machine: Some(Frozen { metadata, spec: Some(spec), status: None }) }
    }

    /// A revision that the VM names goes with the VM: the snapshot has its own.
    fn keep(&mut self, snapshot: &Snapshot, vm: &str, name: &mut String) {
        let Some(revision) = self.seen.revisions.get(name.as_str()) else { return };
        let own = name.replacen(vm, snapshot.metadata.name.as_deref().unwrap_or_default(), 1);
        self.plan.keep.push(ControllerRevision {
            metadata: ObjectMeta {
                name: Some(own.clone()),
                namespace: snapshot.metadata.namespace.clone(),
                labels: revision.metadata.labels.clone(),
                owner_references: controller_reference(snapshot).map(|owner| vec![owner]),
                ..ObjectMeta::default()
            },
            data: revision.data.clone(),
            revision: revision.revision,
        });
        *name = own;
    }
}

fn holds(snapshot: &Snapshot, vm: &VirtualMachine) -> bool {
    let holder = vm.status.as_ref().and_then(|status| status.snapshot_in_progress.as_deref());
    holder.is_some() && holder == snapshot.metadata.name.as_deref()
}

pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

fn volumes(vm: &VirtualMachine) -> impl Iterator<Item = &Volume> {
    vm.spec.template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
}

fn simplified(metadata: &ObjectMeta) -> ObjectMeta {
    ObjectMeta { managed_fields: None, ..metadata.clone() }
}
