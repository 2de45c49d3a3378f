use proptest::prelude::*;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn node(schedulable: Option<&str>, heartbeat: Option<&str>) -> Node {
    let mut node = json!({ "metadata": { "name": "one", "uid": "n", "labels": {}, "annotations": {} } });
    if let Some(schedulable) = schedulable {
        node["metadata"]["labels"][label::SCHEDULABLE] = json!(schedulable);
    }
    if let Some(heartbeat) = heartbeat {
        node["metadata"]["annotations"][annotation::HEARTBEAT] = json!(heartbeat);
    }
    serde_json::from_value(node).unwrap()
}

fn vmi() -> VirtualMachineInstance {
    let vmi = json!({
        "metadata": { "name": "v", "namespace": "n", "uid": "u", "resourceVersion": "3" },
        "spec": { "domain": { "devices": {} } },
        "status": { "phase": "Running" },
    });
    serde_json::from_value(vmi).unwrap()
}

fn pod(state: &Value) -> Pod {
    let status =
        json!({ "name": "compute", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state });
    let owner = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "v", "uid": "u", "controller": true });
    let status = json!({ "phase": "Running", "containerStatuses": [status] });
    serde_json::from_value(json!({ "metadata": { "ownerReferences": [owner] }, "status": status })).unwrap()
}

const OLD: &str = "1970-01-01T00:00:00Z";

#[test]
fn a_node_whose_handler_speaks_is_looked_at_again_in_time() {
    let node = node(Some("true"), Some("1970-01-01T00:01:40Z"));
    let plan = decide(&Observed { node: Some(&node), instances: Vec::new(), asked: false }, at(160));
    assert_eq!(plan, Plan { recheck_after: Some(Duration::from_secs(240)), ..Plan::default() });
}

#[test]
fn a_silent_handler_takes_its_node_out_of_service_once() {
    let silent = node(Some("true"), Some(OLD));
    let plan = decide(&Observed { node: Some(&silent), instances: Vec::new(), asked: false }, at(301));
    assert_eq!(plan.node.unwrap()["metadata"]["labels"][label::SCHEDULABLE], "false");
    assert_eq!(plan.event.unwrap().reason, "NodeUnresponsive");
    let told = node(Some("false"), Some(OLD));
    let plan = decide(&Observed { node: Some(&told), instances: Vec::new(), asked: false }, at(301));
    assert_eq!(plan, Plan::default());
}

#[test]
fn a_node_without_a_handler_is_left_alone() {
    let other = node(None, None);
    assert_eq!(decide(&Observed { node: Some(&other), instances: Vec::new(), asked: false }, at(301)), Plan::default());
}

#[test]
fn an_instance_is_lost_only_when_nothing_of_it_can_run() {
    let silent = node(Some("true"), Some(OLD));
    let vmi = vmi();
    let (running, ended) = (pod(&json!({ "running": {} })), pod(&json!({ "terminated": { "exitCode": 1 } })));
    let look = |pods: Vec<&Pod>, asked| {
        let instances = vec![(&vmi, pods)];
        decide(&Observed { node: Some(&silent), instances, asked }, at(301))
    };
    let plan = look(vec![&running], false);
    assert!(plan.lost.is_empty());
    assert!(plan.event.unwrap().message.ends_with("1 virtual machine instances are orphaned: v"));
    assert!(look(vec![&ended], false).ask && look(Vec::new(), false).ask, "the server itself is asked first");
    for pods in [vec![&ended], Vec::new()] {
        let plan = look(pods, true);
        let (namespace, name, patch) = &plan.lost[0];
        assert_eq!((namespace.as_str(), name.as_str()), ("n", "v"));
        assert_eq!(
            (&patch["status"]["phase"], &patch["status"]["reason"]),
            (&json!("Failed"), &json!("NodeUnresponsive"))
        );
        assert_eq!(patch["metadata"]["resourceVersion"], "3");
    }
    assert!(look(vec![&ended, &running], true).lost.is_empty());
}

#[test]
fn a_guest_that_may_be_elsewhere_is_not_lost_with_its_node() {
    let silent = node(Some("true"), Some(OLD));
    let (mut vmi, ended) = (vmi(), pod(&json!({ "terminated": { "exitCode": 1 } })));
    let mut target = pod(&json!({ "running": {} }));
    target.metadata.labels = Some([(label::MIGRATION_JOB_UID.to_owned(), "m".to_owned())].into());
    let mut is_lost = |more: Value| {
        let mut state = json!({ "migrationUid": "m", "sourceNode": "one", "targetNode": "two" });
        json_patch::merge(&mut state, &more);
        vmi.status.as_mut().unwrap().migration_state = serde_json::from_value(state).unwrap();
        let instances = vec![(&vmi, vec![&ended, &target])];
        !decide(&Observed { node: Some(&silent), instances, asked: true }, at(301)).lost.is_empty()
    };
    let reachable = json!({ "targetNodeAddress": "10.0.0.2" });
    assert!(!is_lost(reachable.clone()), "the source may have sent it and cannot say so");
    assert!(!is_lost(json!({ "startTimestamp": "1970-01-01T00:00:09Z" })));
    assert!(
        is_lost(json!({ "failed": true, "targetNodeAddress": "10.0.0.2" })),
        "what is left of a migration that failed"
    );
    assert!(is_lost(json!({})), "nobody knows where the target is");
    assert!(is_lost(json!({ "migrationUid": "another", "failed": true })), "its migration has not begun");
}

#[test]
fn a_target_that_waits_for_its_turn_keeps_no_lost_instance_alive() {
    let silent = node(Some("true"), Some(OLD));
    let (vmi, ended) = (vmi(), pod(&json!({ "terminated": { "exitCode": 1 } })));
    let mut target = pod(&json!({ "running": {} }));
    target.metadata.labels = Some([(label::MIGRATION_JOB_UID.to_owned(), "m".to_owned())].into());
    let instances = vec![(&vmi, vec![&ended, &target])];
    assert_eq!(decide(&Observed { node: Some(&silent), instances, asked: true }, at(301)).lost.len(), 1);
}

#[test]
fn a_node_that_is_gone_does_not_answer() {
    let vmi = vmi();
    let plan = decide(&Observed { node: None, instances: vec![(&vmi, Vec::new())], asked: true }, at(1));
    assert_eq!((plan.lost.len(), plan.node), (1, None));
}

proptest! {
    #[test]
    fn nobody_is_lost_while_the_handler_speaks(since in 0..400_i64, asked: bool, live: bool) {
        let heartbeat = at(1000 - since).to_string();
        let node = node(Some("true"), Some(&heartbeat));
        let (vmi, pod) = (vmi(), pod(&json!({ "running": {} })));
        let pods = if live { vec![&pod] } else { Vec::new() };
        let plan = decide(&Observed { node: Some(&node), instances: vec![(&vmi, pods)], asked }, at(1000));
        let silent = since >= 300;
        prop_assert_eq!(!plan.lost.is_empty(), silent && asked && !live);
        prop_assert_eq!(plan.recheck_after.is_some(), !silent);
    }
}
