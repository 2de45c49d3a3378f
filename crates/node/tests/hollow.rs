//! Hollow nodes on the embedded API server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use node::hollow::{Behaviour, HollowNodes};
use serde_json::json;
use testkit::world::{self, World};
use tokio::time::sleep;

async fn start(behaviour: Behaviour) -> Client {
    let world = World::start().await;
    let context = world.nodes();
    let nodes = HollowNodes::new(&context, ["one".to_owned(), "two".to_owned()], behaviour);
    tokio::spawn(async move { nodes.run().await });
    world::watch(&context);
    world.client()
}

fn pod(name: &str, node: &str) -> Pod {
    let pod = json!({ "metadata": { "name": name }, "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] } });
    serde_json::from_value(pod).unwrap()
}

fn phase(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn bound_pods_run_and_end_after_their_delays() {
    let behaviour =
        Behaviour { start_delay: Duration::from_secs(5), stop_delay: Duration::from_secs(10), ..Behaviour::default() };
    let client = start(behaviour).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("a", "one")).await.unwrap();
    pods.create(&PostParams::default(), &pod("other", "elsewhere")).await.unwrap();
    sleep(Duration::from_secs(4)).await;
    assert_eq!(phase(&pods.get("a").await.unwrap()), "Pending");
    sleep(Duration::from_secs(3)).await;
    let running = pods.get("a").await.unwrap();
    assert_eq!(phase(&running), "Running");
    let conditions = running.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
    assert_eq!(phase(&pods.get("other").await.unwrap()), "Pending");
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(8)).await;
    assert!(pods.get_opt("a").await.unwrap().is_some());
    sleep(Duration::from_secs(4)).await;
    assert!(pods.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn nodes_are_there_and_renew_their_leases() {
    let client = start(Behaviour::default()).await;
    sleep(Duration::from_secs(61)).await;
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    assert_eq!(nodes.items.len(), 2);
    let lease = Api::<Lease>::namespaced(client, "kube-node-lease").get("one").await.unwrap();
    let renewed = lease.spec.unwrap().renew_time.unwrap().0;
    assert!(renewed >= Timestamp::from_second(50).unwrap(), "{renewed}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_somebody_has_ended_stays_ended() {
    let client = start(Behaviour::default()).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut gated = pod("a", "one");
    let gates = json!([{ "conditionType": "g" }]);
    gated.spec.as_mut().unwrap().readiness_gates = serde_json::from_value(gates).unwrap();
    pods.create(&PostParams::default(), &gated).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(phase(&pods.get("a").await.unwrap()), "Running");
    let end = json!({ "status": { "phase": "Succeeded", "conditions": [{ "type": "g", "status": "True" }] } });
    pods.patch_status("a", &PatchParams::default(), &Patch::Strategic(&end)).await.unwrap();
    let ended = pods.get("a").await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(pods.get("a").await.unwrap(), ended);
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert!(pods.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn conditions_and_devices_of_others_are_left_alone() {
    let behaviour = Behaviour { start_delay: Duration::from_secs(5), ..Behaviour::default() };
    let client = start(behaviour).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("a", "one")).await.unwrap();
    let own = json!({ "status": { "conditions": [{ "type": "mine", "status": "True" }] } });
    pods.patch_status("a", &PatchParams::default(), &Patch::Strategic(&own)).await.unwrap();
    sleep(Duration::from_secs(6)).await;
    let conditions = pods.get("a").await.unwrap().status.unwrap().conditions.unwrap();
    for kind in ["mine", "Ready", "ContainersReady"] {
        assert!(conditions.iter().any(|one| one.type_ == kind && one.status == "True"), "{kind}: {conditions:?}");
    }
    // A node that was given up for lost reports its whole status again.
    let nodes: Api<Node> = Api::all(client);
    let lost = json!({ "status": {
        "capacity": { "example.com/device": "7" }, "allocatable": { "example.com/device": "7" },
        "conditions": [{ "type": "Ready", "status": "Unknown" }],
    } });
    nodes.patch_status("one", &PatchParams::default(), &Patch::Merge(&lost)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    let status = nodes.get("one").await.unwrap().status.unwrap();
    assert!(status.conditions.unwrap().iter().any(|one| one.type_ == "Ready" && one.status == "True"));
    for amounts in [status.capacity.unwrap(), status.allocatable.unwrap()] {
        assert_eq!(amounts.get("example.com/device").map(|amount| amount.0.as_str()), Some("7"));
        assert!(amounts.contains_key("cpu"));
    }
}
