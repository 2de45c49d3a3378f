//! Deployments: one replica set per template, and the way from one to the next.
//!
//! ```text
//! Deployment      ─┐
//! its ReplicaSets ─┼─> observe ──> decide ──> Plan ──> act: claims, one creation at most, resizes, deletions, status
//! their pods, now ─┘
//! ```
//! Watches: Deployment, ReplicaSet, Pod. Owns: replica sets, by a controller owner reference. Emits: `ScalingReplicaSet`,
//! `ReplicaSetCreateError`.
//! Absent on purpose: pods are counted, never touched; that is the replica set's part. A roll-back has no code of its
//! own: it is a client's change of the template to one that an old replica set has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use manager::claim::{self, OwnerPatch, Patching, Target};
use manager::selector::{Selector, SelectorError};
use serde_json::{Value, json};

use limits::Limits;
use sets::Sets;

pub mod controller;
mod history;
mod limits;
mod progress;
mod rollout;
mod scale;
mod sets;
mod status;
mod template;

#[cfg(test)]
mod tests;

/// What the caches say about one deployment.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The deployment itself.
    pub deployment: &'a Deployment,
    /// The replica sets of its namespace that match its selector or that it controls.
    pub replica_sets: Vec<&'a ReplicaSet>,
    /// The pods that those replica sets control, all of them: they tell what the sets' statuses do not tell yet. Decide
    /// again when one of them becomes ready, stops being so, or goes.
    pub pods: Vec<&'a Pod>,
    /// Names that a creation found taken by a replica set that is none of `replica_sets`.
    pub taken_names: BTreeSet<String>,
}

/// What to do about one deployment; empty at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Orphans that match: become their controller.
    pub adopt: Vec<OwnerPatch>,
    /// Replica sets that no longer match: stop being their controller.
    pub release: Vec<OwnerPatch>,
    /// The replica set of a template that has none yet.
    pub create: Option<Box<ReplicaSet>>,
    /// Replica sets to resize or to annotate.
    pub update: Vec<SetUpdate>,
    /// Replica sets beyond the history limit.
    pub delete: Vec<Target>,
    /// The deployment's own revision annotation, if it differs; the write of the status carries it.
    pub revision: Option<String>,
    /// The whole new status, if it differs.
    pub status: Option<DeploymentStatus>,
    /// When time alone changes the status: decide again then.
    pub recheck_after: Option<Duration>,
}

/// One write to one replica set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUpdate {
    pub target: Target,
    /// What the decision was made on: a second leader's write since then must make this one fail.
    pub resource_version: Option<String>,
    /// Its new size.
    pub resize: Option<Resize>,
    /// Its new `spec.minReadySeconds`.
    pub min_ready_seconds: Option<i32>,
    /// Annotations to set.
    pub annotations: BTreeMap<String, String>,
}

/// From one size to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resize {
    /// `spec.replicas` as observed.
    pub from: i32,
    /// `spec.replicas` as wanted.
    pub to: i32,
}

impl SetUpdate {
    /// The write as a merge patch.
    #[must_use]
    pub fn patch(&self) -> Value {
        let mut metadata = json!({ "uid": self.target.uid });
        if let Some(version) = &self.resource_version {
            metadata["resourceVersion"] = json!(version);
        }
        if !self.annotations.is_empty() {
            metadata["annotations"] = json!(self.annotations);
        }
        let mut patch = json!({ "metadata": metadata });
        if let Some(resize) = self.resize {
            patch["spec"]["replicas"] = json!(resize.to);
        }
        if let Some(seconds) = self.min_ready_seconds {
            patch["spec"]["minReadySeconds"] = json!(seconds);
        }
        patch
    }
}

/// A deployment that cannot be acted on. Final: only an edit of the object helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeploymentError {
    /// The selector cannot be used.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// A strategy that Kubernetes does not know.
    #[error("spec.strategy.type {value:?} is not valid; use RollingUpdate or Recreate")]
    UnknownStrategy {
        /// What it says.
        value: String,
    },
    /// Neither a number nor a percentage.
    #[error("spec.strategy.rollingUpdate.{field} {value:?} is not valid; use a number of at least 0 or a percentage")]
    InvalidLimit {
        /// `maxSurge` or `maxUnavailable`.
        field: &'static str,
        /// What it says.
        value: String,
    },
}

/// # Guarantees
/// - Asks for no pod beyond `replicas + maxSurge`, counting those that an earlier plan has given up but that still run.
/// - Gives up no available pod below `replicas - maxUnavailable`.
/// - `Recreate` asks for no new pod while an old one may run.
/// - Equal observations give equal plans; at rest the plan is empty.
///
/// # Assumptions
/// A replica set deletes pods that are not ready first.
///
/// # Errors
/// When the specification cannot be acted on; then nothing at all is to be done.
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Result<Plan, DeploymentError> {
    let deployment = seen.deployment;
    let empty = DeploymentSpec::default();
    let spec = deployment.spec.as_ref().unwrap_or(&empty);
    let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let selector = Selector::of_template(&spec.selector, labels)?;
    let limits = Limits::read(spec)?;

    let candidates = seen.replica_sets.iter().copied();
    let claims = claim::claim(deployment, &selector, candidates, Patching::Strategic);
    let mut plan = Plan { adopt: claims.adopt, release: claims.release, ..Plan::default() };
    let mut sets = Sets::sort(&claims.mine, &seen.pods, &spec.template);

    let mode = Mode::of(deployment, spec, &limits, &sets);
    let mut events = status::Events::default();
    if mode != Mode::Deleting {
        events.rolled_back = history::sync(deployment, spec, &mut sets);
    }
    match mode {
        Mode::Deleting => {}
        Mode::Scale { resized } => scale::all(seen, &mut sets, &limits, resized),
        Mode::Roll => events.collision = rollout::roll(seen, spec, &mut sets, &limits).is_err(),
    }

    let outcome = status::next(&status::Inputs { deployment, spec, limits: &limits, sets: &sets, mode, events, now });
    if mode != Mode::Deleting {
        if spec.paused == Some(true) || outcome.complete {
            plan.delete = history::surplus(spec, &sets);
        }
        plan.revision = history::deployment_revision(deployment, &sets);
    }
    plan.recheck_after = outcome.recheck_after;
    plan.status = outcome.changed;
    (plan.create, plan.update) = sets.into_writes();
    Ok(plan)
}

/// Which of the three things a deployment can want is the matter now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// It is going: only its status is kept.
    Deleting,
    /// Sizes change, templates do not: it is paused, or its size was changed since its sets were last sized.
    Scale { resized: bool },
    /// On the way to the current template, or there already.
    Roll,
}

impl Mode {
    fn of(deployment: &Deployment, spec: &DeploymentSpec, limits: &Limits, sets: &Sets<'_>) -> Self {
        let resized = sets.all().any(|set| set.size > 0 && set.sized_for().is_some_and(|size| size != limits.desired));
        match (deployment.metadata.deletion_timestamp.is_some(), spec.paused == Some(true)) {
            (true, _) => Self::Deleting,
            (false, true) => Self::Scale { resized },
            // A recreation gives up all old pods whatever the size, so there is nothing to keep in proportion.
            (false, false) if resized && limits.rolling => Self::Scale { resized },
            (false, false) => Self::Roll,
        }
    }
}
