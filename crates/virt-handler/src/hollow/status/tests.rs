use serde_json::{Value, json};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn vmi(spec: &Value, status: &Value) -> VirtualMachineInstance {
    let mut spec = spec.clone();
    if spec.get("domain").is_none() {
        spec["domain"] = json!({ "devices": {} });
    }
    let metadata = json!({ "name": "a", "uid": "u", "resourceVersion": "7", "finalizers": ["f"] });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap()
}

fn ready(status: &str, reason: &str) -> Value {
    json!([{ "type": "Ready", "status": status, "reason": reason, "lastTransitionTime": "1970-01-01T00:00:01Z" }])
}

fn conditions_of(patch: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let listed = patch["status"]["conditions"].as_array().cloned().unwrap_or_default();
    listed.iter().map(|one| (text(&one["type"]), text(&one["status"]), text(&one["reason"]))).collect()
}

fn triple(kind: &str, status: &str, reason: &str) -> (String, String, String) {
    (kind.to_owned(), status.to_owned(), reason.to_owned())
}

#[test]
fn only_the_version_that_was_seen_is_changed_and_only_its_status() {
    let patch = enter(&vmi(&json!({}), &json!({ "phase": "Scheduled" })), None, &Phase::Running, at(9));
    assert_eq!(patch["metadata"], json!({ "uid": "u", "resourceVersion": "7" }));
    assert_eq!(patch.as_object().unwrap().len(), 2);
    let entered = json!([{ "phase": "Running", "phaseTransitionTimestamp": "1970-01-01T00:00:09Z" }]);
    assert_eq!(patch["status"]["phaseTransitionTimestamps"], entered);
}

#[test]
fn an_instance_that_waited_for_its_guest_is_ready() {
    let status = json!({ "phase": "Scheduled", "conditions": ready("False", "GuestNotRunning") });
    let patch = enter(&vmi(&json!({}), &status), None, &Phase::Running, at(9));
    assert_eq!(conditions_of(&patch), [triple("Ready", "True", "")]);
    assert_eq!(patch["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:09Z");
    let status = json!({ "phase": "Scheduled", "conditions": ready("False", "ContainersNotReady") });
    let patch = enter(&vmi(&json!({}), &status), None, &Phase::Running, at(9));
    assert_eq!(conditions_of(&patch), [triple("Ready", "False", "ContainersNotReady")]);
}

#[test]
fn a_guest_that_starts_paused_is_not_ready_and_no_longer_paused_when_it_ends() {
    let status = json!({ "phase": "Scheduled", "conditions": ready("False", "GuestNotRunning") });
    let paused = vmi(&json!({ "startStrategy": "Paused" }), &status);
    let patch = enter(&paused, None, &Phase::Running, at(9));
    let expected = [triple("Ready", "False", "GuestNotRunning"), triple("Paused", "True", "PausedByUser")];
    assert_eq!(conditions_of(&patch), expected);
    let patch = enter(&vmi(&json!({}), &patch["status"]), None, &Phase::Failed, at(10));
    assert_eq!(conditions_of(&patch), [triple("Ready", "False", "GuestNotRunning")]);
}

#[test]
fn what_has_ended_is_not_ready() {
    let status = json!({ "phase": "Running", "conditions": ready("True", "") });
    let patch = enter(&vmi(&json!({}), &status), None, &Phase::Succeeded, at(9));
    assert_eq!(conditions_of(&patch), [triple("Ready", "False", "GuestNotRunning")]);
    assert_eq!(patch["status"].get("interfaces"), None);
}

#[test]
fn the_interface_on_the_pods_network_has_its_addresses() {
    let spec = json!({
        "domain": { "devices": { "interfaces": [
            { "name": "default", "masquerade": {} },
            { "name": "other", "bridge": {}, "macAddress": "02:00:00:00:00:01" },
        ] } },
        "networks": [{ "name": "default", "pod": {} }, { "name": "other", "multus": { "networkName": "n" } }],
    });
    let known = json!({ "phase": "Scheduled", "interfaces": [{ "name": "default", "podInterfaceName": "eth0" }] });
    let pod: Pod = serde_json::from_value(json!({ "status": { "podIP": "10.0.0.1" } })).unwrap();
    let patch = enter(&vmi(&spec, &known), Some(&pod), &Phase::Running, at(9));
    let default = json!({
        "name": "default", "podInterfaceName": "eth0", "infoSource": "domain", "queueCount": 1,
        "ipAddress": "10.0.0.1", "ipAddresses": ["10.0.0.1"],
    });
    let other = json!({ "name": "other", "mac": "02:00:00:00:00:01", "infoSource": "domain", "queueCount": 1 });
    assert_eq!(patch["status"]["interfaces"], json!([default, other]));
}

#[test]
fn a_launcher_that_has_ended_says_how() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "uid": "p" },
        "status": { "phase": "Running", "containerStatuses": [{
            "name": "compute", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
            "state": { "running": { "startedAt": "1970-01-01T00:00:01Z" } },
        }] },
    }))
    .unwrap();
    let patch = ended(&pod, &vmi(&json!({}), &json!({ "phase": "Failed" })), at(9));
    assert_eq!((&patch["metadata"], &patch["status"]["phase"]), (&json!({ "uid": "p" }), &json!("Failed")));
    let container = &patch["status"]["containerStatuses"][0];
    assert_eq!((&container["ready"], &container["state"]["terminated"]["exitCode"]), (&json!(false), &json!(1)));
    assert_eq!(container["state"].get("running"), None);
    let patch = ended(&pod, &vmi(&json!({}), &json!({ "phase": "Succeeded" })), at(9));
    assert_eq!(patch["status"]["phase"], "Succeeded");
}
