//! A change of size while the template stays: who gets how much of it.
//!
//! During a rollout all replica sets grow and shrink in proportion. Were the new one to take all that is added, or the
//! old ones to give all that is taken, a resize would hasten the rollout of a template that nobody has seen work yet.

use std::cmp::Reverse;

use k8s_openapi::api::apps::v1::Deployment;

use super::limits::Limits;
use super::sets::{MAX_REPLICAS, Member, Sets, age};
use super::{Observed, rollout};

/// Sizes the replica sets for the deployment's size; `resized` says that it is another one than they were sized for.
pub(super) fn all(seen: &Observed<'_>, sets: &mut Sets<'_>, limits: &Limits, resized: bool) {
    match sets.all().filter(|set| set.size > 0).count() {
        0 => {
            let latest = sets.new.as_ref().or(sets.old.last());
            let may_start = limits.rolling || !rollout::others_may_run(seen, sets, latest);
            let size = latest.map_or(0, |latest| allowed(sets, latest, limits));
            if let Some(latest) = sets.new.as_mut().or(sets.old.last_mut()).filter(|_| may_start) {
                latest.resize(size, limits);
            }
        }
        1 => {
            let size = sets.all().find(|set| set.size > 0).map_or(0, |only| allowed(sets, only, limits));
            if let Some(only) = sets.all_mut().find(|set| set.size > 0) {
                only.resize(size, limits);
                only.note_size(limits);
            }
        }
        _ if sets.new.as_ref().is_some_and(|new| is_saturated(new, limits)) => {
            for old in &mut sets.old {
                old.resize(0, limits);
            }
        }
        // A pause alone changes no size.
        _ if limits.rolling && resized => in_proportion(seen.deployment, sets, limits),
        _ => {}
    }
}

/// The size that one set may have now. Pods that the others were told to give up count until they are gone: what is missing
/// then comes with the rollout.
fn allowed(sets: &Sets<'_>, chosen: &Member<'_>, limits: &Limits) -> i32 {
    let others = sets.all().filter(|set| set.set.metadata.uid != chosen.set.metadata.uid);
    let pods = others.map(Member::at_most).try_fold(0_i32, |sum, pods| Some(sum.saturating_add(pods?)));
    let room = pods.map_or(0, |pods| limits.most().saturating_sub(pods));
    limits.desired.min(room.max(chosen.size))
}

/// It holds all pods that are wanted, and they are available: the old ones are of no use any more.
fn is_saturated(new: &Member<'_>, limits: &Limits) -> bool {
    new.size == limits.desired && new.sized_for() == Some(limits.desired) && new.available() == limits.desired
}

fn in_proportion(deployment: &Deployment, sets: &mut Sets<'_>, limits: &Limits) {
    let allowed = if limits.desired == 0 { 0 } else { limits.most() };
    let change = allowed - sets.sum(|set| set.size);
    let known_pods = deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or(0);

    let mut active: Vec<&mut Member<'_>> = sets.all_mut().filter(|set| set.size > 0).collect();
    // The largest first, for it gets what rounding leaves over; of equals the newest grows, the oldest shrinks first.
    active.sort_by(|a, b| age(&a.set).cmp(&age(&b.set)));
    if change > 0 {
        active.reverse();
    }
    active.sort_by_key(|set| Reverse(set.size));

    let mut left = change;
    for set in &mut active {
        let share = share(set, limits, known_pods);
        let part = if change > 0 { share.clamp(0, left) } else { share.clamp(left, 0) };
        left -= part;
        set.size += part;
        set.note_size(limits);
    }
    if let Some(largest) = active.first_mut() {
        largest.size = largest.size.saturating_add(left).max(0);
    }
}

/// By how much a set would change if it kept its part of the deployment, rounded to the nearest.
fn share(set: &Member<'_>, limits: &Limits, known_pods: i32) -> i32 {
    if limits.desired == 0 {
        return -set.size;
    }
    let noted = set.annotation(MAX_REPLICAS).and_then(|most| most.parse().ok()).filter(|most| *most > 0);
    // Somebody removed the note: what the deployment last counted is the next best guess.
    let before = i64::from(noted.unwrap_or(known_pods));
    if before <= 0 {
        return 0;
    }
    let product = i64::from(set.size) * i64::from(limits.most());
    let size = (2 * product + before) / (2 * before);
    i32::try_from(size).unwrap_or(i32::MAX) - set.size
}
