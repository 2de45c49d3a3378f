//! The status of a deployment: counts over its replica sets, and its conditions.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus};

use super::Mode;
use super::limits::Limits;
use super::progress::{Conditions, Progress};
use super::sets::{Member, Sets};

pub(super) struct Inputs<'a> {
    pub(super) deployment: &'a Deployment,
    pub(super) spec: &'a DeploymentSpec,
    pub(super) limits: &'a Limits,
    /// With the sizes that the plan gives them.
    pub(super) sets: &'a Sets<'a>,
    pub(super) mode: Mode,
    pub(super) events: Events,
    pub(super) now: Timestamp,
}

/// What making the plan came across.
#[derive(Clone, Copy, Default)]
pub(super) struct Events {
    /// An old replica set is the new one again.
    pub(super) rolled_back: bool,
    /// The name for a new replica set is taken.
    pub(super) collision: bool,
}

pub(super) struct Outcome {
    /// The status as it should be, if it is not so yet.
    pub(super) changed: Option<DeploymentStatus>,
    /// All pods are of the new template and available, and there are no others.
    pub(super) complete: bool,
    /// When the progress deadline passes.
    pub(super) recheck_after: Option<Duration>,
}

pub(super) fn next(inputs: &Inputs<'_>) -> Outcome {
    let old = inputs.deployment.status.clone().unwrap_or_default();
    let mut new = counts(inputs, &old);
    let desired = Some(inputs.limits.desired);
    let complete = new.updated_replicas == desired && new.replicas == desired && new.available_replicas == desired;

    let mut conditions = Conditions::new(old.conditions.clone().unwrap_or_default(), inputs.now);
    conditions.availability(new.available_replicas.unwrap_or(0) >= inputs.limits.fewest());
    let progress = Progress {
        name: inputs.deployment.metadata.name.as_deref().unwrap_or_default(),
        deadline: inputs.spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX),
        paused: inputs.spec.paused == Some(true),
        complete,
        advanced: advanced(&old, &new),
        all_updated: new.replicas == new.updated_replicas,
        new: inputs.sets.new.as_ref(),
        rolled_back: inputs.events.rolled_back,
    };
    match inputs.mode {
        Mode::Deleting => {}
        Mode::Scale { .. } => conditions.announce(&progress),
        Mode::Roll => {
            conditions.announce(&progress);
            conditions.estimate(&progress);
            conditions.failures(inputs.sets.new.iter().chain(&inputs.sets.old));
        }
    }
    let recheck_after = if inputs.mode == Mode::Roll && !complete { conditions.deadline_in(&progress) } else { None };
    new.conditions = conditions.into_list();
    let changed = figures(&old) != figures(&new)
        || old.conditions.unwrap_or_default() != new.conditions.clone().unwrap_or_default();
    Outcome { changed: changed.then_some(new), complete, recheck_after }
}

/// The status when a replica set could not be made, if it does not say so yet.
pub(super) fn not_created(deployment: &Deployment, message: &str, now: Timestamp) -> Option<DeploymentStatus> {
    deployment.spec.as_ref()?.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)?;
    let old = deployment.status.clone().unwrap_or_default();
    let mut conditions = Conditions::new(old.conditions.clone().unwrap_or_default(), now);
    conditions.not_created(message);
    let new = DeploymentStatus { conditions: conditions.into_list(), ..old.clone() };
    (new != old).then_some(new)
}

fn counts(inputs: &Inputs<'_>, old: &DeploymentStatus) -> DeploymentStatus {
    let sets = inputs.sets;
    let available = sets.sum(|set| set.status().available_replicas.unwrap_or(0));
    let collisions = old.collision_count;
    DeploymentStatus {
        observed_generation: Some(inputs.deployment.metadata.generation.unwrap_or(0)),
        replicas: Some(sets.sum(pods_of)),
        updated_replicas: Some(sets.new.as_ref().map_or(0, pods_of)),
        ready_replicas: Some(sets.sum(|set| set.status().ready_replicas.unwrap_or(0))),
        available_replicas: Some(available),
        unavailable_replicas: Some(sets.sum(|set| set.size).saturating_sub(available).max(0)),
        terminating_replicas: Some(sets.sum(|set| set.status().terminating_replicas.unwrap_or(0))),
        collision_count: if inputs.events.collision { Some(collisions.unwrap_or(0) + 1) } else { collisions },
        conditions: None,
    }
}

fn pods_of(set: &Member<'_>) -> i32 {
    set.status().replicas
}

/// More new pods, fewer old ones, more of them ready or available.
fn advanced(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let outdated = |status: &DeploymentStatus| status.replicas.unwrap_or(0) - status.updated_replicas.unwrap_or(0);
    new.updated_replicas > old.updated_replicas.or(Some(0))
        || outdated(new) < outdated(old)
        || new.ready_replicas > old.ready_replicas.or(Some(0))
        || new.available_replicas > old.available_replicas.or(Some(0))
}

/// A server may leave out a zero; that is no change.
fn figures(status: &DeploymentStatus) -> [i64; 8] {
    let figure = |field: Option<i32>| i64::from(field.unwrap_or(0));
    [
        figure(status.replicas),
        figure(status.updated_replicas),
        figure(status.ready_replicas),
        figure(status.available_replicas),
        figure(status.unavailable_replicas),
        figure(status.terminating_replicas),
        figure(status.collision_count),
        status.observed_generation.unwrap_or(0),
    ]
}
