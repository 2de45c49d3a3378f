//! Clones: a new VM of another one, by a snapshot and a restore of it.
//!
//! ```text
//! VirtualMachineClone ────────┐                     ┌─> a snapshot, unless the source is one
//! source VM or snapshot ──────┼─> observe ─> decide ┼─> a restore with patches: names, MACs, serials, filters
//! its snapshot and restore ───┤                     └─> the status; in the end snapshot and restore go
//! target VM, its claims ──────┘
//! ```
//! Watches: VirtualMachineClone, VirtualMachine, VirtualMachineSnapshot, VirtualMachineSnapshotContent, VirtualMachineRestore,
//! PersistentVolumeClaim. Owns: the snapshot and the restore that it makes. Emits: events about the clone.
//! Absent on purpose: the copies, and the new VM itself, which are the snapshot's and the restore's.
//!
//! | phase | what is seen | next |
//! |---|---|---|
//! | none, SnapshotInProgress | no source, or a volume that cannot be copied | told, and looked at again |
//! | none, SnapshotInProgress | a VM | its snapshot is made |
//! | SnapshotInProgress | the snapshot is ready | RestoreInProgress |
//! | RestoreInProgress | the snapshot is gone | Failed |
//! | RestoreInProgress | | the restore is made |
//! | RestoreInProgress | the restore has ended | CreatingTargetVM |
//! | CreatingTargetVM | the VM | Succeeded |
//! | Succeeded | its claims are bound | snapshot and restore go |
//! | Succeeded | the VM is gone | the clone goes |

pub mod controller;
pub mod patches;

mod objects;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::clone::{
    VirtualMachineClone as Clone_, VirtualMachineClonePhase as Phase, VirtualMachineCloneStatus as Status,
};
use api::nullable::Nullable;
use api::restore::VirtualMachineRestore as Restore;
use api::snapshot::{VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotContent as Content};
use api::vm::{VirtualMachine, VirtualMachineSpec};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::events::Kind;
use manager::writing::{difference, guarded, whole_second};
use serde_json::{Value, json};

use crate::restore::is_progressing;
use crate::snapshot::{is_ready, phase as snapshot_phase, put};
use crate::vmi::{Event, Target};

const VM: &str = "VirtualMachine";
const SNAPSHOT: &str = "VirtualMachineSnapshot";

/// What the caches say about one clone.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    pub clone: &'a Clone_,
    /// The source, if it is a VM.
    pub source: Option<&'a VirtualMachine>,
    /// The snapshot: the source, or the clone's own.
    pub snapshot: Option<&'a Snapshot>,
    pub content: Option<&'a Content>,
    /// The clone's restore.
    pub restore: Option<&'a Restore>,
    /// The VM of the target's name.
    pub target: Option<&'a VirtualMachine>,
    /// The claims that the restore has made, by name.
    pub claims: BTreeMap<&'a str, &'a PersistentVolumeClaim>,
    /// What the server said to the last attempt.
    pub failure: Option<&'a str>,
}

/// What to do about one clone; empty at rest. In this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClonePlan {
    /// The clone's own snapshot.
    pub snapshot: Option<Box<Snapshot>>,
    /// The clone's restore.
    pub restore: Option<Box<Restore>>,
    /// The restore must go.
    pub delete_restore: Option<Target>,
    /// The snapshot must go.
    pub delete_snapshot: Option<Target>,
    /// A guarded merge patch of the status.
    pub status: Option<Value>,
    /// The clone must go: the VM that it made is gone.
    pub delete: Option<Target>,
    /// What people should read.
    pub events: Vec<Event>,
}

/// # Guarantees
/// - Snapshot and restore are named after the clone's UID: there is one of each.
/// - A snapshot that is the source is never deleted.
/// - The clone's own snapshot goes only when the claims of the new VM are bound.
/// - A VM of the target's name that is not the restore's is never touched: the restore refuses it.
/// - Failed is final.
/// - Equal observations give equal plans; at rest the plan is empty.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> ClonePlan {
    let status = seen.clone.status.clone().unwrap_or_default();
    let mut making = Making { seen, now, status, plan: ClonePlan::default() };
    match making.follow() {
        Ok(()) => making.tell_phase(),
        Err(Halt::Pending(reason, why)) => making.pend(reason, &why),
        Err(Halt::Failed(reason, why)) => making.fail(reason, &why),
    }
    making.finish()
}

/// The phase of a clone.
#[must_use]
pub fn phase(clone: &Clone_) -> &Phase {
    const UNSET: &Phase = &Phase::Unset;
    clone.status.as_ref().and_then(|status| status.phase.as_ref()).unwrap_or(UNSET)
}

/// The name of a clone's own snapshot.
#[must_use]
pub fn snapshot_name(clone: &Clone_) -> String {
    format!("tmp-snapshot-{}", clone.metadata.uid.as_deref().unwrap_or_default())
}

/// The name of a clone's restore.
#[must_use]
pub fn restore_name(clone: &Clone_) -> String {
    format!("tmp-restore-{}", clone.metadata.uid.as_deref().unwrap_or_default())
}

/// The name of the new VM. Admission gives one to those that name none.
#[must_use]
pub fn target_name(clone: &Clone_) -> String {
    let named = clone.spec.target.as_ref().map(|target| target.name.clone()).filter(|name| !name.is_empty());
    let uid = clone.metadata.uid.as_deref().unwrap_or_default();
    named.unwrap_or_else(|| format!("clone-{}-{}", clone.spec.source.name, uid.chars().take(5).collect::<String>()))
}

/// Why a clone does not go on.
enum Halt {
    /// Until something changes.
    Pending(&'static str, String),
    /// For ever.
    Failed(&'static str, String),
}

/// A decision in the making.
struct Making<'a> {
    seen: &'a Observed<'a>,
    now: Timestamp,
    status: Status,
    plan: ClonePlan,
}

impl<'a> Making<'a> {
    fn follow(&mut self) -> Result<(), Halt> {
        let clone = self.seen.clone;
        if clone.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        match phase(clone) {
            Phase::Unset | Phase::SnapshotInProgress => self.follow_snapshot(),
            Phase::RestoreInProgress => self.follow_restore(),
            Phase::CreatingTargetVM => self.follow_target(),
            Phase::Succeeded => {
                self.clean_up();
                Ok(())
            }
            Phase::Failed | Phase::Unknown | Phase::Other(_) => Ok(()),
        }
    }

    fn follow_snapshot(&mut self) -> Result<(), Halt> {
        let clone = self.seen.clone;
        let from_machine = clone.spec.source.kind == VM;
        self.source_exists(from_machine)?;
        self.status.phase = Some(Phase::SnapshotInProgress);
        if let Some(vm) = self.seen.source.filter(|_| from_machine && self.status.snapshot_name.as_ref().is_none()) {
            can_be_copied(vm).map_err(|why| Halt::Pending("VMVolumeSnapshotsInvalid", why))?;
            let name = snapshot_name(clone);
            if self.seen.snapshot.is_none() {
                self.plan.snapshot = Some(Box::new(self.own_snapshot()));
                self.tell("SnapshotCreated", format!("created snapshot {name} for clone {}", self.name()));
            }
            self.status.snapshot_name = Some(name).into();
            return Ok(());
        }
        let Some(snapshot) = self.seen.snapshot else {
            let name = self.status.snapshot_name.as_ref().cloned().unwrap_or_default();
            return Err(Halt::Failed("SnapshotDeleted", format!("snapshot {name} does not exist anymore")));
        };
        let name = snapshot.metadata.name.clone().unwrap_or_default();
        if *snapshot_phase(snapshot) == api::snapshot::VirtualMachineSnapshotPhase::Failed {
            return Err(Halt::Failed("SnapshotContentInvalid", format!("snapshot {name} has failed")));
        }
        if !is_ready(snapshot) {
            return Ok(());
        }
        self.content(snapshot)?;
        self.tell("SnapshotReady", format!("snapshot {name} for clone {} is ready to use", self.name()));
        self.status.snapshot_name = Some(name).into();
        self.status.phase = Some(Phase::RestoreInProgress);
        Ok(())
    }

    fn follow_restore(&mut self) -> Result<(), Halt> {
        let clone = self.seen.clone;
        let name = self.status.snapshot_name.as_ref().cloned().unwrap_or_default();
        let Some(snapshot) = self.seen.snapshot else {
            return Err(Halt::Failed("SnapshotDeleted", format!("snapshot {name} does not exist anymore")));
        };
        if self.status.restore_name.as_ref().is_none() {
            let (spec, metadata) = self.content(snapshot)?;
            let own = restore_name(clone);
            if self.seen.restore.is_none() {
                self.plan.restore = Some(Box::new(self.own_restore(&name, spec, metadata)));
                self.tell("RestoreCreated", format!("created restore {own} for clone {}", self.name()));
            }
            self.status.restore_name = Some(own).into();
            return Ok(());
        }
        let Some(restore) = self.seen.restore else {
            let why = format!("restore {} does not exist anymore", restore_name(clone));
            return Err(Halt::Failed("RestoreCreationFailed", why));
        };
        if is_progressing(restore) {
            return Ok(());
        }
        let own = restore_name(clone);
        if restore.status.as_ref().and_then(|status| status.complete) != Some(true) {
            return Err(Halt::Failed("RestoreCreationFailed", format!("restore {own} has failed")));
        }
        self.tell("RestoreReady", format!("restore {own} for clone {} is ready to use", self.name()));
        self.status.target_name = Some(restore.spec.target.name.clone()).into();
        self.status.phase = Some(Phase::CreatingTargetVM);
        Ok(())
    }

    fn follow_target(&mut self) -> Result<(), Halt> {
        if self.seen.target.is_some() {
            let name = target_name(self.seen.clone);
            self.tell("TargetVMCreated", format!("created target VM {name} for clone {}", self.name()));
            self.status.phase = Some(Phase::Succeeded);
            self.status.creation_time = Some(whole_second(self.now)).into();
        }
        Ok(())
    }

    /// The VM is there. What was only made for it goes once its claims are bound.
    fn clean_up(&mut self) {
        if self.seen.target.is_none() {
            self.plan.delete = Some(target(&self.seen.clone.metadata));
            return;
        }
        if self.status.restore_name.as_ref().is_none() {
            return;
        }
        let restores = self.seen.restore.and_then(|restore| restore.status.as_ref()?.restores.as_deref());
        let bound = |name: &str| {
            let claim = self.seen.claims.get(name).and_then(|claim| claim.status.as_ref()?.phase.as_deref());
            claim == Some("Bound")
        };
        if !restores.unwrap_or_default().iter().all(|one| bound(&one.persistent_volume_claim)) {
            return;
        }
        self.tell("PVCBound", format!("all PVC for clone {} are bound", self.name()));
        self.plan.delete_restore = self.seen.restore.map(|restore| target(&restore.metadata));
        let own = self.seen.snapshot.filter(|_| self.seen.clone.spec.source.kind == VM);
        self.plan.delete_snapshot = own.map(|snapshot| target(&snapshot.metadata));
        (self.status.snapshot_name, self.status.restore_name) = (Nullable::Absent, Nullable::Absent);
    }

    fn source_exists(&self, from_machine: bool) -> Result<(), Halt> {
        let clone = self.seen.clone;
        let found = match from_machine {
            true => self.seen.source.is_some(),
            false => self.seen.snapshot.is_some(),
        };
        if found {
            return Ok(());
        }
        let (kind, name) = (if from_machine { VM } else { SNAPSHOT }, &clone.spec.source.name);
        let namespace = clone.metadata.namespace.as_deref().unwrap_or_default();
        Err(Halt::Pending("SourceDoesNotExist", format!("Source doesnt exist: {kind} {namespace}/{name}")))
    }

    /// The VM as the snapshot has it; an error if it does not have all of it.
    fn content(&self, snapshot: &Snapshot) -> Result<(&'a VirtualMachineSpec, &'a ObjectMeta), Halt> {
        const REASON: &str = "SnapshotContentInvalid";
        let name = crate::snapshot::content_name(snapshot);
        let content = self.seen.content.ok_or_else(|| {
            let namespace = snapshot.metadata.namespace.as_deref().unwrap_or_default();
            let why = format!("snapshot content {name} in namespace {namespace} does not exist");
            Halt::Pending(REASON, why)
        })?;
        let vm = content.spec.source.virtual_machine.as_ref();
        let both = vm.and_then(|vm| Some((vm.spec.as_ref()?, vm.metadata.as_ref()?)));
        let (spec, metadata) =
            both.ok_or_else(|| Halt::Failed(REASON, format!("snapshot content {name} has no VM")))?;
        let has = |name: &str| content.spec.volume_backups.iter().flatten().any(|one| one.volume_name == name);
        let volumes = spec.template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let lacking = volumes
            .filter(|volume| volume.persistent_volume_claim.is_some() || volume.data_volume.is_some())
            .filter(|volume| !has(&volume.name))
            .map(|volume| {
                let snapshot = snapshot.metadata.name.as_deref().unwrap_or_default();
                format!("volume {} is not backed up in snapshot {snapshot}", volume.name)
            });
        let lacking: Vec<String> = lacking.collect();
        if lacking.is_empty() { Ok((spec, metadata)) } else { Err(Halt::Failed(REASON, lacking.join("\n"))) }
    }

    fn name(&self) -> &'a str {
        self.seen.clone.metadata.name.as_deref().unwrap_or_default()
    }

    fn tell(&mut self, reason: &'static str, message: String) {
        self.plan.events.push(Event { kind: Kind::Normal, reason, message });
    }

    fn say(&mut self, progressing: bool, progress: &str, ready: bool, readiness: &str) -> bool {
        let before = self.status.conditions.clone();
        put(&mut self.status.conditions, "Progressing", progressing, progress, self.now);
        put(&mut self.status.conditions, "Ready", ready, readiness, self.now);
        before != self.status.conditions
    }

    fn tell_phase(&mut self) {
        match (&self.status.phase, self.seen.failure) {
            (Some(Phase::Succeeded), _) => drop(self.say(false, "Ready", true, "Ready")),
            (Some(Phase::Failed), _) => {}
            (_, Some(failure)) => {
                if self.say(true, "Still processing", false, failure) {
                    self.plan.events.push(Event::warning("RestoreCreationFailed", failure));
                }
            }
            (_, None) => drop(self.say(true, "Still processing", false, "Still processing")),
        }
    }

    fn pend(&mut self, reason: &'static str, why: &str) {
        self.status.phase = self.seen.clone.status.as_ref().and_then(|status| status.phase.clone());
        if self.say(false, "Pending", false, why) {
            self.plan.events.push(Event::warning(reason, why));
        }
    }

    fn fail(&mut self, reason: &'static str, why: &str) {
        self.status.phase = Some(Phase::Failed);
        self.say(false, "Failed", false, why);
        self.plan.events.push(Event::warning(reason, why));
    }

    fn finish(mut self) -> ClonePlan {
        let clone = self.seen.clone;
        if clone.metadata.deletion_timestamp.is_none() && self.plan.delete.is_none() {
            let old = clone.status.clone().unwrap_or_default();
            let patch = difference(&json!(old), &json!(self.status));
            self.plan.status = patch.map(|patch| guarded(&clone.metadata, json!({ "status": patch })));
        }
        self.plan
    }
}

/// Whether all claims of a VM can be copied, as its status says.
fn can_be_copied(vm: &VirtualMachine) -> Result<(), String> {
    let volumes = vm.spec.template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter(|one| one.persistent_volume_claim.is_some() || one.data_volume.is_some());
    let told = vm.status.as_ref().and_then(|status| status.volume_snapshot_statuses.as_deref()).unwrap_or_default();
    let problems = claims.filter_map(|volume| {
        let name = &volume.name;
        match told.iter().find(|one| one.name == *name) {
            Some(one) if one.enabled => None,
            Some(_) => Some(format!("Virtual Machine volume {name} does not support snapshots")),
            None => Some(format!("Virtual Machine volume {name} snapshot support unknown")),
        }
    });
    let problems: Vec<String> = problems.collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn target(metadata: &ObjectMeta) -> Target {
    Target { name: metadata.name.clone().unwrap_or_default(), uid: metadata.uid.clone().unwrap_or_default() }
}
