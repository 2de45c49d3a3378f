//! What a hollow node does about a pod.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::Behaviour;

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    Nothing,
    /// Look again after this long.
    Later(Duration),
    /// Write this status. Conditions that it does not name are others'.
    Status(Value),
    /// The pod has ended: let it go.
    Remove,
}

/// # Guarantees
/// - A pod that has ended is never started again.
/// - A pod that is being deleted is let go no later than its grace period allows.
pub(super) fn decide(pod: &Pod, behaviour: &Behaviour, now: Timestamp) -> Plan {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    if let Some(Time(end)) = &pod.metadata.deletion_timestamp {
        return ending(pod, *end, behaviour, now);
    }
    match phase {
        "Pending" => starting(pod, behaviour, now),
        "Running" => readiness(pod, now),
        _ => Plan::Nothing,
    }
}

fn ending(pod: &Pod, end: Timestamp, behaviour: &Behaviour, now: Timestamp) -> Plan {
    let grace = pod.metadata.deletion_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    let grace = Duration::from_secs(grace);
    // The timestamp is when the grace period ends; the deletion was asked for before that.
    let asked = end - grace;
    match remaining(asked, behaviour.stop_delay.min(grace), now) {
        Some(wait) => Plan::Later(wait),
        None => Plan::Remove,
    }
}

fn starting(pod: &Pod, behaviour: &Behaviour, now: Timestamp) -> Plan {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let bound =
        conditions.iter().find(|one| one.type_ == "PodScheduled").and_then(|one| one.last_transition_time.as_ref());
    let since = bound.or(pod.metadata.creation_timestamp.as_ref()).map_or(now, |Time(at)| *at);
    if let Some(wait) = remaining(since, behaviour.start_delay, now) {
        return Plan::Later(wait);
    }
    let labels = pod.metadata.labels.iter().flatten();
    let fails = labels.into_iter().any(|(key, value)| behaviour.failing.contains(&(key.clone(), value.clone())));
    Plan::Status(if fails { failed(pod, now) } else { running(pod, now) })
}

/// A running pod is ready when all its readiness gates are open.
fn readiness(pod: &Pod, now: Timestamp) -> Plan {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ready = conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
    if ready == gates_are_open(pod) {
        Plan::Nothing
    } else {
        Plan::Status(json!({ "conditions": [condition("Ready", gates_are_open(pod), now)] }))
    }
}

fn remaining(since: Timestamp, delay: Duration, now: Timestamp) -> Option<Duration> {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    delay.checked_sub(passed).filter(|rest| !rest.is_zero())
}

fn gates_are_open(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    let status: Option<&PodStatus> = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    gates.iter().all(|gate| conditions.iter().any(|one| one.type_ == gate.condition_type && one.status == "True"))
}

fn condition(kind: &str, truth: bool, now: Timestamp) -> Value {
    json!({ "type": kind, "status": if truth { "True" } else { "False" }, "lastTransitionTime": Time(now) })
}

fn containers(pod: &Pod, state: impl Fn() -> Value, ready: bool) -> Vec<Value> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .map(|container| {
            let image = container.image.clone().unwrap_or_default();
            json!({
                "name": container.name,
                "image": image,
                "imageID": format!("hollow://{image}"),
                "ready": ready,
                "started": ready,
                "restartCount": 0,
                "state": state(),
            })
        })
        .collect()
}

fn running(pod: &Pod, now: Timestamp) -> Value {
    let conditions = [
        condition("Ready", gates_are_open(pod), now),
        condition("Initialized", true, now),
        condition("ContainersReady", true, now),
    ];
    let address = address(pod.metadata.uid.as_deref().unwrap_or_default());
    json!({
        "phase": "Running",
        "startTime": Time(now),
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{ "ip": address }],
        "conditions": conditions,
        "containerStatuses": containers(pod, || json!({ "running": { "startedAt": Time(now) } }), true),
    })
}

fn failed(pod: &Pod, now: Timestamp) -> Value {
    let state = || json!({ "terminated": { "exitCode": 1, "reason": "Error", "startedAt": Time(now), "finishedAt": Time(now) } });
    json!({
        "phase": "Failed",
        "startTime": Time(now),
        "conditions": [condition("Ready", false, now)],
        "containerStatuses": containers(pod, state, false),
    })
}

/// An address of the pod's own, the same each time, that leads nowhere.
fn address(uid: &str) -> String {
    let hash = uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [_, b, c, d] = hash.to_be_bytes();
    format!("10.{b}.{c}.{d}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(value: &Value) -> Pod {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_pod_starts_after_its_delay() {
        let behaviour = Behaviour { start_delay: Duration::from_secs(5), ..Behaviour::default() };
        let pod = pod(
            &json!({ "metadata": { "creationTimestamp": "1970-01-01T00:00:00Z" }, "spec": { "containers": [{ "name": "c" }] } }),
        );
        assert_eq!(decide(&pod, &behaviour, at(2)), Plan::Later(Duration::from_secs(3)));
        let Plan::Status(status) = decide(&pod, &behaviour, at(5)) else { panic!("it starts") };
        assert_eq!((&status["phase"], &status["containerStatuses"][0]["ready"]), (&json!("Running"), &json!(true)));
    }

    #[test]
    fn a_gate_that_opens_makes_it_ready() {
        let mut value = json!({
            "spec": { "containers": [], "readinessGates": [{ "conditionType": "g" }] },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "False" }] },
        });
        assert_eq!(decide(&pod(&value), &Behaviour::default(), at(0)), Plan::Nothing);
        value["status"]["conditions"].as_array_mut().unwrap().push(json!({ "type": "g", "status": "True" }));
        let Plan::Status(status) = decide(&pod(&value), &Behaviour::default(), at(0)) else { panic!("it is ready") };
        assert!(
            status["conditions"]
                .as_array()
                .unwrap()
                .iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True")
        );
    }

    #[test]
    fn the_end_comes_after_the_delay_or_the_grace_period() {
        let behaviour = Behaviour { stop_delay: Duration::from_secs(60), ..Behaviour::default() };
        let pod = pod(
            &json!({ "metadata": { "deletionTimestamp": "1970-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30 } }),
        );
        assert_eq!(decide(&pod, &behaviour, at(10)), Plan::Later(Duration::from_secs(20)));
        assert_eq!(decide(&pod, &behaviour, at(30)), Plan::Remove);
        assert_eq!(decide(&pod, &Behaviour::default(), at(0)), Plan::Remove);
    }

    #[test]
    fn what_has_ended_stays_as_it_is() {
        let pod = pod(&json!({ "status": { "phase": "Failed" } }));
        assert_eq!(decide(&pod, &Behaviour::default(), at(0)), Plan::Nothing);
    }
}
