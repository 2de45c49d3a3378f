//! Which pods are cleared away, and how.

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::{Node, Pod};

use super::node_name;
use crate::pods::{is_finished, phase};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Why a pod is cleared away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Its node is gone.
    Orphaned,
    /// It was deleted, and its node is out of service.
    OutOfService,
    /// It was deleted before it had a node.
    Unscheduled,
    /// It ended, and too many have.
    Surplus,
}

impl Cause {
    /// What its condition `DisruptionTarget` says, where there is something that the pod's owner cannot know.
    pub(super) fn disruption(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Orphaned => Some(("DeletionByPodGC", "PodGC: node no longer exists")),
            Self::OutOfService | Self::Unscheduled | Self::Surplus => None,
        }
    }
}

/// What is left to do to clear a pod away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// Nobody runs it any more, so nobody else will say how it ended.
    pub(super) fail: bool,
    /// Without grace.
    pub(super) delete: bool,
}

/// # Guarantees
/// - A pod that ended keeps how it ended.
/// - A pod that was deleted without grace is not deleted again.
pub(super) fn steps(pod: &Pod, cause: Cause) -> Steps {
    let metadata = &pod.metadata;
    let goes = metadata.deletion_timestamp.is_some() && metadata.deletion_grace_period_seconds == Some(0);
    let fail = match cause {
        Cause::Orphaned | Cause::OutOfService | Cause::Unscheduled => !is_finished(pod),
        Cause::Surplus => false,
    };
    Steps { fail, delete: !goes }
}

/// Why a pod is to be cleared away, by what the caches say. A node that is missing is no cause yet.
pub(super) fn cause(pod: &Pod, node: Option<&Node>) -> Option<Cause> {
    pod.metadata.deletion_timestamp.as_ref()?;
    match (node_name(pod), node) {
        (None, _) => Some(Cause::Unscheduled),
        (Some(_), Some(node)) if is_out_of_service(node) => Some(Cause::OutOfService),
        _ => None,
    }
}

/// Somebody has made sure that nothing runs there any more.
pub(super) fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    !ready && taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

/// The pods that ended and are too many: those that were evicted first, then the oldest.
pub(super) fn surplus<'a>(pods: impl Iterator<Item = &'a Pod>, threshold: usize) -> Vec<&'a Pod> {
    let mut ended: Vec<&Pod> = pods.filter(|pod| is_finished(pod)).collect();
    let surplus = ended.len().saturating_sub(threshold);
    ended.sort_by_key(|pod| {
        let metadata = &pod.metadata;
        let made = metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Reverse(is_evicted(pod)), made, &metadata.name, &metadata.namespace)
    });
    ended.truncate(surplus);
    ended
}

fn is_evicted(pod: &Pod) -> bool {
    let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
    phase(pod) == "Failed" && reason == Some("Evicted")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str, phase: &str, grace: Option<i64>) -> Pod {
        let deleted = grace.map(|_| "2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "metadata": { "name": name, "deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace },
            "spec": { "nodeName": node, "containers": [] },
            "status": { "phase": phase },
        }))
        .unwrap()
    }

    fn node(ready: &str, taint: &str) -> Node {
        serde_json::from_value(json!({
            "spec": { "taints": [{ "key": taint, "effect": "NoExecute" }] },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        }))
        .unwrap()
    }

    #[test]
    fn a_deleted_pod_goes_where_nobody_will_let_it_go() {
        assert_eq!(cause(&pod("p", "", "Pending", Some(30)), None), Some(Cause::Unscheduled));
        assert_eq!(cause(&pod("p", "", "Pending", None), None), None);
        let lost = node("Unknown", OUT_OF_SERVICE);
        assert_eq!(cause(&pod("p", "n", "Running", Some(30)), Some(&lost)), Some(Cause::OutOfService));
        assert_eq!(cause(&pod("p", "n", "Running", None), Some(&lost)), None);
        assert_eq!(cause(&pod("p", "n", "Running", Some(30)), Some(&node("True", OUT_OF_SERVICE))), None);
        assert_eq!(cause(&pod("p", "n", "Running", Some(30)), Some(&node("Unknown", "other"))), None);
        assert_eq!(cause(&pod("p", "n", "Running", Some(30)), None), None);
    }

    #[test]
    fn the_evicted_go_first_and_then_the_oldest() {
        let made = |name: &str, hour: u32, reason: &str| {
            let mut pod = pod(name, "n", "Failed", None);
            pod.metadata.creation_timestamp =
                serde_json::from_value(json!(format!("2026-01-01T{hour:02}:00:00Z"))).unwrap();
            pod.status.as_mut().unwrap().reason = Some(reason.to_owned());
            pod
        };
        let pods = [
            made("young", 3, ""),
            made("old", 1, ""),
            made("a", 2, ""),
            made("b", 2, ""),
            made("evicted", 4, "Evicted"),
        ];
        let names = |threshold: usize| -> Vec<String> {
            surplus(pods.iter(), threshold).iter().map(|pod| pod.metadata.name.clone().unwrap()).collect()
        };
        assert_eq!(names(0), ["evicted", "old", "a", "b", "young"]);
        assert_eq!(names(3), ["evicted", "old"]);
        assert!(names(5).is_empty());
    }

    proptest! {
        #[test]
        fn what_ended_keeps_its_end_and_what_has_no_grace_left_is_let_be(
            phase in "Pending|Running|Succeeded|Failed", grace in prop::option::of(prop::sample::select(vec![0_i64, 30])),
            cause in prop::sample::select(vec![Cause::Orphaned, Cause::OutOfService, Cause::Unscheduled, Cause::Surplus]),
        ) {
            let steps = steps(&pod("p", "n", &phase, grace), cause);
            let ended = phase == "Succeeded" || phase == "Failed";
            prop_assert!(!(steps.fail && ended));
            prop_assert!(steps.fail || ended || cause == Cause::Surplus);
            prop_assert_eq!(steps.delete, grace != Some(0));
        }

        #[test]
        fn as_many_go_as_are_too_many(
            phases in prop::collection::vec("Running|Succeeded|Failed", 0..20), threshold in 0_usize..20,
        ) {
            let pods: Vec<Pod> =
                phases.iter().enumerate().map(|(index, phase)| pod(&index.to_string(), "n", phase, None)).collect();
            let gone = surplus(pods.iter(), threshold);
            let ended = pods.iter().filter(|pod| is_finished(pod)).count();
            prop_assert_eq!(gone.len(), ended.saturating_sub(threshold));
            prop_assert!(gone.iter().all(|pod| is_finished(pod)));
        }
    }
}
