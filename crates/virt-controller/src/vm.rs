//! Virtual machines: from what a VM asks for to its instance, and back to what its status tells.
//!
//! ```text
//! VM, its instance ──────────┐
//! instancetype, preference ──┼─> observe ──> decide ──> Plan ──> act: the VM itself, volumes, revisions, the status,
//! volumes, revisions ────────┤                                   and then the start or the stop
//! configuration, now ────────┘
//! ```
//! Watches: VM, VMI, DataVolume, PersistentVolumeClaim, StorageClass, VolumeSnapshotClass, ControllerRevision, instancetypes,
//! preferences, KubeVirt.
//! Owns: the instance of the VM's name, data volumes of its templates, revisions of its starts. Emits: events about
//! instances and volumes that were made, deleted, or cannot be.
//! Absent on purpose: pods and nodes; those are the instance's.

pub mod backoff;
pub mod controller;
mod end;
pub mod instance;
pub mod instancetypes;
pub mod printable;
pub mod revision;
pub mod run_strategy;
mod status;
mod volumes;

#[cfg(test)]
mod tests;

use std::time::Duration;

use api::data_volume::DataVolume;
use api::names::{annotation, finalizer};
use api::owner::{controller_of, controller_reference, is_controlled_by};
use api::vm::{VirtualMachine, VirtualMachineRunStrategy as Strategy};
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use virt_rules::config::ClusterConfig;

use crate::vmi::volumes::Known;
use crate::vmi::{Event, Target};
use crate::volume_snapshots::SnapshotClasses;
use instancetypes::{Chosen, Problem};
use run_strategy::{Instance, Stage, Wish};

/// What the caches say about one VM.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    pub vm: &'a VirtualMachine,
    /// The instance of its name, whoever controls it.
    pub instance: Option<&'a VirtualMachineInstance>,
    /// Whether the server itself was asked for that instance, because the cache has none.
    pub asked: bool,
    /// Instances that it controls and that have other names.
    pub strays: Vec<&'a VirtualMachineInstance>,
    /// The revisions that it controls.
    pub revisions: Vec<&'a ControllerRevision>,
    /// What its instancetype and preference are.
    pub chosen: Result<Chosen, Problem>,
    /// What is known of volumes in its namespace.
    pub volumes: Known<'a>,
    /// Which class copies the claims of which storage class.
    pub snapshot_classes: SnapshotClasses,
    /// The cluster's configuration.
    pub config: &'a ClusterConfig,
    /// Why the last attempt to make something failed; none once it worked.
    pub failure: Option<&'a str>,
    /// From 0 to below 1.
    pub chance: f64,
}

/// What to do about one VM; empty at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Nothing else: ask the server itself for the instance, and decide again. A VM that is let go leaves nobody behind who
    /// would let its instance go.
    pub ask: bool,
    /// A merge patch of the VM itself: a finalizer, an expanded specification, another strategy. What follows waits for it.
    pub vm: Option<Value>,
    /// Merge patches of instances: adopted, released, told that the VM has changed without them, let go.
    pub instances: Vec<(Target, Value)>,
    /// Data volumes that are missing.
    pub volumes: Vec<DataVolume>,
    /// Instancetypes and preferences to be kept as they are.
    pub keep: Vec<ControllerRevision>,
    /// A merge patch of the status. Before a stop: what the status remembers of an instance outlives it.
    pub status: Option<Value>,
    /// The instance to be made, with the revision of the start.
    pub start: Option<Box<Start>>,
    /// The instance that must go, if it is still what was seen: one that was let go meanwhile stays.
    pub stop: Option<Stop>,
    /// Revisions that nobody needs any more.
    pub forget: Vec<Target>,
    /// What people should read.
    pub events: Vec<Event>,
    /// When time alone changes something: decide again then.
    pub recheck_after: Option<Duration>,
}

/// An instance to create.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// What it starts from.
    pub revision: ControllerRevision,
    pub instance: VirtualMachineInstance,
}

/// An instance to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub target: Target,
    /// The version that was seen.
    pub version: String,
}

/// A decision in the making.
struct Making<'a> {
    seen: &'a Observed<'a>,
    /// The instance, if it is the VM's own.
    mine: Option<&'a VirtualMachineInstance>,
    now: Timestamp,
    plan: Plan,
    /// What keeps the VM from what it asks for, with the reason's word.
    problem: Option<(&'static str, String)>,
    /// Whether a start is to be noted with the stop.
    again: bool,
    /// Whether an instance is wanted that is not there.
    starts: bool,
}

/// # Guarantees
/// - Nothing is started that the run strategy does not ask for, nor while a VM is deleted, restored or snapshotted, nor
///   while an instance of its name exists, whoever controls it.
/// - An instance is deleted only if the VM controls it.
/// - What the status must remember of an instance is written before the instance is let go.
/// - Equal observations give equal plans; at rest the plan is empty.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let uid = seen.vm.metadata.uid.as_deref().unwrap_or_default();
    let mine = seen.instance.filter(|instance| is_controlled_by(&instance.metadata, uid));
    let mut making = Making { seen, mine, now, plan: Plan::default(), problem: None, again: false, starts: false };
    if seen.vm.metadata.deletion_timestamp.is_some() {
        making.end();
    } else {
        making.live();
    }
    making.finish()
}

/// What a VM asks for, by either of the two fields that say so.
#[must_use]
pub fn strategy(vm: &VirtualMachine) -> Strategy {
    match (&vm.spec.run_strategy, vm.spec.running) {
        (Some(strategy), _) => strategy.clone(),
        (None, Some(true)) => Strategy::Always,
        (None, _) => Strategy::Halted,
    }
}

/// An instance, as far as the run strategy cares.
fn as_strategy_sees_it(instance: &VirtualMachineInstance) -> Instance<'_> {
    let stage = match instance.phase() {
        _ if instance.is_marked_for_deletion() => Stage::Going,
        Phase::Succeeded => Stage::Succeeded,
        Phase::Failed => Stage::Failed,
        _ => Stage::Live,
    };
    Instance { uid: instance.metadata.uid.as_deref().unwrap_or_default(), stage }
}

fn target(metadata: &ObjectMeta) -> Target {
    Target { name: metadata.name.clone().unwrap_or_default(), uid: metadata.uid.clone().unwrap_or_default() }
}

/// A merge patch of one version of one object and no other.
fn patch_of(metadata: &ObjectMeta, mut patch: Value) -> Value {
    patch["metadata"]["uid"] = json!(metadata.uid);
    patch["metadata"]["resourceVersion"] = json!(metadata.resource_version);
    patch
}

fn without(metadata: &ObjectMeta, finalizer: &str) -> Vec<String> {
    metadata.finalizers.iter().flatten().filter(|one| *one != finalizer).cloned().collect()
}

fn has(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == finalizer)
}

impl Making<'_> {
    fn live(&mut self) {
        let vm = self.seen.vm;
        self.claim();
        if !has(&vm.metadata, finalizer::VM_CONTROLLER) {
            let mut finalizers = without(&vm.metadata, "");
            finalizers.push(finalizer::VM_CONTROLLER.to_owned());
            self.plan.vm = Some(patch_of(&vm.metadata, json!({ "metadata": { "finalizers": finalizers } })));
            return;
        }
        let chosen = match &self.seen.chosen {
            Ok(chosen) => chosen,
            Err(problem) => {
                self.problem = Some((problem.reason, problem.message.clone()));
                return self.run(None);
            }
        };
        if let Some(expanded) = &chosen.expanded {
            self.plan.vm = Some(patch_of(&vm.metadata, expanded.clone()));
            return;
        }
        self.plan.keep.clone_from(&chosen.keep);
        self.run(Some(chosen));
    }

    /// Makes the instance of the VM's name its own, and lets go of others.
    fn claim(&mut self) {
        let Some(owner) = controller_reference(self.seen.vm) else { return };
        let orphan = self.seen.instance.filter(|instance| controller_of(&instance.metadata).is_none());
        if let Some(instance) = orphan.filter(|instance| !instance.is_marked_for_deletion()) {
            let metadata = &instance.metadata;
            let owners = metadata.owner_references.iter().flatten().cloned().chain([owner.clone()]);
            let finalizers = without(metadata, finalizer::VM_CONTROLLER);
            let finalizers = finalizers.into_iter().chain([finalizer::VM_CONTROLLER.to_owned()]);
            let patch = json!({ "metadata": {
                "ownerReferences": owners.collect::<Vec<_>>(), "finalizers": finalizers.collect::<Vec<_>>(),
            } });
            self.plan.instances.push((target(metadata), patch_of(metadata, patch)));
        }
        for stray in &self.seen.strays {
            let metadata = &stray.metadata;
            let owners = metadata.owner_references.iter().flatten().filter(|one| one.uid != owner.uid);
            let patch = json!({ "metadata": {
                "ownerReferences": owners.collect::<Vec<_>>(),
                "finalizers": without(metadata, finalizer::VM_CONTROLLER),
            } });
            self.plan.instances.push((target(metadata), patch_of(metadata, patch)));
        }
    }

    /// Does what the run strategy asks for.
    fn run(&mut self, chosen: Option<&Chosen>) {
        let vm = self.seen.vm;
        let wish = self.wish();
        self.starts = matches!(wish, Wish::Start { .. });
        self.make_volumes(self.starts, chosen);
        match wish {
            Wish::Nothing => self.follow(),
            Wish::Start { paused } => {
                if let Some(chosen) = chosen {
                    self.start(chosen, paused);
                }
            }
            Wish::Stop { again } => {
                self.again = again;
                self.stop();
            }
            Wish::BecomeAlways => {
                let patch = match vm.spec.running {
                    Some(_) => json!({ "spec": { "running": true } }),
                    None => json!({ "spec": { "runStrategy": Strategy::Always } }),
                };
                self.plan.vm = Some(patch_of(&vm.metadata, patch));
            }
        }
    }

    fn wish(&self) -> Wish {
        let status = self.seen.vm.status.as_ref();
        let requests = status.and_then(|status| status.state_change_requests.as_deref()).unwrap_or_default();
        let instance = self.mine.map(as_strategy_sees_it);
        let was = status.and_then(|status| status.run_strategy.as_ref());
        let open = run_strategy::still_open(requests, instance);
        run_strategy::wish(&strategy(self.seen.vm), was, instance, &open)
    }

    /// What stands in the way of a start, apart from time.
    fn obstacle(&self) -> Option<(&'static str, String)> {
        if let Some(other) = self.seen.instance {
            let owner = controller_of(&other.metadata);
            let owner =
                owner.map_or_else(|| "no other object".to_owned(), |one| format!("the {} {}", one.kind, one.name));
            let message = format!("a VirtualMachineInstance with the VM's name already exists and belongs to {owner}");
            return Some(("FailedCreate", message));
        }
        self.volume_obstacle()
    }

    fn is_locked(&self) -> bool {
        let status = self.seen.vm.status.as_ref();
        let held = |lock: Option<&String>| lock.is_some_and(|lock| !lock.is_empty());
        status.is_some_and(|status| {
            held(status.restore_in_progress.as_ref()) || held(status.snapshot_in_progress.as_ref())
        })
    }

    fn start(&mut self, chosen: &Chosen, paused: bool) {
        if self.is_locked() || self.problem.is_some() {
            return;
        }
        if let Some(obstacle) = self.obstacle() {
            self.problem = Some(obstacle).filter(|(_, message)| !message.is_empty());
            return;
        }
        let failures = self.seen.vm.status.as_ref().and_then(|status| status.start_failure.as_ref());
        let patient = matches!(strategy(self.seen.vm), Strategy::Always | Strategy::RerunOnFailure | Strategy::Once);
        if let Some(left) = backoff::remaining(failures, self.now).filter(|_| patient) {
            self.plan.recheck_after = Some(left);
            return;
        }
        let revision = revision::of_start(self.seen.vm, chosen);
        match instance::of(self.seen.vm, chosen, self.seen.config, &revision, paused, self.now) {
            Ok(instance) => self.plan.start = Some(Box::new(Start { revision, instance })),
            Err(conflicts) => self.problem = Some(("FailedCreate", conflicts.to_string())),
        }
    }

    fn stop(&mut self) {
        if let Some(seen) = self.mine.map(|one| &one.metadata).filter(|seen| seen.deletion_timestamp.is_none()) {
            let version = seen.resource_version.clone().unwrap_or_default();
            self.plan.stop = Some(Stop { target: target(seen), version });
        }
    }

    /// Nothing is to be started or stopped: the instance hears that the VM has changed, if the change is none of its own.
    fn follow(&mut self) {
        let Some(instance) = self.mine.filter(|one| !one.is_marked_for_deletion() && !one.is_final()) else { return };
        if !revision::has_heard_of(self.seen.vm, instance) && self.needs_restart() == Some(false) {
            let generation = self.seen.vm.metadata.generation.unwrap_or(0).to_string();
            let patch = json!({ "metadata": { "annotations": { annotation::VM_GENERATION: generation } } });
            self.plan.instances.push((target(&instance.metadata), patch_of(&instance.metadata, patch)));
        }
    }

    /// Whether the instance lacks something that the VM asks for by now; none if nobody knows what it was started from.
    fn needs_restart(&self) -> Option<bool> {
        let (vm, instance) = (self.seen.vm, self.mine?);
        if revision::has_heard_of(vm, instance) {
            return Some(false);
        }
        let name = instance.status.as_ref()?.virtual_machine_revision_name.as_deref()?;
        let revision = self.seen.revisions.iter().find(|one| one.metadata.name.as_deref() == Some(name))?;
        Some(revision::needs_restart(&revision::specification(revision)?, &vm.spec, instance))
    }

    /// What the guest of an instance that ends has seen is kept for the next one: it finds its devices where they were.
    fn keep_guest(&mut self) {
        let vm = &self.seen.vm.metadata;
        let ended = self.mine.filter(|one| one.is_final() && vm.deletion_timestamp.is_none());
        let seen = ended.and_then(|instance| instance.metadata.annotations.as_ref()?.get(annotation::GUEST));
        let known = vm.annotations.as_ref().and_then(|annotations| annotations.get(annotation::GUEST));
        if let Some(seen) = seen.filter(|seen| Some(*seen) != known && self.plan.vm.is_none()) {
            self.plan.vm = Some(patch_of(vm, json!({ "metadata": { "annotations": { annotation::GUEST: seen } } })));
        }
    }

    fn finish(mut self) -> Plan {
        if self.plan.ask {
            return Plan { ask: true, ..Plan::default() };
        }
        // The status follows when the VM is as it shall be, or the instance that is about to be made is there: one write
        // instead of two. What was wrong before is told at once.
        self.keep_guest();
        let silent = self.plan.vm.is_some() || (self.plan.start.is_some() && self.seen.failure.is_none());
        if !silent {
            self.plan.status = self.status();
        }
        let ended = self.mine.filter(|one| one.is_final() && one.is_marked_for_deletion());
        let is_live = self.seen.vm.metadata.deletion_timestamp.is_none();
        if let Some(instance) = ended.filter(|one| is_live && has(&one.metadata, finalizer::VM_CONTROLLER)) {
            // Only what the status and the VM have recorded may go.
            if self.plan.status.is_none() && self.plan.vm.is_none() {
                self.let_go(instance);
            }
        }
        self.forget_revisions();
        self.plan
    }

    /// Revisions of earlier starts go once a later one is in use.
    fn forget_revisions(&mut self) {
        let Some(current) =
            self.mine.and_then(|instance| instance.status.as_ref()?.virtual_machine_revision_name.as_deref())
        else {
            return;
        };
        let uid = self.seen.vm.metadata.uid.as_deref().unwrap_or_default();
        let prefix = revision::prefix(uid);
        let old = self.seen.revisions.iter().filter(|one| {
            let name = one.metadata.name.as_deref().unwrap_or_default();
            name.starts_with(&prefix) && name != current && one.metadata.deletion_timestamp.is_none()
        });
        self.plan.forget.extend(old.map(|one| target(&one.metadata)));
    }
}
