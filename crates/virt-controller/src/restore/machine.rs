//! The VM of a restore: what the snapshot holds of it, with the volumes that were restored.

use api::data_volume::{DataVolume, DataVolumePhase};
use api::names::annotation;
use api::owner::{controller_reference, is_controlled_by};
use api::snapshot::{VirtualMachine as Frozen, VirtualMachineSnapshotContent as Content};
use api::vm::{DataVolumeTemplateSpec, VirtualMachine, VirtualMachineRunStrategy as Strategy, VirtualMachineSpec};
use api::volumes::{PersistentVolumeClaimVolumeSource, Volume};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::errors::chain;
use manager::writing::{difference, guarded};
use serde_json::json;

use super::{Making, Problem, names, patches, target};
use crate::vm::strategy;

impl<'a> Making<'a> {
    /// The VM is not what it shall be yet.
    pub(super) fn restore_machine(&mut self, content: &'a Content) -> Result<(), Problem> {
        let frozen = content.spec.source.virtual_machine.as_ref().ok_or("unexpected snapshot source")?;
        let spec = frozen.spec.as_ref().ok_or("unexpected snapshot source")?;
        if self.name_data_volumes(spec)? {
            return Ok(());
        }
        let mut restored = self.machine(frozen, spec)?;
        if self.make_data_volumes(&restored)? {
            return Ok(());
        }
        self.restore_revisions(&mut restored.spec)?;
        match self.seen.vm {
            None => {
                let patches = self.seen.restore.spec.patches.as_deref().unwrap_or_default();
                let name = &self.seen.restore.spec.target.name;
                let patched = patches::apply(&restored, patches)
                    .map_err(|error| format!("error patching VM {name}: {}", chain(&error)))?;
                self.plan.create = Some(Box::new(patched));
            }
            Some(vm) => {
                let mut patch = json!({ "metadata": { "annotations": restored.metadata.annotations } });
                if let Some(change) = difference(&json!(vm.spec), &json!(restored.spec)) {
                    patch["spec"] = change;
                }
                self.plan.vm = Some(guarded(&vm.metadata, patch));
            }
        }
        Ok(())
    }

    /// Volumes that data volumes of the VM's templates fill get data volumes again. Returns whether something has to be
    /// written first.
    fn name_data_volumes(&mut self, spec: &VirtualMachineSpec) -> Result<bool, Problem> {
        let mut restores = self.status.restores.clone().unwrap_or_default();
        for restore in &mut restores {
            let volume = volumes(spec).find(|volume| volume.name == restore.volume_name);
            let Some(made) = volume.and_then(|volume| volume.data_volume.as_ref()) else { continue };
            if template_of(spec, &made.name).is_none() {
                continue;
            }
            let name = names::restored(self.seen.restore, &restore.volume_name, &made.name);
            let claim = self.seen.claims.get(restore.persistent_volume_claim.as_str());
            let claim = claim.ok_or_else(|| {
                let claim = &restore.persistent_volume_claim;
                format!("pvc {claim} does not exist and should")
            })?;
            let annotations = claim.metadata.annotations.as_ref();
            if annotations.and_then(|all| all.get(annotation::POPULATED_FOR)) != Some(&name) {
                // The data volume becomes the owner.
                let patch = json!({ "metadata": {
                    "annotations": { annotation::POPULATED_FOR: name }, "ownerReferences": null,
                } });
                let of = restore.persistent_volume_claim.clone();
                self.plan.claim_patches.push((of, guarded(&claim.metadata, patch)));
            }
            restore.data_volume_name = Some(name);
        }
        let changed = self.status.restores.clone().unwrap_or_default() != restores;
        if changed {
            self.status.restores = Some(restores);
        }
        Ok(changed || !self.plan.claim_patches.is_empty())
    }

    fn machine(&self, frozen: &Frozen, spec: &VirtualMachineSpec) -> Result<VirtualMachine, Problem> {
        let restore = self.seen.restore;
        let mut spec = spec.clone();
        let mut templates = spec.data_volume_templates.clone().unwrap_or_default();
        let kept = volumes(&spec).filter(|volume| volume.memory_dump.is_none());
        let kept: Result<Vec<Volume>, Problem> = kept.map(|volume| self.volume(volume, &mut templates)).collect();
        let kept = kept?;
        if let Some(template) = &mut spec.template.spec {
            template.volumes = template.volumes.as_ref().map(|_| kept);
        }
        spec.data_volume_templates = spec.data_volume_templates.as_ref().map(|_| templates);
        let old = frozen.metadata.as_ref().cloned().unwrap_or_default();
        let mut metadata = match self.seen.vm {
            Some(vm) => vm.metadata.clone(),
            None => ObjectMeta {
                name: Some(restore.spec.target.name.clone()),
                namespace: restore.metadata.namespace.clone(),
                labels: old.labels.clone(),
                annotations: old.annotations.clone(),
                ..ObjectMeta::default()
            },
        };
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::LAST_RESTORE_UID.to_owned(), names::mark(restore));
        let seen = old.annotations.as_ref().and_then(|all| all.get(annotation::GUEST));
        match seen.filter(|_| metadata.name == old.name) {
            // The disks know the guest as it was then.
            Some(seen) => drop(annotations.insert(annotation::GUEST.to_owned(), seen.clone())),
            // Another VM is another guest.
            None if metadata.name != old.name => drop(annotations.remove(annotation::GUEST)),
            None => {}
        }
        match self.seen.vm {
            // The user's wish whether it runs is none of the snapshot's business.
            Some(vm) if vm.spec.running.is_some() => (spec.running, spec.run_strategy) = (Some(false), None),
            Some(vm) => (spec.running, spec.run_strategy) = (None, Some(strategy(vm))),
            None if spec.running.is_some() => (spec.running, spec.run_strategy) = (Some(false), None),
            None => (spec.running, spec.run_strategy) = (None, Some(Strategy::Halted)),
        }
        Ok(VirtualMachine { metadata, spec, ..VirtualMachine::default() })
    }

    fn volume(&self, volume: &Volume, templates: &mut [DataVolumeTemplateSpec]) -> Result<Volume, Problem> {
        let mut restored = volume.clone();
        let restores = self.status.restores.iter().flatten();
        let Some(to) = restores.into_iter().find(|one| one.volume_name == volume.name) else { return Ok(restored) };
        if let Some(source) = &mut restored.persistent_volume_claim {
            source.claim_name.clone_from(&to.persistent_volume_claim);
        }
        let Some(source) = &mut restored.data_volume else { return Ok(restored) };
        let template = templates.iter_mut().find(|template| template_name(template) == source.name);
        let Some(template) = template else {
            // Nobody fills it again: from now on it is a claim.
            let claim = to.persistent_volume_claim.clone();
            return Ok(Volume {
                name: volume.name.clone(),
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claim,
                    ..PersistentVolumeClaimVolumeSource::default()
                }),
                ..Volume::default()
            });
        };
        let name = to.data_volume_name.clone();
        let name =
            name.ok_or_else(|| format!("DataVolumeName for dv {} should have been updated already", source.name))?;
        let mut metadata = template.metadata.as_ref().cloned().unwrap_or_default();
        metadata.name = Some(name.clone());
        template.metadata = Some(metadata).into();
        source.name = name;
        Ok(restored)
    }

    /// Data volumes take over claims that are filled already. Returns whether there is something to wait for.
    fn make_data_volumes(&mut self, restored: &VirtualMachine) -> Result<bool, Problem> {
        let Some(known) = &self.seen.data_volumes else { return Ok(false) };
        let mut waits = false;
        let templates = restored.spec.data_volume_templates.iter().flatten();
        for template in templates {
            let name = template_name(template);
            if let Some(made) = known.get(name) {
                waits |= !is_done(made);
                continue;
            }
            let claim = self
                .seen
                .claims
                .get(name)
                .ok_or_else(|| format!("when creating restore dv pvc {name} does not exist and should"))?;
            let annotations = claim.metadata.annotations.as_ref();
            let filled_for = annotations.and_then(|all| all.get(annotation::POPULATED_FOR)).map(String::as_str);
            let owned = claim.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty());
            if filled_for == Some(name) && !owned {
                self.plan.data_volumes.push(self.data_volume(restored, template));
                waits = true;
            }
        }
        if let Some(vm) = self.seen.vm {
            let new: Vec<&str> = restored.spec.data_volume_templates.iter().flatten().map(template_name).collect();
            let old = vm.spec.data_volume_templates.iter().flatten().map(template_name);
            let gone: Vec<String> = old.filter(|name| !new.contains(name)).map(str::to_owned).collect();
            if self.status.deleted_data_volumes.clone().unwrap_or_default() != gone {
                self.status.deleted_data_volumes = Some(gone);
                waits = true;
            }
        }
        Ok(waits)
    }

    fn data_volume(&self, restored: &VirtualMachine, template: &DataVolumeTemplateSpec) -> DataVolume {
        let mut metadata = template.metadata.as_ref().cloned().unwrap_or_default();
        metadata.namespace.clone_from(&restored.metadata.namespace);
        let claim = metadata.name.clone().unwrap_or_default();
        let annotations = metadata.annotations.get_or_insert_default();
        let name = self.seen.restore.metadata.name.clone().unwrap_or_default();
        annotations.insert(annotation::RESTORE_NAME.to_owned(), name);
        // As CDI reads it: the claim that has the data.
        annotations.insert(annotation::PRE_POPULATED.to_owned(), claim);
        if let Some(owner) = self.seen.vm.and_then(controller_reference) {
            metadata.owner_references = Some(vec![owner]);
        }
        DataVolume { metadata, spec: template.spec.clone(), ..DataVolume::default() }
    }

    /// Data volumes that were made before their VM become its own.
    pub(super) fn own_data_volumes(&mut self, vm: &VirtualMachine) {
        if self.leaves_volumes_alone() {
            return;
        }
        let own = self.seen.restore.metadata.name.as_ref();
        let templates = vm.spec.data_volume_templates.iter().flatten();
        let known = self.seen.data_volumes.as_ref();
        for made in templates.filter_map(|template| known?.get(template_name(template))) {
            let annotations = made.metadata.annotations.as_ref();
            let waits = annotations.and_then(|all| all.get(annotation::RESTORE_NAME)) == own;
            let free = made.metadata.owner_references.as_ref().is_none_or(Vec::is_empty);
            if let Some(owner) = controller_reference(vm).filter(|_| waits && free && own.is_some()) {
                let patch = guarded(&made.metadata, json!({ "metadata": { "ownerReferences": [owner] } }));
                self.plan.data_volume_patches.push((made.metadata.name.clone().unwrap_or_default(), patch));
            }
        }
    }

    /// The revisions that the snapshot has kept become the VM's under the names that a VM's have.
    fn restore_revisions(&mut self, spec: &mut VirtualMachineSpec) -> Result<(), Problem> {
        if let Some(name) = spec.instancetype.as_mut().and_then(|matcher| matcher.revision_name.as_mut()) {
            self.restore_revision(name)?;
        }
        if let Some(name) = spec.preference.as_mut().and_then(|matcher| matcher.revision_name.as_mut()) {
            self.restore_revision(name)?;
        }
        Ok(())
    }

    fn restore_revision(&mut self, name: &mut String) -> Result<(), Problem> {
        let restore = &self.seen.restore;
        let kept = self.seen.revisions.get(name.as_str());
        let kept = kept.ok_or_else(|| format!("Unable to find ControllerRevision {name}"))?;
        let own = name.replacen(&restore.spec.virtual_machine_snapshot_name, &restore.spec.target.name, 1);
        match self.seen.revisions.get(own.as_str()) {
            Some(known) if known.data == kept.data => {}
            other => {
                self.plan.delete_revisions.extend(other.map(|other| target(&other.metadata)));
                self.plan.revisions.push(ControllerRevision {
                    metadata: ObjectMeta {
                        name: Some(own.clone()),
                        namespace: restore.metadata.namespace.clone(),
                        labels: kept.metadata.labels.clone(),
                        owner_references: self.seen.vm.and_then(controller_reference).map(|owner| vec![owner]),
                        ..ObjectMeta::default()
                    },
                    data: kept.data.clone(),
                    revision: kept.revision,
                });
            }
        }
        *name = own;
        Ok(())
    }

    /// Revisions that were made before their VM become its own.
    pub(super) fn own_revisions(&mut self, vm: &VirtualMachine) {
        let instancetype = vm.spec.instancetype.as_ref().and_then(|matcher| matcher.revision_name.as_deref());
        let preference = vm.spec.preference.as_ref().and_then(|matcher| matcher.revision_name.as_deref());
        let uid = vm.metadata.uid.as_deref().unwrap_or_default();
        for name in instancetype.into_iter().chain(preference) {
            let Some(revision) = self.seen.revisions.get(name) else { continue };
            let Some(owner) = controller_reference(vm) else { continue };
            if revision.metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
                && !is_controlled_by(&revision.metadata, uid)
            {
                let patch = guarded(&revision.metadata, json!({ "metadata": { "ownerReferences": [owner] } }));
                self.plan.revision_patches.push((name.to_owned(), patch));
            }
        }
    }
}

fn volumes(spec: &VirtualMachineSpec) -> impl Iterator<Item = &Volume> {
    spec.template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
}

fn template_of<'s>(spec: &'s VirtualMachineSpec, name: &str) -> Option<&'s DataVolumeTemplateSpec> {
    spec.data_volume_templates.iter().flatten().find(|template| template_name(template) == name)
}

fn template_name(template: &DataVolumeTemplateSpec) -> &str {
    template.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default()
}

fn is_done(made: &DataVolume) -> bool {
    use DataVolumePhase::{PendingPopulation, Succeeded, WaitForFirstConsumer};
    let phase = made.status.as_ref().and_then(|status| status.phase.as_ref());
    matches!(phase, Some(Succeeded | WaitForFirstConsumer | PendingPopulation))
}
