//! Hollow handlers on the embedded API server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use api::conditions::{ConditionStatus, find};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use virt_handler::hollow::Behaviour;

use support::{Cluster, NODES, OTHER, seconds};

fn instance(name: &str) -> String {
    format!("PATCH /apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/{name}")
}

fn pod_status(name: &str) -> String {
    format!("PATCH /api/v1/namespaces/default/pods/launcher-{name}/status")
}

#[tokio::test(start_paused = true)]
async fn nodes_are_registered_once_and_then_only_heard_of() {
    let cluster = Cluster::start(Behaviour::default()).await;
    let mut writes = cluster.writes();
    writes.sort();
    let both = |name: &str| [format!("PATCH /api/v1/nodes/{name}"), format!("PATCH /api/v1/nodes/{name}/status")];
    assert_eq!(writes, NODES.map(both).concat());
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let heard = |node: &Node| -> Timestamp {
        node.metadata.annotations.as_ref().unwrap()["kubevirt.io/heartbeat"].parse().unwrap()
    };
    let first = nodes.get("one").await.unwrap();
    assert_eq!(first.metadata.labels.as_ref().unwrap()["kubevirt.io/schedulable"], "true");
    let allocatable = first.status.as_ref().unwrap().allocatable.as_ref().unwrap();
    assert_eq!(allocatable["devices.kubevirt.io/kvm"].0, "1k");
    assert!(allocatable.contains_key("cpu"));
    assert_eq!(nodes.get(OTHER).await.unwrap().metadata.annotations, None);
    // Somebody has given the node up; it says that it is there.
    let lost = json!({ "metadata": { "labels": { "kubevirt.io/schedulable": "false" } } });
    nodes.patch("one", &PatchParams::default(), &Patch::Merge(&lost)).await.unwrap();
    seconds(75).await;
    let mut writes = cluster.writes();
    writes.sort();
    assert_eq!(writes, NODES.map(|name| format!("PATCH /api/v1/nodes/{name}")));
    let second = nodes.get("one").await.unwrap();
    assert!(heard(&second) >= heard(&first) + Duration::from_secs(60), "{} {}", heard(&first), heard(&second));
    assert_eq!(second.metadata.labels.unwrap()["kubevirt.io/schedulable"], "true");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_made_again_is_registered_again() {
    let cluster = Cluster::start(Behaviour::default()).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let mut node = nodes.get("one").await.unwrap();
    nodes.delete("one", &DeleteParams::default()).await.unwrap();
    seconds(1).await;
    cluster.writes();
    seconds(200).await;
    assert!(!cluster.writes().iter().any(|write| write.contains("nodes/one")));
    node.metadata = serde_json::from_value(json!({ "name": "one" })).unwrap();
    node.status = None;
    nodes.create(&Default::default(), &node).await.unwrap();
    seconds(1).await;
    let node = nodes.get("one").await.unwrap();
    assert_eq!(node.status.unwrap().capacity.unwrap()["devices.kubevirt.io/tun"].0, "1k");
}

#[tokio::test(start_paused = true)]
async fn an_instance_runs_after_its_delay_by_one_write() {
    let cluster = Cluster::start(Behaviour { start_delay: Duration::from_secs(5), ..Behaviour::default() }).await;
    cluster.writes();
    cluster.instance("a", "Scheduled", "one", &json!({})).await;
    cluster.instance("elsewhere", "Scheduled", OTHER, &json!({})).await;
    cluster.instance("early", "Scheduling", "two", &json!({})).await;
    seconds(3).await;
    assert_eq!(cluster.phase("a").await, "Scheduled");
    seconds(4).await;
    let vmi = cluster.vmi("a").await;
    assert_eq!(vmi.phase().to_string(), "Running");
    let status = vmi.status.unwrap();
    assert_eq!(find(status.conditions.as_deref(), "Ready").unwrap().status, ConditionStatus::True);
    let pod = cluster.pods().get("launcher-a").await.unwrap();
    let interfaces = status.interfaces.unwrap();
    assert_eq!(interfaces[0].name.as_deref(), Some("default"));
    assert!(interfaces[0].ip_address.is_some());
    assert_eq!(interfaces[0].ip_address, pod.status.unwrap().pod_ip);
    let entered = status.phase_transition_timestamps.unwrap();
    assert_eq!(entered.last().unwrap().phase.as_ref().unwrap().as_str(), "Running");
    seconds(30).await;
    assert_eq!(
        (cluster.phase("elsewhere").await, cluster.phase("early").await),
        ("Scheduled".into(), "Scheduling".into())
    );
    assert_eq!(cluster.writes(), [instance("a")]);
}

#[tokio::test(start_paused = true)]
async fn a_guest_may_start_paused() {
    let cluster = Cluster::start(Behaviour::default()).await;
    cluster.instance("a", "Scheduled", "one", &json!({ "spec": { "startStrategy": "Paused" } })).await;
    seconds(1).await;
    let vmi = cluster.vmi("a").await;
    assert_eq!(vmi.phase().to_string(), "Running");
    let conditions = vmi.status.unwrap().conditions;
    let reason = |kind: &str, status: ConditionStatus| {
        find(conditions.as_deref(), kind).filter(|one| one.status == status).and_then(|one| one.reason.clone())
    };
    assert_eq!(reason("Paused", ConditionStatus::True).as_deref(), Some("PausedByUser"));
    assert_eq!(reason("Ready", ConditionStatus::False).as_deref(), Some("GuestNotRunning"));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_instance_succeeds_and_keeps_its_finalizers() {
    let cluster = Cluster::start(Behaviour { stop_delay: Duration::from_secs(5), ..Behaviour::default() }).await;
    cluster.instance("a", "Scheduled", "one", &json!({})).await;
    seconds(1).await;
    cluster.writes();
    cluster.vmis().delete("a", &DeleteParams::default()).await.unwrap();
    seconds(3).await;
    assert_eq!(cluster.phase("a").await, "Running");
    seconds(4).await;
    let vmi = cluster.vmi("a").await;
    assert_eq!(vmi.phase().to_string(), "Succeeded");
    assert_eq!(vmi.metadata.finalizers.unwrap(), ["kubevirt.io/foregroundDeleteVirtualMachine"]);
    seconds(30).await;
    assert_eq!(cluster.writes(), [instance("a")]);
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_is_deleted_takes_its_guest_with_it() {
    let slow = node::hollow::Behaviour { stop_delay: Duration::from_secs(10), ..Default::default() };
    let cluster =
        Cluster::start_with(Behaviour { stop_delay: Duration::from_secs(5), ..Behaviour::default() }, slow).await;
    cluster.instance("a", "Scheduled", "one", &json!({})).await;
    seconds(1).await;
    cluster.pods().delete("launcher-a", &DeleteParams::default()).await.unwrap();
    seconds(3).await;
    assert_eq!(cluster.phase("a").await, "Running");
    seconds(4).await;
    assert_eq!(cluster.phase("a").await, "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn a_launcher_that_fails_fails_its_instance() {
    let cluster = Cluster::start(Behaviour::default()).await;
    cluster.instance("a", "Scheduled", "one", &json!({})).await;
    seconds(1).await;
    let failed = json!({ "status": { "phase": "Failed" } });
    cluster.pods().patch_status("launcher-a", &PatchParams::default(), &Patch::Merge(&failed)).await.unwrap();
    seconds(1).await;
    assert_eq!(cluster.phase("a").await, "Failed");
}

#[tokio::test(start_paused = true)]
async fn guests_end_as_their_annotations_say_and_their_launchers_with_them() {
    let cluster = Cluster::start(Behaviour::default()).await;
    let fate = |fate: &str| json!({ "metadata": { "annotations": { "orlop.io/hollow-fate": fate } } });
    let short = json!({ "metadata": { "annotations": { "orlop.io/hollow-run-for": "5s" } } });
    cluster.instance("short", "Scheduled", "one", &short).await;
    cluster.instance("crash", "Scheduled", "one", &fate("crash")).await;
    cluster.instance("broken", "Scheduled", "two", &fate("fail-to-start")).await;
    cluster.instance("stays", "Scheduled", "two", &fate("hang")).await;
    seconds(2).await;
    assert_eq!((cluster.phase("short").await, cluster.pod_phase("short").await), ("Running".into(), "Running".into()));
    seconds(10).await;
    for (name, phase) in [("short", "Succeeded"), ("crash", "Failed"), ("broken", "Failed"), ("stays", "Running")] {
        assert_eq!((cluster.phase(name).await, cluster.pod_phase(name).await), (phase.into(), phase.into()), "{name}");
    }
    let pod = cluster.pods().get("launcher-crash").await.unwrap();
    let container = &pod.status.unwrap().container_statuses.unwrap()[0];
    assert!(!container.ready && container.state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code == 1);
    // A guest that hangs is killed in the end.
    cluster.vmis().delete("stays", &DeleteParams::default()).await.unwrap();
    seconds(20).await;
    assert_eq!(cluster.phase("stays").await, "Running");
    seconds(15).await;
    assert_eq!(cluster.phase("stays").await, "Failed");
    let writes = cluster.writes();
    let count = |wanted: &String| writes.iter().filter(|write| *write == wanted).count();
    assert_eq!(["short", "crash", "broken"].map(|name| count(&pod_status(name))), [1, 1, 1]);
    // One that crashes at once is never seen to run.
    assert_eq!(["short", "crash", "broken", "stays"].map(|name| count(&instance(name))), [2, 1, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_came_in_between_is_looked_at_again() {
    let cluster = Cluster::start(Behaviour { start_delay: Duration::from_secs(2), ..Behaviour::default() }).await;
    for name in ["a", "b", "c"] {
        cluster.instance(name, "Scheduled", "one", &json!({})).await;
    }
    // Somebody else writes all the time.
    for round in 0..300 {
        for name in ["a", "b", "c"] {
            let patch = json!({ "metadata": { "labels": { "round": round.to_string() } } });
            cluster.vmis().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    seconds(1).await;
    let vmis = cluster.vmis().list(&ListParams::default()).await.unwrap();
    for vmi in vmis {
        assert_eq!(vmi.phase().to_string(), "Running");
        assert_eq!(vmi.metadata.labels.unwrap()["round"], "299");
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_writes_in_the_same_order() {
    async fn story() -> Vec<String> {
        let behaviour = Behaviour {
            start_delay: Duration::from_secs(1),
            run_for: Some(Duration::from_secs(20)),
            crash_share: 0.3,
            start_failure_share: 0.2,
            ..Behaviour::default()
        };
        let cluster = Cluster::start(behaviour).await;
        for number in 0..30 {
            cluster.instance(&format!("i{number}"), "Scheduled", NODES[number % 2], &json!({})).await;
        }
        seconds(90).await;
        cluster.writes()
    }
    let (first, second) = (story().await, story().await);
    let fates = first.iter().filter(|write| write.contains("/pods/")).count();
    assert_eq!(fates, 30, "{first:?}");
    assert_eq!(first, second);
}
