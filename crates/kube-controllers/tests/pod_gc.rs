//! Pods that nobody else clears away, on the embedded API server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_controllers::pod_gc::PodGcController;
use serde_json::{Value, json};
use testkit::world::{self, World, seconds};

async fn start() -> (Client, Api<Pod>, Api<Node>) {
    let world = World::start().await;
    let context = world.kubernetes("pod-garbage-collector");
    let controller = PodGcController::new(&context, 2);
    tokio::spawn(async move { controller.run().await });
    world::watch(&context);
    let client = world.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({
        "metadata": { "name": "one" }, "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] },
    });
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    (client.clone(), Api::default_namespaced(client), nodes)
}

async fn make(pods: &Api<Pod>, name: &str, node: &str, phase: &str, finalizers: &[&str]) {
    let pod = json!({
        "metadata": { "name": name, "finalizers": finalizers },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let status = json!({ "status": { "phase": phase } });
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

async fn names(pods: &Api<Pod>) -> Vec<String> {
    pods.list(&ListParams::default()).await.unwrap().items.iter().map(ResourceExt::name_any).collect()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().unwrap().phase.as_deref().unwrap()
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_fail_and_go() {
    let (_, pods, nodes) = start().await;
    make(&pods, "held", "one", "Running", &["example.com/hold"]).await;
    make(&pods, "ended", "one", "Succeeded", &[]).await;
    make(&pods, "free", "one", "Running", &[]).await;
    seconds(120).await;
    assert_eq!(names(&pods).await.len(), 3);
    nodes.delete("one", &DeleteParams::default()).await.unwrap();
    seconds(39).await;
    assert_eq!(names(&pods).await.len(), 3);
    seconds(3).await;
    assert_eq!(names(&pods).await, ["held"]);
    let held = pods.get("held").await.unwrap();
    assert_eq!(phase(&held), "Failed");
    let conditions = held.status.clone().unwrap().conditions.unwrap();
    let target = conditions.iter().find(|one| one.type_ == "DisruptionTarget").unwrap();
    assert_eq!(
        (target.reason.as_deref(), target.message.as_deref()),
        (Some("DeletionByPodGC"), Some("PodGC: node no longer exists"))
    );
    seconds(300).await;
    assert_eq!(
        pods.get("held").await.unwrap().resource_version(),
        held.resource_version(),
        "at rest nothing is written"
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_in_time_keeps_its_pods() {
    let (_, pods, nodes) = start().await;
    make(&pods, "p", "late", "Running", &[]).await;
    seconds(35).await;
    let node = json!({ "metadata": { "name": "late" } });
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    seconds(300).await;
    pods.get("p").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_goes_from_a_node_that_is_out_of_service() {
    let (_, pods, nodes) = start().await;
    make(&pods, "p", "one", "Running", &[]).await;
    make(&pods, "q", "one", "Running", &[]).await;
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    seconds(100).await;
    assert_eq!(names(&pods).await, ["p", "q"]);
    let taint = json!({ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" });
    let patch = json!({ "spec": { "taints": [taint] } });
    nodes.patch("one", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    seconds(2).await;
    assert_eq!(names(&pods).await, ["q"]);
    pods.delete("q", &DeleteParams::default()).await.unwrap();
    seconds(2).await;
    assert!(names(&pods).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_that_had_no_node_fails() {
    let (_, pods, _) = start().await;
    make(&pods, "p", "", "Pending", &["example.com/hold"]).await;
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    seconds(2).await;
    assert_eq!(phase(&pods.get("p").await.unwrap()), "Failed");
    let free: Value = json!({ "metadata": { "finalizers": null } });
    pods.patch("p", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    assert!(names(&pods).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn of_the_pods_that_ended_the_oldest_go() {
    let (_, pods, _) = start().await;
    for name in ["d", "c", "b", "a"] {
        make(&pods, name, "one", "Succeeded", &[]).await;
        seconds(2).await;
    }
    make(&pods, "runs", "one", "Running", &[]).await;
    seconds(30).await;
    assert_eq!(names(&pods).await, ["a", "b", "runs"]);
}
