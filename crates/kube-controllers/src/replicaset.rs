//! Replica sets and replication controllers: as many live pods as asked for, no more and no fewer.
//!
//! ```text
//! ReplicaSet ─┐
//! its pods  ──┼─> observe ──> decide ──> Plan ──> act: claims, then creations or deletions, then one status write
//! now       ──┘
//! ```
//! A replication controller is decided about as the replica set that it stands for (`replication_controller.rs`). The two differ
//! in how they are read and written, and in nothing else (`kind.rs`).
//!
//! Watches: ReplicaSet or ReplicationController, Pod. Owns: pods, by a controller owner reference.
//! Emits: SuccessfulCreate, FailedCreate, SuccessfulDelete, FailedDelete.
//! Absent on purpose: where pods run, and why they are wanted; a deployment is only an owner like any other. To wait
//! until one's own writes come back is the frame's part: `decide` assumes that it sees what earlier plans did.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use manager::claim::{self, Patching};
use manager::{names, selector};

use crate::pods;

use kind::Replicated;
pub use manager::claim::{OwnerPatch, Target};
pub use manager::selector::SelectorError;

pub mod controller;
pub mod kind;
mod status;
mod victims;

#[cfg(test)]
mod tests;

/// What the caches say about one replica set, or about one object of another kind that keeps pods in its way.
#[derive(Clone, Debug)]
pub struct Observed<'a, K = ReplicaSet> {
    /// The object itself.
    pub replica_set: &'a K,
    /// The pods of its namespace that match its selector or that it controls.
    pub pods: Vec<&'a Pod>,
    /// The pods of the other replica sets that have the same controller; they only count towards crowding on a node.
    pub siblings: Vec<&'a Pod>,
    /// Names that a creation found taken by a pod that is none of `pods`, such as one that was released earlier.
    pub taken_names: BTreeSet<String>,
    /// Why the last plan could not be carried out; none once one was.
    pub failure: Option<Failure>,
}

/// What stopped a plan half way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which part of the plan failed.
    pub verb: FailedVerb,
    /// The error, as the condition shall show it.
    pub message: String,
}

/// The part of a plan that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailedVerb {
    /// A pod could not be created.
    Create,
    /// A pod could not be deleted.
    Delete,
}

/// What to do about one replica set; empty at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Orphans that match: become their controller.
    pub adopt: Vec<OwnerPatch>,
    /// Pods that no longer match: stop being their controller.
    pub release: Vec<OwnerPatch>,
    /// Pods that are missing.
    pub create: Option<Creations>,
    /// Pods that are too many, those that are missed least first.
    pub delete: Vec<Target>,
    /// The whole new status, if it differs.
    pub status: Option<ReplicaSetStatus>,
    /// When time alone changes the status: decide again then.
    pub recheck_after: Option<Duration>,
}

/// The pods that are to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct Creations {
    /// One name per pod, derived from the owner's UID: a second creation, by whomever, is `AlreadyExists`. To have the
    /// server choose instead, drop the name; `generateName` is set as well.
    pub names: Vec<String>,
    /// How many of `names` to create at once, in order. Stop after a batch with a failure, so that a quota or a broken
    /// admission hook is asked once and not a thousand times.
    pub batches: Vec<usize>,
    /// What each pod is made of, apart from its name.
    pub pod: Box<Pod>,
}

impl Creations {
    /// The pods, named, in order.
    pub fn pods(&self) -> impl Iterator<Item = Pod> + '_ {
        self.names.iter().map(|name| {
            let mut pod = (*self.pod).clone();
            pod.metadata.name = Some(name.clone());
            pod
        })
    }
}

/// A replica set that cannot be acted on. Final: only an edit of the object helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaSetError {
    /// There is nothing to create pods from.
    #[error("spec.template is missing")]
    NoTemplate,
    /// The selector cannot be used.
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

/// # Guarantees
/// - Never both creates and deletes; does neither while the replica set is being deleted.
/// - Names are a function of the owner's UID and of the names in use: two leaders that see the same choose the same.
/// - Claims no pod that another controller owns, and deletes none that it does not claim.
/// - Equal observations give equal plans; at rest the plan is empty.
///
/// # Errors
/// When the specification cannot be acted on; then nothing at all is to be done.
pub fn decide<K: Replicated>(seen: &Observed<'_, K>, now: Timestamp) -> Result<Plan, ReplicaSetError> {
    let set = &*seen.replica_set.as_set();
    let empty = ReplicaSetSpec::default();
    let spec = set.spec.as_ref().unwrap_or(&empty);
    let template = spec.template.as_ref().ok_or(ReplicaSetError::NoTemplate)?;
    let template_labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let selector = selector::Selector::of_template(&spec.selector, template_labels)?;

    let active = seen.pods.iter().copied().filter(|pod| pods::is_active(pod));
    let claims = claim::claim(seen.replica_set, &selector, active, Patching::Strategic);
    let terminating = seen
        .pods
        .iter()
        .filter(|pod| pods::is_terminating(pod) && selector.matches(pod.metadata.labels.as_ref()))
        .filter(|pod| claim::is_controlled_by(&pod.metadata, &set.metadata))
        .count();

    let mut plan = Plan { adopt: claims.adopt, release: claims.release, ..Plan::default() };
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    if set.metadata.deletion_timestamp.is_none() {
        let have = claims.mine.len();
        if have < wanted {
            plan.create = Some(creations(seen, template, wanted - have));
        } else {
            plan.delete = victims::choose(&claims.mine, &seen.siblings, have - wanted, now);
        }
    }

    let min_ready = pods::seconds(spec.min_ready_seconds);
    plan.status = status::changed(&status::Inputs {
        set,
        template_labels,
        mine: &claims.mine,
        terminating: K::COUNTS_TERMINATING.then_some(terminating),
        failure: seen.failure.as_ref(),
        min_ready,
        now,
    });
    plan.recheck_after = claims.mine.iter().filter_map(|pod| pods::available_in(pod, min_ready, now)).min();
    Ok(plan)
}

fn creations<K: Replicated>(seen: &Observed<'_, K>, template: &PodTemplateSpec, count: usize) -> Creations {
    let owner = seen.replica_set.meta();
    let mut in_use: BTreeSet<&str> = seen.pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
    in_use.extend(seen.taken_names.iter().map(String::as_str));
    let generate_name = names::prefix(owner.name.as_deref().unwrap_or_default());
    let from_template = template.metadata.clone().unwrap_or_default();
    let metadata = ObjectMeta {
        namespace: owner.namespace.clone(),
        generate_name: Some(generate_name.clone()),
        labels: from_template.labels,
        annotations: from_template.annotations,
        finalizers: from_template.finalizers,
        owner_references: Some(vec![claim::reference::<K>(owner)]),
        ..ObjectMeta::default()
    };
    Creations {
        names: names::free_names(&generate_name, owner.uid.as_deref().unwrap_or_default(), &in_use, count),
        batches: slow_start(count),
        pod: Box::new(Pod { metadata, spec: template.spec.clone(), status: None }),
    }
}

/// 1, 2, 4, ... until `total` is used up.
fn slow_start(total: usize) -> Vec<usize> {
    let mut batches = Vec::new();
    let (mut left, mut next) = (total, 1_usize);
    while left > 0 {
        let batch = next.min(left);
        batches.push(batch);
        left -= batch;
        next = next.saturating_mul(2);
    }
    batches
}
