//! Pods that no node has taken, and that would be others if they were made now.

use super::*;

/// An instance whose pod was made when nodes had KVM, on a node or on none, in a phase.
fn made_for_kvm(phase: &str, node: Option<&str>) -> Bench {
    let mut bench = Bench::new("Pending", &json!({}));
    let made = *bench.decide().create.unwrap();
    let mut pod = json!(made);
    pod["metadata"]["uid"] = "p".into();
    pod["metadata"]["resourceVersion"] = "41".into();
    pod["spec"]["dnsPolicy"] = "ClusterFirst".into();
    pod["status"] = json!({ "phase": "Pending" });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    bench.pods = vec![serde_json::from_value(pod).unwrap()];
    bench.vmi.status.get_or_insert_default().phase = Some(serde_json::from_value(json!(phase)).unwrap());
    bench
}

#[test]
fn a_pod_that_no_node_has_taken_and_that_would_be_another_now_makes_room() {
    let mut bench = made_for_kvm("Scheduling", None);
    let plan = bench.decide();
    assert_eq!((plan.delete.len(), phase_after(&bench).as_str()), (0, "Scheduling"), "nothing has changed");

    bench.launcher.nodes.kvm = false;
    // First the instance goes back to where it may have another pod, then the pod goes, as it was seen.
    assert_eq!((bench.decide().delete.len(), phase_after(&bench).as_str()), (0, "Pending"));
    bench.vmi = bench.then(&bench.decide());
    let target = pods::target(&bench.pods[0]);
    let gone = Deletion { target, grace: None, version: Some("41".to_owned()) };
    let plan = bench.decide();
    assert_eq!((plan.delete, plan.create), (vec![gone], None));
    bench.pods.clear();
    let made = bench.decide().create.unwrap();
    assert!(!json!(made).to_string().contains("devices.kubevirt.io/kvm"));
}

#[test]
fn a_pod_that_a_node_has_taken_stays_whatever_has_changed() {
    for phase in ["Pending", "Scheduling"] {
        let mut bench = made_for_kvm(phase, Some("one"));
        bench.launcher.nodes.kvm = false;
        let plan = bench.decide();
        assert_eq!((plan.delete.len(), phase_after(&bench).as_str()), (0, "Scheduling"));
    }
}
