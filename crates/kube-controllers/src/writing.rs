//! What several controllers do alike when they write about pods and namespaces.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Pod, PodCondition};
use kube::Api;
use kube::api::{Patch, PatchParams};
use manager::writing::unless_gone;
use serde_json::{Value, json};

use manager::writing::whole_second;

/// Writes some of a pod's status, and leaves the rest and the other conditions to those who own them.
pub(crate) async fn patch_pod_status(api: &Api<Pod>, pod: &Pod, status: &Value) -> Result<(), kube::Error> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": status });
    unless_gone(api.patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await)
}

/// Whether something may be created in a namespace.
pub(crate) fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|status| status.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_none() && phase == Some("Active")
}

/// A pod's condition of a type.
pub(crate) fn pod_condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// That a pod is about to be disrupted, and why; none, if it says so already. The time of the change stays where only the
/// words change.
pub(crate) fn disruption_target(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> Option<PodCondition> {
    let old = pod_condition(pod, "DisruptionTarget");
    let holds = old.filter(|old| old.status == "True");
    if holds.is_some_and(|old| old.reason.as_deref() == Some(reason) && old.message.as_deref() == Some(message)) {
        return None;
    }
    Some(PodCondition {
        type_: "DisruptionTarget".to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        observed_generation: pod.metadata.generation,
        last_transition_time: holds.and_then(|old| old.last_transition_time.clone()).or(Some(whole_second(now))),
        ..PodCondition::default()
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn pod(conditions: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "generation": 2 }, "status": { "conditions": conditions },
        }))
        .unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_pod_is_told_once_that_it_will_be_disrupted() {
        let told = disruption_target(&pod(&json!([])), "R", "m", at(9)).unwrap();
        assert_eq!((told.status.as_str(), told.observed_generation), ("True", Some(2)));
        assert_eq!(disruption_target(&pod(&json!([told])), "R", "m", at(10)), None);
    }

    #[test]
    fn another_reason_is_news_but_no_change_of_truth() {
        let told = disruption_target(&pod(&json!([])), "R", "m", at(9)).unwrap();
        let again = disruption_target(&pod(&json!([told])), "S", "m", at(20)).unwrap();
        assert_eq!(again.last_transition_time, Some(Time(at(9))));
        let over =
            json!([{ "type": "DisruptionTarget", "status": "False", "lastTransitionTime": "1970-01-01T00:00:01Z" }]);
        assert_eq!(disruption_target(&pod(&over), "R", "m", at(20)).unwrap().last_transition_time, Some(Time(at(20))));
    }
}
