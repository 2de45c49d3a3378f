//! Restores: a VM becomes what a snapshot holds of it, or a new VM is made of that.
//!
//! ```text
//! VirtualMachineRestore ──────┐                     ┌─> lock: the VM's status
//! target VM, its instance ────┼─> observe ─> decide ┼─> claims made of VolumeSnapshots
//! snapshot, content, copies ──┤                     ├─> data volumes over them
//! claims, data volumes, now ──┘                     └─> the VM's specification, then unlock, complete
//! ```
//! Watches: VirtualMachineRestore, VirtualMachine, VirtualMachineInstance, VirtualMachineSnapshot, VirtualMachineSnapshotContent,
//! VolumeSnapshot, PersistentVolumeClaim, DataVolume, StorageClass, ControllerRevision. Owns: the claims and data volumes that it
//! makes, until the VM owns them, and `status.restoreInProgress` of the VM. Emits: events about the restore.
//! Absent on purpose: who fills the claims, and the start of the VM, which is its user's.
//!
//! | what is seen | next |
//! |---|---|
//! | the target's instance exists | as the policy says: wait, wait five minutes, stop it, or fail |
//! | the snapshot is not ready, or the target is another VM | told, and looked at again when that changes |
//! | the target is not locked | it is locked |
//! | claims are missing, or not bound | they are made, and waited for |
//! | the VM is not the snapshot's yet | data volumes, then its specification |
//! | it is | what it no longer needs goes, the lock goes, complete |

pub mod controller;
pub mod names;
pub mod patches;

mod machine;
mod target;
#[cfg(test)]
mod tests;
mod volumes;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::conditions;
use api::data_volume::DataVolume;
use api::names::{annotation, finalizer};
use api::owner::controller_reference;
use api::restore::{VirtualMachineRestore as Restore, VirtualMachineRestoreStatus as Status, VolumeOwnershipPolicy};
use api::snapshot::{VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotContent as Content};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::volume_snapshot::VolumeSnapshot;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::events::Kind;
use manager::writing::{difference, guarded, whole_second};
use serde_json::{Value, json};

use crate::snapshot::{has, put, without_finalizer};
use crate::vmi::{Event, Target};
use words::{OTHER_PLACE, OTHER_TARGET};

/// What the caches say about one restore.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    pub restore: &'a Restore,
    /// The target.
    pub vm: Option<&'a VirtualMachine>,
    /// The target's instance.
    pub vmi: Option<&'a VirtualMachineInstance>,
    pub snapshot: Option<&'a Snapshot>,
    pub content: Option<&'a Content>,
    /// VolumeSnapshots of the content, by name.
    pub copies: BTreeMap<&'a str, &'a VolumeSnapshot>,
    /// Claims of the namespace, by name; at least those that are restored.
    pub claims: BTreeMap<&'a str, &'a PersistentVolumeClaim>,
    /// Those of them that an instance uses.
    pub used: BTreeSet<&'a str>,
    /// Data volumes of the namespace, by name; none where the cluster has no such kind.
    pub data_volumes: Option<BTreeMap<&'a str, &'a DataVolume>>,
    /// Storage classes whose claims are bound when a pod uses them.
    pub late_binding: BTreeSet<&'a str>,
    /// Revisions of the namespace that the snapshot's VM names, and those that would be made of them.
    pub revisions: BTreeMap<&'a str, &'a ControllerRevision>,
    /// What the server said to the last attempt.
    pub failure: Option<&'a str>,
}

/// A claim that goes, so that one of its name can be made of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    pub claim: Target,
    /// The VolumeSnapshot that has its bytes, which is to be looked at once more: bytes do not come back.
    pub copy: String,
}

/// What to do about one restore; empty at rest. In this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RestorePlan {
    /// A guarded merge patch of the restore: its finalizer and its owner. What follows waits for it.
    pub protect: Option<Value>,
    /// Stop the target.
    pub stop: bool,
    /// A guarded merge patch of the target's status: it is locked, or unlocked.
    pub vm_status: Option<Value>,
    /// Guarded merge patches of data volumes: their claims are replaced.
    pub data_volume_patches: Vec<(String, Value)>,
    /// Claims that are replaced.
    pub replace: Vec<Replaced>,
    /// Claims that are made of VolumeSnapshots.
    pub claims: Vec<PersistentVolumeClaim>,
    /// Guarded merge patches of claims: who owns them.
    pub claim_patches: Vec<(String, Value)>,
    /// Data volumes over claims that are filled already.
    pub data_volumes: Vec<DataVolume>,
    /// Revisions that are not what the snapshot has under their name.
    pub delete_revisions: Vec<Target>,
    /// Revisions that the VM names.
    pub revisions: Vec<ControllerRevision>,
    /// The new VM.
    pub create: Option<Box<VirtualMachine>>,
    /// A guarded merge patch of the target: it becomes what the snapshot holds.
    pub vm: Option<Value>,
    /// Guarded merge patches of revisions: the VM owns them.
    pub revision_patches: Vec<(String, Value)>,
    /// Data volumes that the VM no longer has.
    pub delete_data_volumes: Vec<Target>,
    /// A guarded merge patch of the restore's status.
    pub status: Option<Value>,
    /// A guarded merge patch of the restore: its finalizer goes.
    pub release: Option<Value>,
    /// What people should read.
    pub events: Vec<Event>,
    /// When time alone changes something: decide again then.
    pub recheck_after: Option<Duration>,
}

/// # Guarantees
/// - Nothing of the target is touched while its instance exists, and nothing of it before it is locked.
/// - A VM that exists is changed only if it is the one that the snapshot is of.
/// - A claim is deleted only in place, only if it is the target's own and nobody uses it, and its copy is whole and stays.
/// - A restore begins only with a snapshot that stays; one that has begun ends with what it has of it.
/// - The target's specification changes only after every claim is there.
/// - Complete and failed are final.
/// - Equal observations give equal plans; at rest the plan is empty.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> RestorePlan {
    let status = seen.restore.status.clone();
    let mut making = Making { seen, now, status: status.unwrap_or_default(), plan: RestorePlan::default() };
    if let Err(problem) = making.follow() {
        making.tell_error(&problem);
    }
    making.finish()
}

/// Whether a restore has neither completed nor failed.
#[must_use]
pub fn is_progressing(restore: &Restore) -> bool {
    let status = restore.status.as_ref();
    let failed = conditions::find(status.and_then(|status| status.conditions.as_deref()), "Failure").is_some();
    !failed && status.and_then(|status| status.complete) != Some(true)
}

/// Whether a restore may have given up bytes that only its snapshot has.
#[must_use]
pub fn has_begun(restore: &Restore) -> bool {
    is_progressing(restore) && restore.status.as_ref().is_some_and(|status| status.restores.is_some())
}

/// A decision in the making.
struct Making<'a> {
    seen: &'a Observed<'a>,
    now: Timestamp,
    status: Status,
    plan: RestorePlan,
}

/// What keeps a restore from going on, for people.
type Problem = String;

impl<'a> Making<'a> {
    fn follow(&mut self) -> Result<(), Problem> {
        let restore = self.seen.restore;
        if restore.status.is_none() {
            self.status.complete = Some(false);
            self.say(true, "Initializing VirtualMachineRestore", "Initializing VirtualMachineRestore");
            return Ok(());
        }
        if restore.metadata.deletion_timestamp.is_some() {
            self.end();
            return Ok(());
        }
        if !is_progressing(restore) || self.protect() {
            return Ok(());
        }
        // What follows its last change may start already.
        if let Some(vm) = self.seen.vm.filter(|vm| self.is_mine(&vm.metadata)) {
            self.complete(vm);
            return Ok(());
        }
        if self.seen.vm.is_some() && self.seen.vmi.is_some() {
            self.wait_for_target();
            return Ok(());
        }
        let (snapshot, content) = self.source()?;
        if let Some(vm) = self.seen.vm {
            let source = snapshot.status.as_ref().and_then(|status| status.source_uid.as_ref());
            if source.is_some() && source != vm.metadata.uid.as_ref() {
                return Err(OTHER_TARGET.to_owned());
            }
        }
        if names::is_in_place(restore) && snapshot.spec.source.name != restore.spec.target.name {
            return Err(OTHER_PLACE.to_owned());
        }
        if let Some(vm) = self.seen.vm
            && !self.lock(vm)?
        {
            return Ok(());
        }
        if self.restore_volumes(content)? {
            self.go_on("Creating new PVCs", "Waiting for new PVCs");
            return Ok(());
        }
        self.restore_machine(content)?;
        self.go_on("Updating target spec", "Waiting for target update");
        Ok(())
    }

    /// The finalizer, and the VM as owner where there is no other.
    fn protect(&mut self) -> bool {
        let metadata = &self.seen.restore.metadata;
        let mut patch = json!({});
        if !has(metadata, finalizer::RESTORE) {
            let all: Vec<&str> = metadata.finalizers.iter().flatten().map(String::as_str).collect();
            patch["finalizers"] = all.into_iter().chain([finalizer::RESTORE]).collect();
        }
        let owner = self.seen.vm.and_then(controller_reference);
        if let Some(owner) = owner.filter(|_| metadata.owner_references.as_ref().is_none_or(Vec::is_empty)) {
            patch["ownerReferences"] = json!([owner]);
        }
        let needed = patch.as_object().is_some_and(|patch| !patch.is_empty());
        self.plan.protect = needed.then(|| guarded(metadata, json!({ "metadata": patch })));
        needed
    }

    /// The VM is what the snapshot holds.
    fn complete(&mut self, vm: &VirtualMachine) {
        self.own_volumes(vm);
        self.own_data_volumes(vm);
        self.own_revisions(vm);
        let gone: Vec<&String> = self.status.deleted_data_volumes.iter().flatten().collect();
        let known = self.seen.data_volumes.as_ref();
        let there = gone.into_iter().filter_map(|name| known?.get(name.as_str()));
        let there: Vec<Target> =
            there.filter(|one| one.metadata.deletion_timestamp.is_none()).map(|one| target(&one.metadata)).collect();
        self.plan.delete_data_volumes = there;
        if !self.unlock(vm) {
            return;
        }
        self.status.complete = Some(true);
        self.status.restore_time = Some(whole_second(self.now));
        self.say(false, "Operation complete", "Operation complete");
        put(&mut self.status.conditions, "Ready", true, "Operation complete", self.now);
        let name = self.seen.restore.metadata.name.as_deref().unwrap_or_default();
        let message = format!("Successfully completed VirtualMachineRestore {name}");
        self.plan.events.push(Event { kind: Kind::Normal, reason: "VirtualMachineRestoreComplete", message });
    }

    /// Somebody deletes the restore.
    fn end(&mut self) {
        let restore = self.seen.restore;
        if !has(&restore.metadata, finalizer::RESTORE) || !self.seen.vm.is_none_or(|vm| self.unlock(vm)) {
            return;
        }
        self.say(false, "VM restore is deleting", "VM restore is deleting");
        if restore.status.as_ref() == Some(&self.status) {
            self.plan.release = Some(without_finalizer(&restore.metadata, finalizer::RESTORE));
        }
    }

    /// Sets both conditions. Returns whether one of them has changed.
    fn say(&mut self, progressing: bool, progress: &str, readiness: &str) -> bool {
        let before = self.status.conditions.clone();
        put(&mut self.status.conditions, "Progressing", progressing, progress, self.now);
        put(&mut self.status.conditions, "Ready", false, readiness, self.now);
        before != self.status.conditions
    }

    /// Says what is done now, unless the server has refused it.
    fn go_on(&mut self, progress: &str, readiness: &str) {
        match self.seen.failure {
            Some(failure) => self.tell_error(failure),
            None => drop(self.say(true, progress, readiness)),
        }
    }

    fn tell_error(&mut self, problem: &str) {
        if self.say(false, problem, problem) {
            let message = format!("VirtualMachineRestore encountered error {problem}");
            self.plan.events.push(Event::warning("VirtualMachineRestoreError", message));
        }
    }

    /// Whether this restore made the object what it is.
    fn is_mine(&self, metadata: &ObjectMeta) -> bool {
        let annotations = metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(annotation::LAST_RESTORE_UID)) == Some(&names::mark(self.seen.restore))
    }

    fn leaves_volumes_alone(&self) -> bool {
        self.seen.restore.spec.volume_ownership_policy == Some(VolumeOwnershipPolicy::None)
    }

    fn finish(mut self) -> RestorePlan {
        let restore = self.seen.restore;
        let old = restore.status.clone().unwrap_or_default();
        // An owner or a finalizer makes another version: the status follows.
        if self.plan.protect.is_none() {
            let patch = difference(&json!(old), &json!(self.status));
            self.plan.status = patch.map(|patch| guarded(&restore.metadata, json!({ "status": patch })));
        }
        self.plan
    }
}

fn target(metadata: &ObjectMeta) -> Target {
    Target { name: metadata.name.clone().unwrap_or_default(), uid: metadata.uid.clone().unwrap_or_default() }
}
