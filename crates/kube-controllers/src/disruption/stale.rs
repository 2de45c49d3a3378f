//! A pod that says it is about to be disrupted, and is still there: after a while it says so no more.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::{Api, Client};
use manager::cache::{Cache, Changed, Key};
use manager::context::Now;
use manager::queue::Queue;
use manager::worker::{Next, found, work};
use manager::writing::whole_second;
use serde_json::{Value, json};

use crate::pods;
use crate::writing::{patch_pod_status, pod_condition};

const TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
/// A kubelet's word is never stale: however long it takes, the pod goes.
const BY_KUBELET: &str = "TerminationByKubelet";

/// Works on such pods. Their keys are not those of budgets, so that they have a queue of their own. Clones share it.
#[derive(Clone)]
pub(super) struct StalePods {
    pub(super) client: Client,
    pub(super) pods: Cache<Pod>,
    pub(super) queue: Queue<Key>,
    pub(super) now: Now,
}

impl StalePods {
    /// A pod has changed.
    pub(super) fn saw(&self, change: &Changed<Pod>) {
        match change.new.as_ref().map(|pod| stale(pod, (self.now)())) {
            None | Some(Stale::No) => {}
            Some(Stale::After(left)) => self.queue.add_after(change.key.clone(), left),
            Some(Stale::Now(_)) => self.queue.add(change.key.clone()),
        }
    }

    /// Runs until the queue is closed.
    pub(super) async fn run(&self) {
        work(super::controller::NAME, &self.queue, 1, |key: Key| async move { self.refresh(&key).await }).await;
    }

    async fn refresh(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(pod) = self.pods.get(key) else { return Ok(Next::Wait) };
        found(&*pod);
        match stale(&pod, (self.now)()) {
            Stale::No => Ok(Next::Wait),
            Stale::After(left) => Ok(Next::After(left)),
            Stale::Now(condition) => {
                let mut condition = json!(condition);
                // What is not named stays.
                for field in ["reason", "message"] {
                    condition[field] = Value::Null;
                }
                let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
                patch_pod_status(&api, &pod, &json!({ "conditions": [condition] })).await?;
                Ok(Next::Wait)
            }
        }
    }
}

/// What to do about a pod's condition `DisruptionTarget`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stale {
    /// Nothing.
    No,
    /// It will be stale after this long.
    After(Duration),
    /// It is; write this instead.
    Now(Box<PodCondition>),
}

pub(super) fn stale(pod: &Pod, now: Timestamp) -> Stale {
    if pod.metadata.deletion_timestamp.is_some() || pods::is_finished(pod) {
        return Stale::No;
    }
    let holds = |one: &&PodCondition| one.status == "True" && one.reason.as_deref() != Some(BY_KUBELET);
    let Some(condition) = pod_condition(pod, "DisruptionTarget").filter(holds) else { return Stale::No };
    let since = condition.last_transition_time.as_ref().map_or(now, |time| time.0);
    let left = TIMEOUT.saturating_sub(now.duration_since(since));
    match Duration::try_from(left).ok().filter(|left| !left.is_zero()) {
        Some(left) => Stale::After(left),
        None => Stale::Now(Box::new(PodCondition {
            type_: condition.type_.clone(),
            status: "False".to_owned(),
            observed_generation: pod.metadata.generation,
            last_transition_time: Some(whole_second(now)),
            ..PodCondition::default()
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(condition: &Value, metadata: &Value, phase: &str) -> Pod {
        let status = json!({ "phase": phase, "conditions": [condition] });
        serde_json::from_value(json!({ "metadata": metadata, "status": status })).unwrap()
    }

    fn target(status: &str, reason: &str) -> Value {
        json!({
            "type": "DisruptionTarget", "status": status, "reason": reason,
            "lastTransitionTime": "2026-01-01T12:00:00Z",
        })
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_pod_that_stays_says_after_two_minutes_that_it_stays() {
        let pod = pod(&target("True", "EvictionByEvictionAPI"), &json!({ "generation": 4 }), "Running");
        assert_eq!(stale(&pod, at("2026-01-01T12:01:30Z")), Stale::After(Duration::from_secs(30)));
        let Stale::Now(written) = stale(&pod, at("2026-01-01T12:02:00Z")) else { panic!("it is stale") };
        assert_eq!((written.status.as_str(), written.observed_generation), ("False", Some(4)));
        assert_eq!(written.reason, None);
    }

    #[test]
    fn a_pod_that_goes_or_has_ended_or_was_told_by_its_kubelet_is_left_alone() {
        let late = at("2026-01-02T12:00:00Z");
        let going = json!({ "deletionTimestamp": "2026-01-01T12:00:00Z" });
        for pod in [
            pod(&target("True", "EvictionByEvictionAPI"), &going, "Running"),
            pod(&target("True", "EvictionByEvictionAPI"), &json!({}), "Failed"),
            pod(&target("True", BY_KUBELET), &json!({}), "Running"),
            pod(&target("False", ""), &json!({}), "Running"),
            pod(&json!({ "type": "Ready", "status": "True" }), &json!({}), "Running"),
        ] {
            assert_eq!(stale(&pod, late), Stale::No, "{pod:?}");
        }
    }
}
