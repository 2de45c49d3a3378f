//! The claims of a restore: made of VolumeSnapshots, beside those that the VM has or in their place.

use std::collections::BTreeMap;

use api::names::{annotation, label};
use api::owner::{controller_of, controller_reference};
use api::restore::VolumeRestore;
use api::snapshot::{VirtualMachineSnapshotContent as Content, VolumeBackup};
use api::vm::VirtualMachine;
use api::volume_snapshot::VolumeSnapshot;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::writing::guarded;
use serde_json::json;

use super::{Making, Problem, Replaced, names, target};
use crate::volume_snapshots::{restored_claim, storage_class};

/// Annotations that tell of the claim's own volume and import.
const OF_THE_OLD: [&str; 6] = [
    "pv.kubernetes.io",
    "volume.beta.kubernetes.io",
    "cdi.kubevirt.io",
    "volume.kubernetes.io",
    "k8s.io/CloneRequest",
    "k8s.io/CloneOf",
];

impl<'a> Making<'a> {
    /// Returns whether there is something to wait for.
    pub(super) fn restore_volumes(&mut self, content: &'a Content) -> Result<bool, Problem> {
        let restores = self.restores(content)?;
        if self.status.restores.clone().unwrap_or_default() != restores {
            self.status.restores = Some(restores);
            return Ok(true);
        }
        let mut waits = false;
        for (index, restore) in restores.iter().enumerate() {
            waits |= self.restore_volume(content, index, restore)?;
        }
        Ok(waits)
    }

    /// What is restored to where. What was decided before stays so.
    fn restores(&self, content: &Content) -> Result<Vec<VolumeRestore>, Problem> {
        let dumps = machine_volumes(content).filter(|volume| volume.memory_dump.is_some());
        let dumps: Vec<&str> = dumps.map(|volume| volume.name.as_str()).collect();
        let backups = content.spec.volume_backups.iter().flatten();
        let backups = backups.filter(|backup| !dumps.contains(&backup.volume_name.as_str()));
        let known = |name: &str| self.status.restores.iter().flatten().find(|one| one.volume_name == name);
        backups
            .map(|backup| {
                let volume = &backup.volume_name;
                let copy = backup.volume_snapshot_name.clone();
                let copy = copy.ok_or_else(|| format!("VolumeSnapshotName missing for volume {volume}"))?;
                Ok(known(volume).cloned().unwrap_or_else(|| VolumeRestore {
                    volume_name: volume.clone(),
                    persistent_volume_claim: names::restored(self.seen.restore, volume, claim_name(backup)),
                    volume_snapshot_name: copy,
                    data_volume_name: None,
                }))
            })
            .collect()
    }

    fn restore_volume(&mut self, content: &Content, index: usize, restore: &VolumeRestore) -> Result<bool, Problem> {
        let name = restore.persistent_volume_claim.as_str();
        let namespace = self.seen.restore.metadata.namespace.as_deref().unwrap_or_default();
        let Some(claim) = self.seen.claims.get(name).copied() else {
            let claim = self.claim(content, restore)?;
            self.plan.claims.push(claim);
            return Ok(true);
        };
        if !self.is_mine(&claim.metadata) {
            let backup = backup_of(content, &restore.volume_name)?;
            if !names::is_in_place(self.seen.restore) || claim_name(backup) != name {
                return Err(format!("PVC {namespace}/{name} exists already and was not made by this restore"));
            }
            if let Some(why) = self.obstacle(claim) {
                return Err(format!("PVC {namespace}/{name} {why}"));
            }
            return self.replace(index, restore, claim);
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Ok(true);
        }
        match claim.status.as_ref().and_then(|status| status.phase.as_deref()) {
            Some("Bound") => Ok(false),
            None | Some("Pending") => {
                let late = storage_class(claim).is_some_and(|class| self.seen.late_binding.contains(class));
                Ok(!late)
            }
            Some(phase) => Err(format!("PVC {namespace}/{name} in status {phase:?}")),
        }
    }

    /// In place: the claim goes, and its data volume must not fill another.
    fn replace(
        &mut self,
        index: usize,
        restore: &VolumeRestore,
        claim: &PersistentVolumeClaim,
    ) -> Result<bool, Problem> {
        // Without its copy the bytes would be lost.
        self.whole_copy(restore)?;
        if claim.metadata.deletion_timestamp.is_some() {
            return Ok(true);
        }
        let owner = controller_of(&claim.metadata).filter(|owner| owner.kind == "DataVolume");
        if let Some(owner) = owner {
            if restore.data_volume_name.is_none() {
                if let Some(told) = self.status.restores.as_mut().and_then(|all| all.get_mut(index)) {
                    told.data_volume_name = Some(owner.name.clone());
                }
                return Ok(true);
            }
            let made = self.seen.data_volumes.as_ref().and_then(|all| all.get(owner.name.as_str()));
            let marked = made.filter(|made| {
                let annotations = made.metadata.annotations.as_ref();
                annotations.and_then(|all| all.get(annotation::RESTORE_NAME))
                    != self.seen.restore.metadata.name.as_ref()
            });
            if let Some(made) = marked {
                let marks = json!({
                    annotation::RESTORE_NAME: self.seen.restore.metadata.name, annotation::PRE_POPULATED: owner.name,
                });
                let patch = guarded(&made.metadata, json!({ "metadata": { "annotations": marks } }));
                self.plan.data_volume_patches.push((owner.name.clone(), patch));
                return Ok(true);
            }
        }
        let copy = restore.volume_snapshot_name.clone();
        self.plan.replace.push(Replaced { claim: target(&claim.metadata), copy });
        Ok(true)
    }

    /// Why a claim of the right name must stay: somebody else's bytes are not the target's to give.
    fn obstacle(&self, claim: &PersistentVolumeClaim) -> Option<&'static str> {
        const NOT_ITS_OWN: &str =
            "exists already and is not the target's own; delete it, or use another volumeRestorePolicy";
        let Some(vm) = self.seen.vm else { return Some(NOT_ITS_OWN) };
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let names = crate::indexes::claim_names_of_vm(vm);
        let named = |name: &str| names.iter().any(|one| one == name);
        let is_its_own = match controller_of(&claim.metadata) {
            Some(owner) if owner.kind == "VirtualMachine" => Some(&owner.uid) == vm.metadata.uid.as_ref(),
            Some(owner) if owner.kind == "DataVolume" => {
                let made = self.seen.data_volumes.as_ref().and_then(|all| all.get(owner.name.as_str()));
                let above = made.and_then(|made| controller_of(&made.metadata));
                let anothers = above.is_some_and(|above| Some(&above.uid) != vm.metadata.uid.as_ref());
                named(&owner.name) && !anothers
            }
            Some(_) => false,
            None => named(name),
        };
        match is_its_own {
            false => Some(NOT_ITS_OWN),
            true => self.seen.used.contains(name).then_some("is used by another instance; stop that first"),
        }
    }

    fn copy(&self, restore: &VolumeRestore) -> Result<&'a VolumeSnapshot, Problem> {
        let name = restore.volume_snapshot_name.as_str();
        self.seen.copies.get(name).copied().ok_or_else(|| format!("missing volumeSnapshot {name}"))
    }

    /// A copy that has all bytes, and is not about to go.
    fn whole_copy(&self, restore: &VolumeRestore) -> Result<(), Problem> {
        let name = restore.volume_snapshot_name.as_str();
        match copy_obstacle(self.copy(restore)?) {
            Some(why) => Err(format!("volumeSnapshot {name} {why}")),
            None => Ok(()),
        }
    }

    fn claim(&self, content: &Content, restore: &VolumeRestore) -> Result<PersistentVolumeClaim, Problem> {
        let backup = backup_of(content, &restore.volume_name)?;
        let copy = self.copy(restore)?;
        Ok(restored_claim(self.claim_metadata(content, backup, restore), backup, copy))
    }

    fn claim_metadata(&self, content: &Content, backup: &VolumeBackup, restore: &VolumeRestore) -> ObjectMeta {
        let own = &self.seen.restore.metadata;
        let old = backup.persistent_volume_claim.metadata.clone().unwrap_or_default();
        let vm = content.spec.source.virtual_machine.as_ref().and_then(|vm| vm.metadata.as_ref());
        let text = |part: Option<&String>| part.cloned().unwrap_or_default();
        let mut labels: BTreeMap<String, String> = old.labels.clone().unwrap_or_default();
        labels.remove(label::PERSISTENT_STATE_FOR);
        labels.insert(label::RESTORE_SOURCE_NAME.to_owned(), text(vm.and_then(|vm| vm.name.as_ref())));
        labels.insert(label::RESTORE_SOURCE_NAMESPACE.to_owned(), text(vm.and_then(|vm| vm.namespace.as_ref())));
        let mut annotations = old.annotations.clone().unwrap_or_default();
        annotations.retain(|name, _| {
            name == annotation::CONTENT_TYPE || !OF_THE_OLD.iter().any(|prefix| name.starts_with(prefix))
        });
        // It has what the snapshot has.
        if let Some(populated) = annotations.get_mut(annotation::POPULATED) {
            *populated = "true".to_owned();
        }
        annotations.insert(annotation::RESTORE_NAME.to_owned(), text(own.name.as_ref()));
        annotations.insert(annotation::LAST_RESTORE_UID.to_owned(), names::mark(self.seen.restore));
        let overrides = self.seen.restore.spec.volume_restore_overrides.iter().flatten();
        if let Some(more) = overrides.into_iter().find(|one| one.volume_name.as_ref() == Some(&restore.volume_name)) {
            labels.extend(more.labels.clone().unwrap_or_default());
            annotations.extend(more.annotations.clone().unwrap_or_default());
        }
        let mut owners = None;
        if let Some(made) = &restore.data_volume_name {
            annotations.insert(annotation::POPULATED_FOR.to_owned(), made.clone());
        } else if !self.leaves_volumes_alone() {
            match self.seen.vm {
                Some(vm) => owners = controller_reference(vm).map(|owner| vec![owner]),
                None if was_owned(&old, vm) => {
                    annotations.insert(annotation::RESTORE_OWNED_BY_VM.to_owned(), text(own.name.as_ref()));
                }
                None => {}
            }
        }
        ObjectMeta {
            name: Some(restore.persistent_volume_claim.clone()),
            namespace: own.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: owners,
            ..ObjectMeta::default()
        }
    }

    /// Claims that were made before their VM become its own.
    pub(super) fn own_volumes(&mut self, vm: &VirtualMachine) {
        if self.leaves_volumes_alone() {
            return;
        }
        let own = self.seen.restore.metadata.name.as_ref();
        let restores = self.status.restores.iter().flatten();
        for claim in restores.filter_map(|one| self.seen.claims.get(one.persistent_volume_claim.as_str())) {
            let annotations = claim.metadata.annotations.as_ref();
            let waits = annotations.and_then(|all| all.get(annotation::RESTORE_OWNED_BY_VM)) == own;
            let free = claim.metadata.owner_references.as_ref().is_none_or(Vec::is_empty);
            if let Some(owner) = controller_reference(vm).filter(|_| waits && free && own.is_some()) {
                let patch = json!({ "metadata": {
                    "ownerReferences": [owner], "annotations": { annotation::RESTORE_OWNED_BY_VM: null },
                } });
                let name = claim.metadata.name.clone().unwrap_or_default();
                self.plan.claim_patches.push((name, guarded(&claim.metadata, patch)));
            }
        }
    }
}

/// Why the bytes of a copy cannot be relied on.
pub(super) fn copy_obstacle(copy: &VolumeSnapshot) -> Option<&'static str> {
    if copy.metadata.deletion_timestamp.is_some() {
        return Some("is being deleted");
    }
    let ready = copy.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true));
    (!ready).then_some("is not ready to use")
}

pub(super) fn machine_volumes(content: &Content) -> impl Iterator<Item = &api::volumes::Volume> {
    let vm = content.spec.source.virtual_machine.as_ref();
    let spec = vm.and_then(|vm| vm.spec.as_ref()?.template.spec.as_ref());
    spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten())
}

fn claim_name(backup: &VolumeBackup) -> &str {
    backup.persistent_volume_claim.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default()
}

fn backup_of<'c>(content: &'c Content, volume: &str) -> Result<&'c VolumeBackup, Problem> {
    let found = content.spec.volume_backups.iter().flatten().find(|backup| backup.volume_name == volume);
    found.ok_or_else(|| format!("volume backup for volume {volume} not found"))
}

fn was_owned(claim: &ObjectMeta, vm: Option<&ObjectMeta>) -> bool {
    let owners = claim.owner_references.iter().flatten();
    let uid = vm.and_then(|vm| vm.uid.as_ref());
    uid.is_some() && owners.into_iter().any(|owner| owner.kind == "VirtualMachine" && Some(&owner.uid) == uid)
}
