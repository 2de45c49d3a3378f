//! Pools of VMs: as many VMs as asked for, each with a number of its own, made from one template and brought up to date with it.
//!
//! ```text
//! VirtualMachinePool ──────────┐
//! VMs of its namespace ────────┤
//! their instances ─────────────┼─> observe ──> decide ──> releases, one status patch, revisions, then VMs: creations,
//! the nodes of the instances ──┤                          changes, deletions, restarts
//! revisions of the pool ───────┤
//! now ─────────────────────────┘
//! ```
//! Watches: VirtualMachinePool, VirtualMachine, VirtualMachineInstance, ControllerRevision, Node. Owns: VMs and revisions, by a
//! controller owner reference, and the status of the pool. Emits: creations, changes and deletions of VMs, deletions of instances
//! that run an old template, the label of the revision on those that need not restart, and events about the pool. Absent on
//! purpose: adoption, since a VM that somebody else made has data that the pool must not delete; and how a VM runs, which is the
//! VM controller's.
//!
//! What a VM is to its pool:
//!
//! | marked for deletion | its revision has the pool's template | its instance | the VM is |
//! |---|---|---|---|
//! | yes | any | any | going: it holds its place and its number until it is gone |
//! | no | no | any | outdated: it is changed, or replaced if its data volumes are others |
//! | no | yes | runs an older revision with the same guest | behind in name: it is given the label of the newer one |
//! | no | yes | runs an older revision with another guest | behind: it is deleted, as many at a time as may be unavailable |
//! | no | yes | any other | up to date |
//!
//! | strategy | outdated VMs | instances that are behind |
//! |---|---|---|
//! | proactive, the default | changed at once | restarted |
//! | opportunistic | changed at once | left alone: they take the change when they restart |
//! | unmanaged | left alone | left alone |
//!
//! A proactive strategy with selectors reaches only the VMs that they select; all others are as with an unmanaged one.

pub mod controller;
mod heal;
mod indexed;
mod revisions;
mod status;
mod update;
mod victims;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::pool::{StatePreservation, VirtualMachinePool};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use manager::claim::{self, OwnerPatch, Patching, Target};
use manager::selector::{Selector, SelectorError};
use serde_json::Value;

use crate::indexes::claim_names_of_vm;
use crate::vmi::Event;

/// VMs that are created, changed or deleted at one time; more follow when these were seen.
pub const BURST: usize = 250;

/// Label of a VM, and of its template: which revision of its pool it was made from.
pub const REVISION: &str = "kubevirt.io/vm-pool-revision-name";

/// What the caches say about one pool.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    pub pool: &'a VirtualMachinePool,
    /// The VMs that it controls.
    pub vms: Vec<&'a VirtualMachine>,
    /// The names of all VMs of its namespace.
    pub in_use: BTreeSet<&'a str>,
    /// The instances of its VMs, by name.
    pub instances: BTreeMap<&'a str, &'a VirtualMachineInstance>,
    /// The labels of the nodes that these run on, by name.
    pub nodes: BTreeMap<&'a str, &'a BTreeMap<String, String>>,
    /// The pool's revisions.
    pub revisions: Vec<&'a ControllerRevision>,
    /// What stopped the last attempt; none once one went well.
    pub failure: Option<Failure>,
}

/// What stopped a change half way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `FailedScaleOut`, `FailedScaleIn` or `FailedUpdate`.
    pub reason: &'static str,
    /// The error, as the condition shall show it.
    pub message: String,
}

/// What to do about one pool; empty at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolPlan {
    /// VMs that no longer match: stop being their controller.
    pub release: Vec<OwnerPatch>,
    /// A guarded merge patch of the status, if it differs.
    pub status: Option<Value>,
    /// What is said once the status is written.
    pub events: Vec<Event>,
    /// The revision of the template as it is, if nobody has kept it yet. No VM is made or changed before.
    pub keep: Option<Box<ControllerRevision>>,
    /// Revisions that nothing is left of.
    pub forget: Vec<Target>,
    /// VMs that are missing.
    pub create: Vec<VirtualMachine>,
    /// VMs that must go.
    pub delete: Vec<Deletion>,
    /// VMs that must say something else: each with a guarded merge patch.
    pub update: Vec<(Target, Value)>,
    /// Instances whose VMs have changed: they are deleted, and their VMs start them again.
    pub restart: Vec<Target>,
    /// Instances that run what the newer revision of their VM says, too: each with a guarded merge patch of the label.
    pub relabel: Vec<(Target, Value)>,
    /// When time alone changes something: decide again then.
    pub recheck_after: Option<Duration>,
}

/// A VM that must go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    pub target: Target,
    /// Why, in words for an event.
    pub why: Why,
    /// Data volumes and claims that stay when it goes.
    pub keeps: Vec<String>,
}

/// Why a VM must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There are more than asked for.
    TooMany,
    /// It cannot start.
    Failing,
    /// Its data volumes are others than those of the template.
    OtherDisks,
}

/// A pool that cannot be acted on. Final: only an edit of the object helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// There is nothing to create VMs from.
    #[error("spec.virtualMachineTemplate.spec is missing")]
    NoTemplate,
    /// The selector cannot be used.
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

/// # Guarantees
/// - Nothing is created, changed or deleted while the pool is paused or being deleted, and never more than [`BURST`] at once.
/// - There are never more VMs than asked for, those included that go; and a healthy VM is never deleted unless there are more than
///   asked for, or its disks are others than those of the template.
/// - A name is the pool's and a number: the lowest one that no VM of the namespace has, whoever owns it.
/// - By restarts and replacements for an update, no more VMs are unavailable at a time than the pool allows; and no guest is
///   restarted for a change that is not the guest's, such as other labels of its VM.
/// - Touches no VM that it does not control.
/// - Equal observations give equal plans; at rest the plan is empty.
///
/// # Errors
/// When the specification cannot be acted on; then nothing at all is to be done.
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Result<PoolPlan, PoolError> {
    let pool = seen.pool;
    let template = &pool.spec.virtual_machine_template;
    if template.spec.is_none() {
        return Err(PoolError::NoTemplate);
    }
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let selector = Selector::of_template(&pool.spec.selector, labels)?;
    let own = seen.vms.iter().copied().filter(|vm| claim::is_controlled_by(&vm.metadata, &pool.metadata));
    let claims = claim::claim(pool, &selector, own, Patching::Merge);
    let active: Vec<&VirtualMachine> = claims.mine.iter().copied().filter(|vm| is_active(vm)).collect();

    let mut plan = PoolPlan { release: claims.release, ..PoolPlan::default() };
    let acts = pool.spec.paused != Some(true) && pool.metadata.deletion_timestamp.is_none();
    if acts {
        let revision = revisions::current(seen);
        plan.keep = revision.missing.map(Box::new);
        plan.forget = revisions::unused(seen, &claims.mine, &revision.name);
        let going = claims.mine.len() - active.len();
        scale(seen, &active, going, &revision.name, &mut plan, now);
        if plan.create.is_empty() && plan.delete.is_empty() {
            update::plan(seen, &active, &revision.name, &mut plan);
        }
    }
    let changes = !plan.update.is_empty() || !plan.restart.is_empty() || !plan.relabel.is_empty();
    let works = changes || !plan.create.is_empty() || !plan.delete.is_empty();
    // What stopped an attempt that nobody makes any more is no failure.
    let failure = seen.failure.as_ref().filter(|_| works || plan.keep.is_some());
    (plan.status, plan.events) = status::changed(pool, &selector, &active, failure, now);
    Ok(plan)
}

/// As many as asked for: VMs that cannot start are replaced, missing ones made, and those that are too many deleted.
fn scale(
    seen: &Observed<'_>,
    active: &[&VirtualMachine],
    going: usize,
    revision: &str,
    plan: &mut PoolPlan,
    now: Timestamp,
) {
    let wanted = usize::try_from(seen.pool.spec.replicas.unwrap_or(1)).unwrap_or(0);
    let healed = heal::failing(seen.pool, active, now);
    plan.recheck_after = healed.recheck_after;
    let (failing, staying): (Vec<&VirtualMachine>, Vec<&VirtualMachine>) =
        active.iter().copied().partition(|vm| healed.failing.contains(name(vm)));
    let keeps = keeps_disks(seen.pool);
    let deletion = |vm: &VirtualMachine, why| {
        let kept = if keeps { claim_names_of_vm(vm) } else { Vec::new() };
        Deletion { target: Target::of(&vm.metadata), why, keeps: kept }
    };
    plan.delete = failing.iter().take(BURST).map(|vm| deletion(vm, Why::Failing)).collect();
    let surplus = staying.len().saturating_sub(wanted).min(BURST);
    let surplus = victims::choose(seen, &staying, surplus);
    plan.delete.extend(surplus.into_iter().map(|vm| deletion(vm, Why::TooMany)));
    // One that goes holds its place until it is gone: then its number is free, and what belongs to its number as well.
    let missing = wanted.saturating_sub(active.len().saturating_add(going)).min(BURST);
    let numbers = indexed::free_numbers(name_of_pool(seen.pool), &seen.in_use, missing);
    plan.create = numbers.into_iter().map(|number| indexed::vm(seen.pool, number, revision)).collect();
}

/// Whether the disks of a VM outlive it when the pool becomes smaller, or makes it again because it cannot start.
fn keeps_disks(pool: &VirtualMachinePool) -> bool {
    let Some(strategy) = &pool.spec.scale_in_strategy else { return false };
    let proactive = strategy.proactive.as_ref().and_then(|one| one.state_preservation.as_ref());
    let opportunistic = strategy.opportunistic.as_ref().and_then(|one| one.state_preservation.as_ref());
    matches!(proactive.or(opportunistic), Some(StatePreservation::Offline | StatePreservation::Online))
}

fn is_active(vm: &VirtualMachine) -> bool {
    vm.metadata.deletion_timestamp.is_none()
}

fn name(vm: &VirtualMachine) -> &str {
    vm.metadata.name.as_deref().unwrap_or_default()
}

fn name_of_pool(pool: &VirtualMachinePool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

/// The revision that the labels of a VM or an instance name.
fn revision_of(labels: Option<&BTreeMap<String, String>>) -> &str {
    labels.and_then(|labels| labels.get(REVISION)).map_or("", String::as_str)
}

/// Whether the VM's instance runs and can be used.
fn is_available(seen: &Observed<'_>, vm: &VirtualMachine) -> bool {
    seen.instances.get(name(vm)).is_some_and(|instance| {
        let all = instance.status.as_ref().and_then(|status| status.conditions.as_deref());
        !instance.is_marked_for_deletion()
            && !instance.is_final()
            && api::conditions::has(all, "Ready", &api::conditions::ConditionStatus::True)
    })
}

#[cfg(test)]
mod tests;
