//! From the old templates to the new one, step by step.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::limits::Limits;
use super::sets::{Member, Sets};
use super::template::HASH_LABEL;
use super::{Observed, history};
use manager::{claim, names};

use crate::pods;

/// The longest name an object may have.
const NAME_LENGTH: usize = 253;

/// The name for a new replica set belongs to another one: its hash has to change first.
pub(super) struct Collision;

pub(super) fn roll(
    seen: &Observed<'_>,
    spec: &DeploymentSpec,
    sets: &mut Sets<'_>,
    limits: &Limits,
) -> Result<(), Collision> {
    if limits.rolling { rolling(seen, spec, sets, limits) } else { recreate(seen, spec, sets, limits) }
}

fn rolling(seen: &Observed<'_>, spec: &DeploymentSpec, sets: &mut Sets<'_>, limits: &Limits) -> Result<(), Collision> {
    let at_most = sets.all().map(Member::at_most).try_fold(0_i32, |sum, pods| Some(sum.saturating_add(pods?)));
    let room = at_most.map_or(0, |pods| limits.most().saturating_sub(pods).max(0));
    let new = new_set(seen, spec, sets)?;
    let missing = limits.desired - new.size;
    new.resize(new.size + missing.min(room), limits);
    let not_yet_available = new.size - new.available();
    give_up_old(sets, limits, not_yet_available);
    Ok(())
}

/// Gives up old pods: first those that are not available, which costs nothing and makes room, then as many others as
/// the limit lets go. Pods of the new set that are not available yet count as missing, so that a template that never
/// becomes ready stops the rollout.
fn give_up_old(sets: &mut Sets<'_>, limits: &Limits, not_yet_available: i32) {
    let mut spare = sets.sum(|set| set.size).saturating_sub(limits.fewest()).saturating_sub(not_yet_available);
    for old in &mut sets.old {
        let unhealthy = (old.size - old.available()).min(spare).max(0);
        spare -= unhealthy;
        old.resize(old.size - unhealthy, limits);
    }
    let mut spare = spare.min(sets.sum(Member::available).saturating_sub(limits.fewest()));
    for old in &mut sets.old {
        let given_up = old.size.min(spare).max(0);
        spare -= given_up;
        old.resize(old.size - given_up, limits);
    }
}

fn recreate(seen: &Observed<'_>, spec: &DeploymentSpec, sets: &mut Sets<'_>, limits: &Limits) -> Result<(), Collision> {
    let old_ones_wanted = sets.old.iter().any(|old| old.size > 0);
    for old in &mut sets.old {
        old.resize(0, limits);
    }
    if old_ones_wanted || others_may_run(seen, sets, sets.new.as_ref()) {
        return Ok(());
    }
    let new = new_set(seen, spec, sets)?;
    new.resize(limits.desired, limits);
    if new.size > 0 {
        new.note_size(limits);
    }
    Ok(())
}

/// Whether there may be pods of the deployment's other replica sets than `chosen`. A pod that is being deleted runs until
/// it is gone or its containers have ended.
pub(super) fn others_may_run(seen: &Observed<'_>, sets: &Sets<'_>, chosen: Option<&Member<'_>>) -> bool {
    let is_chosen = |set: &&Member<'_>| chosen.is_some_and(|chosen| chosen.set.metadata.uid == set.set.metadata.uid);
    let may_run = |set: &Member<'_>| {
        let is_its_pod = |pod: &&&Pod| claim::is_controlled_by(&pod.metadata, &set.set.metadata);
        set.at_most() != Some(0) || seen.pods.iter().filter(is_its_pod).any(|pod| !pods::is_finished(pod))
    };
    sets.all().filter(|set| !is_chosen(set)).any(may_run)
}

/// The replica set of the deployment's template; planned, with no pods yet, if there is none.
fn new_set<'s, 'a>(
    seen: &Observed<'_>,
    spec: &DeploymentSpec,
    sets: &'s mut Sets<'a>,
) -> Result<&'s mut Member<'a>, Collision> {
    let planned = match sets.new.take() {
        Some(known) => known,
        None => plan_set(seen, spec, sets)?,
    };
    Ok(sets.new.insert(planned))
}

fn plan_set<'a>(seen: &Observed<'_>, spec: &DeploymentSpec, sets: &Sets<'a>) -> Result<Member<'a>, Collision> {
    let owner = &seen.deployment.metadata;
    let collisions = seen.deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = sets.template.hash(collisions);
    let prefix = owner.name.as_deref().unwrap_or_default().chars().take(NAME_LENGTH - 1 - hash.len());
    let name = format!("{}{hash}", names::prefix(&prefix.collect::<String>()));
    let is_known = seen.replica_sets.iter().any(|set| set.metadata.name.as_ref() == Some(&name));
    if is_known || seen.taken_names.contains(&name) {
        return Err(Collision);
    }

    let mut template = spec.template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash);
    let set = ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: owner.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![claim::reference::<Deployment>(owner)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: Some(0),
            selector,
            template: Some(template),
        }),
        status: None,
    };
    let mut member = Member::to_create(set);
    history::annotate(seen.deployment, &mut member, history::next_revision(sets));
    Ok(member)
}
