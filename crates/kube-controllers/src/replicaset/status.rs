//! The status of a replica set: counts of its active pods, and whether the last plan failed.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;

use super::{FailedVerb, Failure};
use crate::pods;

const REPLICA_FAILURE: &str = "ReplicaFailure";

pub(super) struct Inputs<'a> {
    pub(super) set: &'a ReplicaSet,
    pub(super) template_labels: Option<&'a BTreeMap<String, String>>,
    pub(super) mine: &'a [&'a Pod],
    /// None for a kind whose status does not count them.
    pub(super) terminating: Option<usize>,
    pub(super) failure: Option<&'a Failure>,
    pub(super) min_ready: SignedDuration,
    pub(super) now: Timestamp,
}

/// The status as it should be, if it is not so yet.
pub(super) fn changed(inputs: &Inputs<'_>) -> Option<ReplicaSetStatus> {
    let old = inputs.set.status.clone().unwrap_or_default();
    let counted = |wanted: &dyn Fn(&Pod) -> bool| count(inputs.mine.iter().filter(|pod| wanted(pod)).count());
    let new = ReplicaSetStatus {
        replicas: count(inputs.mine.len()),
        fully_labeled_replicas: Some(counted(&|pod| has_labels(pod, inputs.template_labels))),
        ready_replicas: Some(counted(&pods::is_ready)),
        available_replicas: Some(counted(&|pod| pods::is_available(pod, inputs.min_ready, inputs.now))),
        terminating_replicas: inputs.terminating.map(count),
        observed_generation: Some(inputs.set.metadata.generation.unwrap_or(0)),
        conditions: conditions(&old, inputs.failure, inputs.now),
    };
    let same = figures(&old) == figures(&new) && conditions_of(&old) == conditions_of(&new);
    (!same).then_some(new)
}

/// A server may leave out a zero; that is no change.
fn figures(status: &ReplicaSetStatus) -> [i64; 6] {
    let figure = |field: Option<i32>| i64::from(field.unwrap_or(0));
    [
        i64::from(status.replicas),
        figure(status.fully_labeled_replicas),
        figure(status.ready_replicas),
        figure(status.available_replicas),
        figure(status.terminating_replicas),
        status.observed_generation.unwrap_or(0),
    ]
}

fn conditions_of(status: &ReplicaSetStatus) -> &[ReplicaSetCondition] {
    status.conditions.as_deref().unwrap_or_default()
}

fn conditions(old: &ReplicaSetStatus, failure: Option<&Failure>, now: Timestamp) -> Option<Vec<ReplicaSetCondition>> {
    let known = conditions_of(old).iter().cloned();
    let (ours, mut conditions): (Vec<_>, Vec<_>) = known.partition(|condition| condition.type_ == REPLICA_FAILURE);
    if let Some(failure) = failure {
        let reason = match failure.verb {
            FailedVerb::Create => "FailedCreate",
            FailedVerb::Delete => "FailedDelete",
        };
        // The message of a repeated failure may differ each time (a name, an address): it alone is no reason to write.
        let same = ours.into_iter().find(|known| known.status == "True" && known.reason.as_deref() == Some(reason));
        conditions.push(same.unwrap_or_else(|| ReplicaSetCondition {
            type_: REPLICA_FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(failure.message.clone()),
            last_transition_time: Some(manager::writing::whole_second(now)),
        }));
    }
    // An empty list, not none, clears the last condition: a merge patch leaves alone what it does not name.
    (!conditions.is_empty() || !conditions_of(old).is_empty()).then_some(conditions)
}

fn has_labels(pod: &Pod, wanted: Option<&BTreeMap<String, String>>) -> bool {
    let labels = pod.metadata.labels.as_ref();
    wanted.into_iter().flatten().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

fn count(pods: usize) -> i32 {
    i32::try_from(pods).unwrap_or(i32::MAX)
}
