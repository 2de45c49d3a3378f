//! Deployments on the embedded API server: the deployment and the replica-set controller, and hollow nodes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_controllers::deployment::controller::DeploymentController;
use kube_controllers::replicaset::controller::ReplicaSetController;
use manager::context::Context;
use node::hollow::{Behaviour, HollowNodes};
use serde_json::json;
use testkit::world;
use tokio::time::sleep;

async fn start(start_delay: Duration) -> Client {
    start_on(world::start().await, start_delay)
}

fn start_on(context: Context, start_delay: Duration) -> Client {
    let (replica_sets, deployments) = (ReplicaSetController::new(&context), DeploymentController::new(&context));
    let behaviour = Behaviour { start_delay, ..Behaviour::default() };
    let nodes = HollowNodes::new(&context, ["one".to_owned()], behaviour);
    tokio::spawn(async move { replica_sets.run(3).await });
    tokio::spawn(async move { deployments.run(3).await });
    tokio::spawn(async move { nodes.run().await });
    world::watch(&context);
    context.client
}

fn template(image: &str) -> serde_json::Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "nodeName": "one", "containers": [{ "name": "c", "image": image }] },
    })
}

async fn images(client: &Client) -> Vec<String> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let list = pods.list(&ListParams::default()).await.unwrap();
    let live = list.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    live.map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()).collect()
}

/// The end of a set may be heard of before that of its deployment: made again, it would have all its pods once more.
#[tokio::test(start_paused = true)]
async fn no_set_is_made_for_a_deployment_that_only_the_cache_still_has() {
    let context = world::start_with(|server| {
        let without = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
            if request.method() == http::Method::GET && request.uri().path().ends_with("/deployments/web") {
                *request.uri_mut() = request.uri().path().replace("/web", "/gone").parse().unwrap();
            }
            tower::Service::call(&mut server.clone(), request)
        });
        Client::new(without, "default")
    })
    .await;
    let client = start_on(context, Duration::ZERO);
    let (deployments, sets) =
        (Api::<Deployment>::default_namespaced(client.clone()), Api::<ReplicaSet>::default_namespaced(client));
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "web" } }, "template": template("i:1") },
    });
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(sets.list(&ListParams::default()).await.unwrap().items, []);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_replaces_all_pods_and_an_undo_brings_the_old_set_back() {
    let client = start(Duration::from_secs(2)).await;
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "web" } }, "template": template("i:1") },
    });
    api.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(images(&client).await, ["i:1", "i:1", "i:1"]);
    let first = api.get("web").await.unwrap();
    let status = first.status.clone().unwrap();
    assert_eq!((status.replicas, status.available_replicas, status.updated_replicas), (Some(3), Some(3), Some(3)));
    let roll = async |image: &str| {
        let patch = json!({ "spec": { "template": template(image) } });
        api.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        sleep(Duration::from_secs(120)).await;
    };
    roll("i:2").await;
    assert_eq!(images(&client).await, ["i:2", "i:2", "i:2"]);
    roll("i:1").await;
    assert_eq!(images(&client).await, ["i:1", "i:1", "i:1"]);
    let sets = Api::<ReplicaSet>::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap();
    assert_eq!(sets.items.len(), 2, "the old set is used again");
    let now = api.get("web").await.unwrap();
    assert_eq!(now.annotations()["deployment.kubernetes.io/revision"], "3");
    let conditions = now.status.unwrap().conditions.unwrap();
    assert!(conditions.iter().any(|one| one.type_ == "Available" && one.status == "True"));
    let versions = async || {
        let sets = Api::<ReplicaSet>::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap();
        let mut all: Vec<_> = sets.items.iter().map(ResourceExt::resource_version).collect();
        all.push(api.get("web").await.unwrap().resource_version());
        all
    };
    let before = versions().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(versions().await, before, "at rest nothing is written");
}

/// Pods come and go at once here, so that the cache is behind most of the time: what it still shows must not be written
/// over what is newer.
#[tokio::test(start_paused = true)]
async fn a_recreation_is_told_of_the_new_set_and_is_no_generation_of_its_own() {
    let client = start(Duration::ZERO).await;
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    let (strategy, selector) = (json!({ "type": "Recreate" }), json!({ "matchLabels": { "app": "web" } }));
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": 2, "strategy": strategy, "selector": selector, "template": template("i:1") },
    });
    api.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    sleep(Duration::from_secs(30)).await;
    for image in ["i:2", "i:3", "i:4"] {
        let patch = json!({ "spec": { "template": template(image) } });
        api.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        sleep(Duration::from_secs(30)).await;
        assert_eq!(images(&client).await, [image, image]);
        let now = api.get("web").await.unwrap();
        let sets = Api::<ReplicaSet>::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap();
        let new = sets.items.iter().find(|set| set.spec.as_ref().unwrap().replicas == Some(2)).unwrap().name_any();
        let conditions = now.status.as_ref().unwrap().conditions.as_ref().unwrap();
        let progress = conditions.iter().find(|one| one.type_ == "Progressing").unwrap();
        assert_eq!(progress.message, Some(format!("ReplicaSet {new:?} has successfully progressed.")));
        assert_eq!(
            now.annotations()["deployment.kubernetes.io/revision"],
            now.metadata.generation.unwrap().to_string()
        );
    }
}
