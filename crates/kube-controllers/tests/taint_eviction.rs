//! Evictions by taints on the embedded API server, with a hollow node.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_controllers::taint_eviction::TaintEvictionController;
use node::hollow::{Behaviour, HollowNodes};
use serde_json::{Value, json};
use testkit::world::{self, World};
use tokio::time::sleep;

async fn start() -> Client {
    let world = World::start().await;
    let context = world.kubernetes("node-controller");
    let hollow = world.nodes();
    let controller = TaintEvictionController::new(&context);
    let behaviour = Behaviour { stop_delay: Duration::from_secs(20), ..Behaviour::default() };
    let nodes = HollowNodes::new(&hollow, ["one".to_owned()], behaviour);
    tokio::spawn(async move { controller.run().await });
    tokio::spawn(async move { nodes.run().await });
    world::watch(&context);
    world::watch(&hollow);
    sleep(Duration::from_secs(1)).await;
    world.client()
}

async fn make(pods: &Api<Pod>, name: &str, tolerations: Value) {
    let pod = json!({
        "metadata": { "name": name },
        "spec": { "nodeName": "one", "tolerations": tolerations, "containers": [{ "name": "c", "image": "i" }] },
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

fn tolerating(seconds: Option<i64>) -> Value {
    json!([{ "key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds }])
}

async fn taint(client: &Client, taints: Value) {
    let patch = json!({ "spec": { "taints": taints } });
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch("one", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
}

async fn going(pods: &Api<Pod>) -> Vec<String> {
    let list = pods.list(&ListParams::default()).await.unwrap();
    list.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).map(ResourceExt::name_any).collect()
}

async fn messages(client: &Client) -> Vec<String> {
    let events = Api::<Event>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    let ours = events.items.into_iter().filter(|event| event.reason.as_deref() == Some("TaintManagerEviction"));
    ours.filter_map(|event| event.message).collect()
}

#[tokio::test(start_paused = true)]
async fn who_does_not_tolerate_a_taint_goes_and_the_others_when_their_time_is_over() {
    let client = start().await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    make(&pods, "none", json!([])).await;
    make(&pods, "some", tolerating(Some(60))).await;
    make(&pods, "ever", tolerating(None)).await;
    sleep(Duration::from_secs(1)).await;
    taint(&client, json!([{ "key": "k", "effect": "NoExecute" }, { "key": "l", "effect": "NoSchedule" }])).await;
    assert_eq!(going(&pods).await, ["none"]);
    let gone = pods.get("none").await.unwrap();
    let conditions = gone.status.unwrap().conditions.unwrap();
    let target = conditions.iter().find(|one| one.type_ == "DisruptionTarget").unwrap();
    assert_eq!(
        (target.status.as_str(), target.reason.as_deref(), target.message.as_deref()),
        ("True", Some("DeletionByTaintManager"), Some("Taint manager: deleting due to NoExecute taint"))
    );
    assert_eq!(messages(&client).await, ["Marking for deletion Pod default/none"]);
    sleep(Duration::from_secs(50)).await;
    assert!(going(&pods).await.is_empty());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(going(&pods).await, ["some"]);
    sleep(Duration::from_secs(600)).await;
    assert!(going(&pods).await.is_empty());
    pods.get("ever").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_the_taint_goes_the_pod_is_spared() {
    let client = start().await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    make(&pods, "some", tolerating(Some(60))).await;
    taint(&client, json!([{ "key": "k", "effect": "NoExecute" }])).await;
    sleep(Duration::from_secs(50)).await;
    taint(&client, Value::Null).await;
    assert_eq!(messages(&client).await, ["Cancelling deletion of Pod default/some"]);
    sleep(Duration::from_secs(600)).await;
    pods.get("some").await.unwrap();
    // The next taint begins anew.
    taint(&client, json!([{ "key": "k", "effect": "NoExecute" }])).await;
    sleep(Duration::from_secs(50)).await;
    assert!(going(&pods).await.is_empty());
    sleep(Duration::from_secs(12)).await;
    assert_eq!(going(&pods).await, ["some"]);
}
