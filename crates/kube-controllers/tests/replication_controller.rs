//! The controller of replication controllers on the embedded API server, with hollow nodes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_controllers::replication_controller;
use node::hollow::{Behaviour, HollowNodes};
use serde_json::json;
use testkit::world::{self, World};
use tokio::time::sleep;

async fn start() -> Client {
    let world = World::start().await;
    let (context, hollow) = (world.kubernetes("replication-controller"), world.nodes());
    let nodes = HollowNodes::new(&hollow, ["one".to_owned()], Behaviour::default());
    tokio::spawn(replication_controller::start(&context, 3).run);
    tokio::spawn(async move { nodes.run().await });
    world::watch(&context);
    world::watch(&hollow);
    world.client()
}

fn controller(replicas: i32) -> ReplicationController {
    // Without a selector: it is that of the template.
    let controller = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas,
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "nodeName": "one", "containers": [{ "name": "c", "image": "i" }] },
            },
        },
    });
    serde_json::from_value(controller).unwrap()
}

async fn names(pods: &Api<Pod>) -> Vec<String> {
    let list = pods.list(&ListParams::default().labels("app=web")).await.unwrap();
    list.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect()
}

#[tokio::test(start_paused = true)]
async fn there_are_as_many_pods_as_its_scale_asks_for() {
    let client = start().await;
    let controllers = Api::<ReplicationController>::default_namespaced(client.clone());
    let pods = Api::<Pod>::default_namespaced(client);
    controllers.create(&PostParams::default(), &controller(2)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let first = names(&pods).await;
    assert_eq!(first.len(), 2);
    let told = async || {
        let status = controllers.get("web").await.unwrap().status.unwrap();
        (status.replicas, status.ready_replicas, status.available_replicas, status.observed_generation)
    };
    assert_eq!(told().await, (2, Some(2), Some(2), Some(1)));
    // What `kubectl scale` sends.
    let scale = json!({ "spec": { "replicas": 5 } });
    let scaled = controllers.patch_scale("web", &PatchParams::default(), &Patch::Merge(&scale)).await.unwrap();
    assert_eq!(scaled.spec.unwrap().replicas, Some(5));
    sleep(Duration::from_secs(2)).await;
    assert_eq!((names(&pods).await.len(), told().await), (5, (5, Some(5), Some(5), Some(2))));
    let scale = controllers.get_scale("web").await.unwrap();
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("app=web"));
    // One that goes is replaced.
    pods.delete(&first[0], &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(40)).await;
    assert_eq!(names(&pods).await.len(), 5);
    // At rest nothing is written.
    let version = async || controllers.get("web").await.unwrap().resource_version();
    let before = version().await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(version().await, before);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_adopted_and_another_controllers_pod_is_left_alone() {
    let client = start().await;
    let controllers = Api::<ReplicationController>::default_namespaced(client.clone());
    let pods = Api::<Pod>::default_namespaced(client);
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true });
    for (name, owners) in [("orphan", json!([])), ("owned", json!([owner]))] {
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": "web" }, "ownerReferences": owners },
            "spec": { "nodeName": "one", "containers": [{ "name": "c", "image": "i" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    controllers.create(&PostParams::default(), &controller(2)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(names(&pods).await.len(), 3);
    let kinds = async |name: &str| -> Vec<String> {
        pods.get(name).await.unwrap().owner_references().iter().map(|one| one.kind.clone()).collect()
    };
    assert_eq!(kinds("orphan").await, ["ReplicationController"]);
    assert_eq!(kinds("owned").await, ["ReplicaSet"]);
}
