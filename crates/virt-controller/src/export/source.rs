//! The volumes of what is exported, and whether they are free.

use api::data_volume::DataVolumePhase;
use api::names::annotation;
use api::owner::{controller_of, controller_reference};
use api::snapshot::VolumeBackup;
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Making, Source};
use crate::snapshot::is_ready;
use crate::volume_snapshots::{claim_of, restored_claim};

/// What CDI calls the disk of a VM.
const KUBEVIRT: &str = "kubevirt";

/// One volume that is offered.
#[derive(Clone, Debug)]
pub(super) struct Volume<'a> {
    /// As users know it: the claim's name, or that of the claim that was snapshotted.
    pub(super) name: String,
    pub(super) claim: &'a PersistentVolumeClaim,
    /// Whether it is the disk of a VM. Everything else is files.
    pub(super) is_disk: bool,
}

impl Volume<'_> {
    pub(super) fn claim(&self) -> &str {
        self.claim.metadata.name.as_deref().unwrap_or_default()
    }
}

/// What there is to export.
#[derive(Clone, Debug)]
pub(super) enum Offer<'a> {
    /// These, and nobody else uses them.
    Volumes(Vec<Volume<'a>>),
    /// Nothing yet.
    Waits {
        /// Whether somebody else uses it.
        in_use: bool,
        why: String,
        /// What is there already.
        claims: Vec<&'a PersistentVolumeClaim>,
    },
    /// The source has no volumes.
    Nothing { reason: &'static str, why: String },
}

impl<'a> Making<'a> {
    pub(super) fn offer(&mut self) -> Offer<'a> {
        match self.seen.source {
            Source::Claim => self.of_claim(),
            Source::Machine { vm, instance } => self.of_machine(vm, instance),
            Source::Snapshot { snapshot, content } => {
                let name = self.within(&self.seen.export.spec.source.name);
                let Some(snapshot) = snapshot else {
                    return waits(format!("VirtualMachineSnapshot {name} does not exist"));
                };
                match content.filter(|_| is_ready(snapshot)) {
                    Some(content) => {
                        let backups = content.spec.volume_backups.as_deref().unwrap_or_default();
                        self.of_backups(backups, &name)
                    }
                    None => waits(format!("VirtualMachineSnapshot {name} is not ready to use")),
                }
            }
            Source::Unknown => waits("the source is not supported".to_owned()),
        }
    }

    fn of_claim(&self) -> Offer<'a> {
        let name = self.seen.export.spec.source.name.as_str();
        match self.seen.claims.get(name).copied() {
            None => waits(format!("pvc {} not found", self.within(name))),
            Some(claim) if !self.is_populated(claim) => {
                let why = format!("pvc {} is not populated", self.within(name));
                Offer::Waits { in_use: false, why, claims: vec![claim] }
            }
            Some(claim) => self.unless_used(vec![self.volume(claim, false)]),
        }
    }

    fn of_machine(&self, vm: Option<&'a VirtualMachine>, instance: Option<&'a VirtualMachineInstance>) -> Offer<'a> {
        let name = self.within(&self.seen.export.spec.source.name);
        let Some(vm) = vm else { return waits(format!("VirtualMachine {name} does not exist")) };
        let volumes = vm.spec.template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let names: Vec<&str> = volumes.filter_map(claim_of).collect();
        if names.is_empty() {
            return Offer::Nothing { reason: "VMNoVolumes", why: format!("Virtual Machine {name} has no volumes") };
        }
        let claims: Vec<_> = names.iter().filter_map(|name| self.seen.claims.get(name).copied()).collect();
        let lacking = names.iter().find(|name| !self.seen.claims.contains_key(*name));
        let waits = |in_use, why| Offer::Waits { in_use, why, claims: claims.clone() };
        if let Some(lacking) = lacking {
            return waits(false, format!("pvc {} not found", self.within(lacking)));
        }
        if !claims.iter().all(|claim| self.is_populated(claim)) {
            return waits(false, format!("Not all volumes in the Virtual Machine {name} are populated"));
        }
        if instance.is_some_and(|instance| !instance.is_final()) {
            return waits(true, format!("Virtual Machine {name} is running"));
        }
        self.unless_used(claims.into_iter().map(|claim| self.volume(claim, true)).collect())
    }

    /// Each copy becomes a claim first.
    fn of_backups(&mut self, backups: &'a [VolumeBackup], snapshot: &str) -> Offer<'a> {
        if backups.is_empty() {
            let why = format!("VirtualMachineSnapshot {snapshot} does not contain any volume snapshots");
            return Offer::Nothing { reason: "VMSnapshotNoVolumes", why };
        }
        let mut volumes = Vec::new();
        let mut problem = None;
        for backup in backups {
            let original = original(backup);
            let name = format!("{}-{original}", self.name());
            match self.seen.claims.get(name.as_str()).copied() {
                Some(claim) if self.is_mine(&claim.metadata) => {
                    volumes.push(Volume { name: original.to_owned(), claim, is_disk: true });
                }
                Some(_) => {
                    let name = self.within(&name);
                    problem = Some(format!("pvc {name} exists already and was not made by this export"));
                }
                None => {
                    let copy = backup.volume_snapshot_name.as_deref().unwrap_or_default();
                    match self.seen.copies.get(copy) {
                        Some(copy) => {
                            let metadata = self.claim_metadata(name);
                            self.plan.claims.push(restored_claim(metadata, backup, copy));
                        }
                        None => problem = Some(format!("missing volumeSnapshot {copy}")),
                    }
                }
            }
        }
        if volumes.len() == backups.len() {
            return self.unless_used(volumes);
        }
        let why = problem.unwrap_or_else(|| "Not all PVCs have been successfully restored".to_owned());
        Offer::Waits { in_use: false, why, claims: volumes.iter().map(|volume| volume.claim).collect() }
    }

    fn claim_metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: self.seen.export.metadata.namespace.clone(),
            annotations: Some([(annotation::CONTENT_TYPE.to_owned(), KUBEVIRT.to_owned())].into()),
            owner_references: controller_reference(self.seen.export).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        }
    }

    fn unless_used(&self, volumes: Vec<Volume<'a>>) -> Offer<'a> {
        let used = volumes.iter().find(|volume| self.seen.used.contains(volume.claim()));
        let Some(used) = used else { return Offer::Volumes(volumes) };
        let why = format!("pvc {} is in use", self.within(used.claim()));
        Offer::Waits { in_use: true, why, claims: volumes.iter().map(|volume| volume.claim).collect() }
    }

    fn volume(&self, claim: &'a PersistentVolumeClaim, of_machine: bool) -> Volume<'a> {
        let name = claim.metadata.name.clone().unwrap_or_default();
        let is_block = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block");
        let annotations = claim.metadata.annotations.as_ref();
        let content = annotations.and_then(|all| all.get(annotation::CONTENT_TYPE));
        let is_disk = match content.map(String::as_str) {
            Some(content) => content.is_empty() || content == KUBEVIRT,
            None => of_machine || self.seen.disks.contains(name.as_str()) || self.made_for(claim).is_some(),
        };
        Volume { name, claim, is_disk: is_block || is_disk }
    }

    /// The DataVolume that a claim was made for.
    fn made_for(&self, claim: &'a PersistentVolumeClaim) -> Option<&'a str> {
        let owner = controller_of(&claim.metadata).filter(|owner| owner.kind == "DataVolume")?;
        Some(owner.name.as_str())
    }

    /// A claim that a DataVolume fills is not used before it is full.
    fn is_populated(&self, claim: &'a PersistentVolumeClaim) -> bool {
        let Some(owner) = self.made_for(claim) else { return true };
        let made = self.seen.data_volumes.as_ref().and_then(|all| all.get(owner));
        let annotations = claim.metadata.annotations.as_ref();
        let filled_for = annotations.and_then(|all| all.get(annotation::POPULATED_FOR));
        let phase = made.and_then(|made| made.status.as_ref()?.phase.as_ref());
        filled_for.is_some_and(|name| name == owner) || phase == Some(&DataVolumePhase::Succeeded)
    }
}

/// The claim that a copy was made of.
pub(super) fn original(backup: &VolumeBackup) -> &str {
    backup.persistent_volume_claim.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default()
}

fn waits<'a>(why: String) -> Offer<'a> {
    Offer::Waits { in_use: false, why, claims: Vec::new() }
}
