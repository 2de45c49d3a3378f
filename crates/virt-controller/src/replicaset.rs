//! Replica sets of instances: as many live instances as asked for, each as disposable as the next.
//!
//! ```text
//! VirtualMachineInstanceReplicaSet ─┐
//! instances of its namespace ───────┼─> observe ──> decide ──> claims, one status patch, creations, deletions
//! now ──────────────────────────────┘
//! ```
//! Watches: VirtualMachineInstanceReplicaSet, VirtualMachineInstance. Owns: instances, by a controller owner reference, and the
//! status of the set. Emits: creations and deletions of instances, and events about the set. Absent on purpose: pods and nodes,
//! which are the instance's own; and updates of instances that are there, which keep the template that they were made from.
//!
//! What an instance is to its set:
//!
//! | marked for deletion | phase | Ready | the instance is |
//! |---|---|---|---|
//! | yes | any | any | going: it does not count |
//! | no | `Succeeded`, or `Failed` after it had run | any | over: it is replaced and deleted |
//! | no | `Failed` before it ever ran | any | over; its replacement waits, longer after each such failure in a row |
//! | no | any other | False, `PodTerminating` | lost: it is replaced and deleted |
//! | no | any other | any other | active: it counts |

pub mod controller;
mod status;
mod victims;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::conditions;
use api::replicaset::VirtualMachineInstanceReplicaSet;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manager::claim::{self, OwnerPatch, Patching, Target};
use manager::names::free_names;
use manager::selector::{Selector, SelectorError};
use serde_json::Value;

use crate::vm::backoff;
use crate::vmi::Event;

/// Instances that are created, or deleted, at one time; more follow when these were seen.
pub const BURST: usize = 250;

/// Annotation of an instance: how many instances in a row failed before they ever ran, before this one was made in their place.
pub const FAILED_STARTS: &str = "orlop.dev/failed-starts";

/// What the caches say about one replica set.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The replica set.
    pub set: &'a VirtualMachineInstanceReplicaSet,
    /// The instances of its namespace.
    pub instances: Vec<&'a VirtualMachineInstance>,
    /// Names that a creation found taken by an instance that is none of these.
    pub taken_names: BTreeSet<String>,
    /// What stopped the last attempt to create or delete; none once one went well.
    pub failure: Option<Failure>,
}

/// What stopped a change half way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `FailedCreate` or `FailedDelete`.
    pub reason: &'static str,
    /// The error, as the condition shall show it.
    pub message: String,
}

/// What to do about one replica set; empty at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplicaSetPlan {
    /// Orphans that match: become their controller.
    pub adopt: Vec<OwnerPatch>,
    /// Instances that no longer match: stop being their controller.
    pub release: Vec<OwnerPatch>,
    /// A guarded merge patch of the status, if it differs.
    pub status: Option<Value>,
    /// What is said once the status is written.
    pub events: Vec<Event>,
    /// Instances that are missing.
    pub create: Vec<VirtualMachineInstance>,
    /// Instances that must go, those that are missed least first.
    pub delete: Vec<Deletion>,
    /// When time alone changes something: decide again then.
    pub recheck_after: Option<Duration>,
}

/// An instance that must go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    pub target: Target,
    /// Whether it is over or lost, rather than too many.
    pub over: bool,
}

/// A replica set that cannot be acted on. Final: only an edit of the object helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaSetError {
    /// There is nothing to create instances from.
    #[error("spec.template.spec is missing")]
    NoTemplate,
    /// The selector cannot be used.
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

/// # Guarantees
/// - Nothing is created or deleted while the set is paused or being deleted, and never more than [`BURST`] of either.
/// - It never creates more than are missing, and never deletes an active instance unless there are more than asked for.
/// - Claims no instance that another controller owns, and deletes none that it does not claim.
/// - Names are a function of the owner's UID and of the names in use: two leaders that see the same choose the same.
/// - Equal observations give equal plans; at rest the plan is empty.
///
/// # Errors
/// When the specification cannot be acted on; then nothing at all is to be done.
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Result<ReplicaSetPlan, ReplicaSetError> {
    let set = seen.set;
    let template = &set.spec.template;
    if template.spec.is_none() {
        return Err(ReplicaSetError::NoTemplate);
    }
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let selector = Selector::of_template(&set.spec.selector, labels)?;
    let claims = claim::claim(set, &selector, seen.instances.iter().copied(), Patching::Merge);
    let mut plan = ReplicaSetPlan { adopt: claims.adopt, release: claims.release, ..ReplicaSetPlan::default() };

    let wanted = usize::try_from(set.spec.replicas.unwrap_or(1)).unwrap_or(0);
    let sorted = Sorted::new(&claims.mine, wanted, now);
    let acts = set.spec.paused != Some(true) && set.metadata.deletion_timestamp.is_none();
    if acts {
        let missing = wanted.saturating_sub(sorted.active.len() + sorted.held.len());
        plan.create = creations(seen, &sorted, missing.min(BURST));
        let surplus = sorted.active.len().saturating_sub(wanted);
        let victims = victims::choose(&sorted.active, surplus.min(BURST)).into_iter();
        let over = sorted.due.iter().map(|due| due.instance).take(BURST);
        let deletion =
            |instance: &VirtualMachineInstance, over| Deletion { target: Target::of(&instance.metadata), over };
        plan.delete = victims.map(|one| deletion(one, false)).collect();
        plan.delete.extend(over.map(|one| deletion(one, true)));
        plan.recheck_after = sorted.held.iter().map(|held| held.wait).min();
    }
    // What stopped an attempt that nobody makes any more is no failure.
    let failure = seen.failure.as_ref().filter(|_| !plan.create.is_empty() || !plan.delete.is_empty());
    (plan.status, plan.events) = status::changed(set, &selector, &sorted.active, failure, now);
    Ok(plan)
}

/// The claimed instances by what they are to their set; those that are going are none of them.
struct Sorted<'a> {
    active: Vec<&'a VirtualMachineInstance>,
    /// Those that failed before they ran, whose replacements must wait: until then each holds its place.
    held: Vec<Over<'a>>,
    /// All others that are over or lost.
    due: Vec<Over<'a>>,
}

struct Over<'a> {
    instance: &'a VirtualMachineInstance,
    /// How many failed in a row before they ran, this one included.
    failures: u32,
    /// How long its replacement must still wait.
    wait: Duration,
}

impl<'a> Sorted<'a> {
    fn new(mine: &[&'a VirtualMachineInstance], wanted: usize, now: Timestamp) -> Self {
        let stays = mine.iter().copied().filter(|instance| !instance.is_marked_for_deletion());
        let (over, active): (Vec<_>, Vec<_>) = stays.partition(|instance| instance.is_final() || is_lost(instance));
        let (mut held, mut due): (Vec<_>, Vec<_>) =
            over.into_iter().map(|one| Over::new(one, now)).partition(|over| !over.wait.is_zero());
        // Nobody waits for a replacement that is not wanted any more.
        let most = wanted.saturating_sub(active.len()).min(held.len());
        due.extend(held.drain(most..));
        Self { active, held, due }
    }
}

impl<'a> Over<'a> {
    fn new(instance: &'a VirtualMachineInstance, now: Timestamp) -> Self {
        let entered = instance.status.iter().flat_map(|status| status.phase_transition_timestamps.iter().flatten());
        let at = |phase: &Phase| {
            let mut entered = entered.clone();
            entered.find(|one| one.phase.as_ref() == Some(phase))?.phase_transition_timestamp.as_ref()
        };
        if instance.phase() != &Phase::Failed || at(&Phase::Running).is_some() {
            return Self { instance, failures: 0, wait: Duration::ZERO };
        }
        let failures = failures_before(instance).saturating_add(1);
        let until = at(&Phase::Failed).map(|ended| ended.0 + backoff::delay(failures, 0.0));
        let wait = until.and_then(|until| Duration::try_from(until.duration_since(now)).ok()).unwrap_or_default();
        Self { instance, failures, wait }
    }
}

/// How many instances in a row failed before they ran, before this one was made in their place.
fn failures_before(instance: &VirtualMachineInstance) -> u32 {
    let annotations = instance.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(FAILED_STARTS)?.parse().ok()).unwrap_or(0)
}

/// Whether its pod goes although nobody deleted the instance: it will not be ready again.
fn is_lost(instance: &VirtualMachineInstance) -> bool {
    let all = instance.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions::find(all, "Ready").is_some_and(|ready| {
        ready.status == conditions::ConditionStatus::False && ready.reason.as_deref() == Some("PodTerminating")
    })
}

fn creations(seen: &Observed<'_>, sorted: &Sorted<'_>, count: usize) -> Vec<VirtualMachineInstance> {
    let (owner, template) = (&seen.set.metadata, &seen.set.spec.template);
    let from_template = template.metadata.as_ref().cloned().unwrap_or_default();
    let mut in_use: BTreeSet<&str> = seen.instances.iter().filter_map(|one| one.metadata.name.as_deref()).collect();
    in_use.extend(seen.taken_names.iter().map(String::as_str));
    let base = [&from_template.name, &from_template.generate_name, &owner.name];
    let base = base.into_iter().flatten().find(|name| !name.is_empty()).map_or("", String::as_str);
    let names = free_names(base, owner.uid.as_deref().unwrap_or_default(), &in_use, count);
    // Those that failed most often are replaced first: if not all are replaced now, the others wait less.
    let mut failures: Vec<u32> = sorted.due.iter().map(|due| due.failures).filter(|failures| *failures > 0).collect();
    failures.sort_unstable_by(|one, other| other.cmp(one));
    let mut failures = failures.into_iter();
    let instance = |name: String| {
        let mut annotations: BTreeMap<String, String> = from_template.annotations.clone().unwrap_or_default();
        annotations.remove(FAILED_STARTS);
        annotations.extend(failures.next().map(|count| (FAILED_STARTS.to_owned(), count.to_string())));
        VirtualMachineInstance {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: owner.namespace.clone(),
                generate_name: Some(base.to_owned()),
                labels: from_template.labels.clone(),
                annotations: (!annotations.is_empty()).then_some(annotations),
                owner_references: Some(vec![claim::reference::<VirtualMachineInstanceReplicaSet>(owner)]),
                ..ObjectMeta::default()
            },
            spec: template.spec.clone().unwrap_or_default(),
            ..VirtualMachineInstance::default()
        }
    };
    names.into_iter().map(instance).collect()
}

#[cfg(test)]
mod tests;
