//! An instance with more than one launcher.

use super::*;

/// An instance that runs on one node and moves to another.
fn moving(more: &Value) -> Bench {
    let mut state = json!({
        "migrationUid": "m", "sourcePod": "virt-launcher-v", "sourceNode": "one", "targetPod": "t", "targetNode": "two",
    });
    merge(&mut state, more);
    let labels = json!({ "kubevirt.io/nodeName": "one" });
    let status = json!({ "nodeName": "one", "migrationState": state, "activePods": { "p": "one" } });
    Bench::new("Running", &json!({ "metadata": { "labels": labels }, "status": status }))
}

fn target(bench: Bench, more: &Value) -> Bench {
    let metadata = json!({ "name": "t", "uid": "t", "labels": { "kubevirt.io/migrationJobUID": "m" } });
    let mut pod = json!({ "metadata": metadata, "spec": { "nodeName": "two" } });
    merge(&mut pod, more);
    bench.pod(&pod)
}

fn listed(bench: &Bench) -> Value {
    json!(bench.then(&bench.decide()).status.unwrap().active_pods)
}

#[test]
fn nodes_know_the_launcher_that_holds_a_guest_and_the_one_that_awaits_it() {
    assert_eq!(listed(&target(moving(&json!({})).pod(&json!({})), &json!({}))), json!({ "p": "one", "t": "two" }));
    let waits = json!({ "spec": { "nodeName": "" } });
    assert_eq!(
        listed(&target(moving(&json!({})).pod(&json!({})), &waits)),
        json!({ "p": "one" }),
        "it has no node yet"
    );
    let ended = json!({ "status": { "phase": "Failed" } });
    assert_eq!(listed(&target(moving(&json!({})).pod(&json!({})), &ended)), json!({ "p": "one" }));
    let failed = json!({ "failed": true, "completed": true });
    assert_eq!(listed(&target(moving(&failed).pod(&json!({})), &json!({}))), json!({ "p": "one" }));
}

#[test]
fn a_guest_that_has_arrived_is_looked_for_where_it_went() {
    let mut bench = target(moving(&json!({ "completed": true })).pod(&json!({})), &json!({}));
    bench.vmi.status.as_mut().unwrap().node_name = Some("two".to_owned());
    assert_eq!(listed(&bench), json!({ "t": "two" }));
    // The launcher that it left may go.
    bench.pods.remove(0);
    assert_eq!(phase_after(&bench), "Running");
}

#[test]
fn a_target_that_waits_is_not_taken_for_the_launcher() {
    // The migration has not been handed over yet: its pod alone tells.
    let waits = json!({ "spec": { "nodeName": "" }, "status": { "phase": "Pending", "containerStatuses": null } });
    let mut bench = target(moving(&json!({})).pod(&json!({})), &waits);
    bench.vmi.status.as_mut().unwrap().migration_state = None;
    bench.pods.reverse();
    assert_eq!(listed(&bench), json!({ "p": "one" }));
    assert_eq!(phase_after(&bench), "Running");
}

#[test]
fn a_launcher_that_is_gone_took_its_guest_along_unless_another_may_have_it() {
    assert_eq!(phase_after(&target(moving(&json!({})), &json!({}))), "Running");
    let ended = json!({ "status": { "phase": "Failed" } });
    assert_eq!(phase_after(&target(moving(&json!({})), &ended)), "Failed");
    // The server itself is asked before that.
    let mut bench = target(moving(&json!({})), &ended);
    bench.asked = false;
    assert_eq!(bench.decide(), Plan { ask: true, ..Plan::default() });
    // A migration that failed has taken nothing along.
    assert_eq!(phase_after(&target(moving(&json!({ "failed": true })), &json!({}))), "Failed");
}
