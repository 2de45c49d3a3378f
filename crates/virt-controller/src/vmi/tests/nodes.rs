//! Pods that find no node.

use super::*;

#[test]
fn what_keeps_the_pod_from_its_node_is_told() {
    let unschedulable = json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending", "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available" },
    ] } });
    let bench = Bench::new("Scheduling", &json!({})).pod(&unschedulable);
    let next = bench.then(&bench.decide());
    assert_eq!(condition(&next, "PodScheduled"), Some(("False".to_owned(), "Unschedulable".to_owned())));
    let mut bound = Bench { vmi: next, ..Bench::new("", &json!({})) }.pod(&json!({ "status": { "phase": "Pending" } }));
    let next = bound.then(&bound.decide());
    assert_eq!(condition(&next, "PodScheduled"), None);
    bound.vmi = next;
    assert_eq!(bound.decide(), Plan::default());
}

#[test]
fn what_kept_a_pod_from_its_node_is_not_told_of_one_that_is_gone() {
    let waiting = Bench::new(
        "Scheduling",
        &json!({ "status": { "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available" },
    ] } }),
    );
    let next = waiting.then(&waiting.decide());
    assert_eq!((next.phase(), condition(&next, "PodScheduled")), (&Phase::Failed, None));
}
