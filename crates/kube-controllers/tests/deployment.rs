//! Deployments on the embedded API server: the deployment and the replica-set controller, and hollow nodes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use futures_util::StreamExt as _;
use http_body_util::{BodyStream, StreamBody};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, ResourceExt};
use kube_controllers::deployment::controller as deployment;
use kube_controllers::replicaset::controller as replicaset;
use manager::context::Context;
use node::hollow::{Behaviour, HollowNodes};
use serde_json::json;
use testkit::world::{self, World};
use tokio::time::{Instant, sleep, sleep_until};
use virt_server::Component;

async fn start(start_delay: Duration) -> Client {
    let world = World::start().await;
    start_on(&world, &own(&world), start_delay)
}

/// What the controller of deployments is given.
fn own(world: &World) -> Context {
    world.kubernetes("deployment-controller")
}

fn start_on(world: &World, context: &Context, start_delay: Duration) -> Client {
    let (of_sets, hollow) = (world.kubernetes("replicaset-controller"), world.nodes());
    let behaviour = Behaviour { start_delay, ..Behaviour::default() };
    let nodes = HollowNodes::new(&hollow, ["one".to_owned()], behaviour);
    tokio::spawn(replicaset::start(&of_sets, 3).run);
    tokio::spawn(deployment::start(context, 3).run);
    tokio::spawn(async move { nodes.run().await });
    for context in [context, &of_sets, &hollow] {
        world::watch(context);
    }
    world.client()
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
    let world = World::start().await;
    let context = own(&world);
    let server = context.client.clone();
    let without = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
        if request.method() == http::Method::GET && request.uri().path().ends_with("/deployments/web") {
            *request.uri_mut() = request.uri().path().replace("/web", "/gone").parse().unwrap();
        }
        let server = server.clone();
        async move { server.send(request).await }
    });
    let context = Context { client: Client::new(without, "default"), ..context };
    let client = start_on(&world, &context, Duration::ZERO);
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

/// A set that was made and that the cache does not show yet has pods: the next one must leave room for them.
#[tokio::test(start_paused = true)]
async fn no_set_is_made_beside_one_that_the_cache_does_not_show_yet() {
    const LATE: Duration = Duration::from_secs(60);
    let world = World::start().await;
    let server = world.program(&Component::ControllerManager).client;
    let until = Instant::now() + LATE;
    let late = tower::service_fn(move |request: http::Request<Body>| {
        let server = server.clone();
        async move {
            let is_about_sets = request.uri().path() == "/apis/apps/v1/replicasets";
            let (parts, body) = server.send(request).await?.into_parts();
            let frames = BodyStream::new(body).then(move |frame| async move {
                let data = frame.as_ref().ok().and_then(|frame| frame.data_ref());
                let names_one = data.is_some_and(|data| String::from_utf8_lossy(data).contains("\"web-"));
                if is_about_sets && names_one {
                    sleep_until(until).await;
                }
                frame
            });
            Ok::<_, kube::Error>(http::Response::from_parts(parts, StreamBody::new(frames)))
        }
    });
    let context = Context { client: own(&world).client, ..world.context(Client::new(late, "default")) };
    let client = start_on(&world, &context, Duration::ZERO);
    let (deployments, sets) =
        (Api::<Deployment>::default_namespaced(client.clone()), Api::<ReplicaSet>::default_namespaced(client.clone()));
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "web" } }, "template": template("i:1") },
    });
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(images(&client).await, ["i:1", "i:1", "i:1"]);
    let patch = json!({ "spec": { "template": template("i:2") } });
    deployments.patch("web", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(sets.list(&ListParams::default()).await.unwrap().items.len(), 1, "the first one is not known yet");
    sleep(LATE * 2).await;
    assert_eq!(images(&client).await, ["i:2", "i:2", "i:2"]);
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
