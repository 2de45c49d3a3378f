use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn vmi(phase: &str) -> VirtualMachineInstance {
    let spec = json!({ "domain": { "devices": {} } });
    serde_json::from_value(json!({ "metadata": { "uid": "u" }, "spec": spec, "status": { "phase": phase } })).unwrap()
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
    let patch = ended(&pod, &vmi("Failed"), at(9));
    assert_eq!((&patch["metadata"], &patch["status"]["phase"]), (&json!({ "uid": "p" }), &json!("Failed")));
    let container = &patch["status"]["containerStatuses"][0];
    assert_eq!((&container["ready"], &container["state"]["terminated"]["exitCode"]), (&json!(false), &json!(1)));
    assert_eq!(container["state"].get("running"), None);
    let patch = ended(&pod, &vmi("Succeeded"), at(9));
    assert_eq!(patch["status"]["phase"], "Succeeded");
}
