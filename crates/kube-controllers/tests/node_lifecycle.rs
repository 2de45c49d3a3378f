//! Nodes that fall silent, on the embedded API server with hollow nodes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_controllers::node_lifecycle::{NodeLifecycleController, Options};
use kube_controllers::taint_eviction::TaintEvictionController;
use manager::context::Context;
use node::hollow::{Behaviour, HollowNodes};
use serde_json::{Value, json};
use testkit::world::{self, World, seconds};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Nodes of which some can be made silent.
struct Cluster {
    /// The nodes'.
    context: Context,
    client: Client,
    nodes: Api<Node>,
    dying: JoinHandle<()>,
}

fn hollow(context: &Context, names: &[&str]) -> JoinHandle<()> {
    let nodes = HollowNodes::new(context, names.iter().map(|name| (*name).to_owned()), Behaviour::default());
    tokio::spawn(async move { nodes.run().await })
}

async fn start(living: &[&str], dying: &[&str]) -> Cluster {
    let world = World::start().await;
    let (of_nodes, context) = (world.kubernetes("node-controller"), world.nodes());
    let nodes = NodeLifecycleController::new(&of_nodes, Options::default());
    let evictions = TaintEvictionController::new(&of_nodes);
    tokio::spawn(async move { nodes.run().await });
    tokio::spawn(async move { evictions.run().await });
    hollow(&context, living);
    let dying = hollow(&context, dying);
    world::watch(&of_nodes);
    world::watch(&context);
    let client = world.client();
    sleep(Duration::from_secs(5)).await;
    Cluster { nodes: Api::all(client.clone()), context, client, dying }
}

impl Cluster {
    async fn taints(&self, node: &str) -> Vec<(String, String)> {
        let taints = self.nodes.get(node).await.unwrap().spec.unwrap_or_default().taints.unwrap_or_default();
        taints.into_iter().map(|taint| (taint.key, taint.effect)).collect()
    }

    async fn ready(&self, node: &str) -> (String, String) {
        let conditions = self.nodes.get(node).await.unwrap().status.unwrap().conditions.unwrap();
        let ready = conditions.into_iter().find(|one| one.type_ == "Ready").unwrap();
        (ready.status, ready.reason.unwrap())
    }

    async fn versions(&self) -> Vec<Option<String>> {
        let nodes = self.nodes.list(&ListParams::default()).await.unwrap();
        let pods = Api::<Pod>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let events = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let nodes = nodes.items.iter().map(ResourceExt::resource_version);
        let pods = pods.items.iter().map(ResourceExt::resource_version);
        nodes.chain(pods).chain(events.items.iter().map(ResourceExt::resource_version)).collect()
    }

    async fn events(&self) -> Vec<(String, String, String)> {
        let events = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let said = |event: &Event| {
            let component = event.source.as_ref().and_then(|source| source.component.clone()).unwrap_or_default();
            (component, event.reason.clone().unwrap(), event.message.clone().unwrap())
        };
        events.items.iter().map(said).collect()
    }
}

fn pod(name: &str, node: &str, tolerations: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "nodeName": node, "tolerations": tolerations, "containers": [{ "name": "c", "image": "i" }] },
    }))
    .unwrap()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_told_avoided_emptied_and_taken_back() {
    let cluster = start(&["a", "b"], &["lost"]).await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let forever = json!([{ "key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute" }]);
    for (name, tolerations) in [("p", json!([])), ("stays", forever)] {
        pods.create(&PostParams::default(), &pod(name, "lost", &tolerations)).await.unwrap();
    }
    seconds(120).await;
    let before = cluster.versions().await;
    seconds(120).await;
    assert_eq!(cluster.versions().await, before, "at rest nothing is written");
    assert!(is_ready(&pods.get("p").await.unwrap()));

    cluster.dying.abort();
    seconds(38).await;
    assert_eq!(cluster.ready("lost").await.0, "True", "a lease that is ten seconds old has forty left");
    seconds(30).await;
    assert_eq!(cluster.ready("lost").await, ("Unknown".to_owned(), "NodeStatusUnknown".to_owned()));
    let both = [(UNREACHABLE.to_owned(), "NoSchedule".to_owned()), (UNREACHABLE.to_owned(), "NoExecute".to_owned())];
    assert_eq!(cluster.taints("lost").await, both);
    assert!(cluster.taints("a").await.is_empty());
    assert!(!is_ready(&pods.get("p").await.unwrap()));
    let events = cluster.events().await;
    let said = |reason: &str, message: &str| {
        events.contains(&("node-controller".to_owned(), reason.to_owned(), message.to_owned()))
    };
    assert!(said("NodeNotReady", "Node lost status is now: NodeNotReady"), "{events:?}");
    assert!(said("NodeNotReady", "Node is not ready"), "{events:?}");
    assert!(said("RegisteredNode", "Node lost event: Registered Node lost in Controller"), "{events:?}");

    // After the five minutes that every pod tolerates.
    seconds(310).await;
    let evicted = pods.get("p").await.unwrap();
    assert!(evicted.metadata.deletion_timestamp.is_some());
    assert!(pods.get("stays").await.unwrap().metadata.deletion_timestamp.is_none());
    let before = cluster.versions().await;
    seconds(120).await;
    assert_eq!(cluster.versions().await, before, "at rest nothing is written, a lost node or not");

    hollow(&cluster.context, &["lost"]);
    seconds(20).await;
    assert_eq!(cluster.ready("lost").await.0, "True");
    assert!(cluster.taints("lost").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn while_nothing_is_ready_nothing_is_emptied() {
    let cluster = start(&[], &["a", "b"]).await;
    cluster.dying.abort();
    seconds(120).await;
    for node in ["a", "b"] {
        assert_eq!(cluster.ready(node).await.0, "Unknown");
        assert_eq!(cluster.taints(node).await, [(UNREACHABLE.to_owned(), "NoSchedule".to_owned())]);
    }
    let before = cluster.versions().await;
    seconds(120).await;
    assert_eq!(cluster.versions().await, before, "at rest nothing is written");
    hollow(&cluster.context, &["a"]);
    seconds(20).await;
    assert!(cluster.taints("a").await.is_empty());
    seconds(60).await;
    assert_eq!(cluster.taints("b").await.len(), 2, "now it is known whose fault it is");
}

#[tokio::test(start_paused = true)]
async fn lost_nodes_are_emptied_one_after_the_other() {
    let cluster = start(&["a", "b", "c", "d", "e"], &["x", "y"]).await;
    cluster.dying.abort();
    let emptied = async || {
        let mut count = 0;
        for node in ["x", "y"] {
            count += cluster.taints(node).await.iter().filter(|(_, effect)| effect == "NoExecute").count();
        }
        count
    };
    let mut changes = Vec::new();
    for second in 0..120 {
        seconds(1).await;
        if emptied().await > changes.len() {
            changes.push(second);
        }
    }
    assert_eq!(changes.len(), 2);
    assert!(changes[1] - changes[0] >= 9, "{changes:?}");
}

#[tokio::test(start_paused = true)]
async fn taints_follow_cordons_and_conditions_and_leave_others_alone() {
    let cluster = start(&["a"], &[]).await;
    let mine = json!({ "spec": { "unschedulable": true, "taints": [{ "key": "mine", "effect": "NoSchedule" }] } });
    cluster.nodes.patch("a", &PatchParams::default(), &Patch::Merge(&mine)).await.unwrap();
    let pressure = json!({ "status": { "conditions": [{ "type": "DiskPressure", "status": "True" }] } });
    cluster.nodes.patch_status("a", &PatchParams::default(), &Patch::Strategic(&pressure)).await.unwrap();
    seconds(2).await;
    let keys = async || cluster.taints("a").await.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    let mut found = keys().await;
    found.sort();
    assert_eq!(found, ["mine", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/unschedulable"]);
    let free = json!({ "spec": { "unschedulable": null } });
    cluster.nodes.patch("a", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    seconds(2).await;
    let mut found = keys().await;
    found.sort();
    assert_eq!(found, ["mine", "node.kubernetes.io/disk-pressure"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_never_speaks_is_lost_after_a_minute() {
    let cluster = start(&["a"], &[]).await;
    let mute = serde_json::from_value(json!({ "metadata": { "name": "mute" } })).unwrap();
    cluster.nodes.create(&PostParams::default(), &mute).await.unwrap();
    seconds(58).await;
    assert!(cluster.nodes.get("mute").await.unwrap().status.and_then(|status| status.conditions).is_none());
    seconds(10).await;
    assert_eq!(cluster.ready("mute").await, ("Unknown".to_owned(), "NodeStatusNeverUpdated".to_owned()));
}
