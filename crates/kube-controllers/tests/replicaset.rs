//! The replica-set controller on the embedded API server, with hollow nodes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_controllers::replicaset::controller as replicaset;
use manager::context::Context;
use node::hollow::{Behaviour, HollowNodes};
use serde_json::json;
use testkit::world::{self, World};
use tokio::time::sleep;

async fn start() -> Client {
    let world = World::start().await;
    start_on(&world, &own(&world))
}

/// What the controller is given.
fn own(world: &World) -> Context {
    world.kubernetes("replicaset-controller")
}

fn start_on(world: &World, context: &Context) -> Client {
    let hollow = world.nodes();
    let nodes = HollowNodes::new(&hollow, ["one".to_owned()], Behaviour::default());
    tokio::spawn(replicaset::start(context, 3).run);
    tokio::spawn(async move { nodes.run().await });
    world::watch(context);
    world::watch(&hollow);
    world.client()
}

fn set(replicas: i32) -> ReplicaSet {
    let set = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "nodeName": "one", "containers": [{ "name": "c", "image": "i" }] },
            },
        },
    });
    serde_json::from_value(set).unwrap()
}

async fn names(pods: &Api<Pod>) -> Vec<String> {
    let list = pods.list(&ListParams::default().labels("app=web")).await.unwrap();
    list.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect()
}

#[tokio::test(start_paused = true)]
async fn there_are_as_many_pods_as_asked_for() {
    let client = start().await;
    let (sets, pods) = (Api::<ReplicaSet>::default_namespaced(client.clone()), Api::<Pod>::default_namespaced(client));
    sets.create(&PostParams::default(), &set(3)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let first = names(&pods).await;
    assert_eq!(first.len(), 3);
    let status = sets.get("web").await.unwrap().status.unwrap();
    assert_eq!((status.replicas, status.ready_replicas, status.available_replicas), (3, Some(3), Some(3)));
    // One that goes is replaced, and only that one.
    pods.delete(&first[0], &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let second = names(&pods).await;
    assert_eq!(second.len(), 3);
    assert!(first[1..].iter().all(|name| second.contains(name)));
    let scale = |replicas: i32| json!({ "spec": { "replicas": replicas } });
    sets.patch("web", &PatchParams::default(), &Patch::Merge(&scale(1))).await.unwrap();
    sleep(Duration::from_secs(40)).await;
    assert_eq!(names(&pods).await.len(), 1);
    sets.patch("web", &PatchParams::default(), &Patch::Merge(&scale(20))).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(names(&pods).await.len(), 20);
    // At rest nothing is written.
    let versions = async || {
        let pods = pods.list(&ListParams::default()).await.unwrap();
        let mut versions: Vec<_> = pods.items.iter().map(ResourceExt::resource_version).collect();
        versions.push(sets.get("web").await.unwrap().resource_version());
        versions
    };
    let before = versions().await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(versions().await, before);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_adopted_and_one_that_no_longer_matches_released() {
    let client = start().await;
    let (sets, pods) = (Api::<ReplicaSet>::default_namespaced(client.clone()), Api::<Pod>::default_namespaced(client));
    let orphan = json!({ "metadata": { "name": "orphan", "labels": { "app": "web" } }, "spec": { "nodeName": "one", "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(orphan).unwrap()).await.unwrap();
    sets.create(&PostParams::default(), &set(2)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(names(&pods).await.len(), 2);
    assert_eq!(pods.get("orphan").await.unwrap().owner_references().len(), 1);
    let away = json!({ "metadata": { "labels": { "app": "other" } } });
    pods.patch("orphan", &PatchParams::default(), &Patch::Merge(&away)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert!(pods.get("orphan").await.unwrap().owner_references().is_empty());
    assert_eq!(names(&pods).await.len(), 2);
}

/// Events tell what was done, in the words that users know.
#[tokio::test(start_paused = true)]
async fn what_is_done_is_told() {
    let client = start().await;
    Api::<ReplicaSet>::default_namespaced(client.clone()).create(&PostParams::default(), &set(1)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    let events = Api::<Event>::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap();
    let told: Vec<_> =
        events.items.iter().map(|one| (one.reason.clone().unwrap(), one.message.clone().unwrap())).collect();
    let pod = names(&Api::<Pod>::default_namespaced(client)).await.remove(0);
    assert_eq!(told, [("SuccessfulCreate".to_owned(), format!("Created pod: {pod}"))]);
}

/// The answer to a creation is lost: the pod is there, and no second one is made for it.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_pod() {
    let created = Arc::new(AtomicUsize::new(0));
    let counted = created.clone();
    let world = World::start().await;
    let context = own(&world);
    let server = context.client.clone();
    let lossy = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_creation = request.method() == http::Method::POST && request.uri().path().ends_with("/pods");
        let lost = is_creation && counted.fetch_add(1, Ordering::Relaxed) < 2;
        let server = server.clone();
        async move {
            let answer = server.send(request).await.map_err(std::io::Error::other);
            if lost { Err(std::io::Error::other("lost")) } else { answer }
        }
    });
    let client = start_on(&world, &Context { client: Client::new(lossy, "default"), ..context });
    Api::<ReplicaSet>::default_namespaced(client.clone()).create(&PostParams::default(), &set(3)).await.unwrap();
    let pods = Api::<Pod>::default_namespaced(client);
    let mut most = 0;
    for _ in 0..600 {
        sleep(Duration::from_secs(1)).await;
        most = most.max(names(&pods).await.len());
    }
    assert!(created.load(Ordering::Relaxed) >= 3, "all were asked for, two answers were lost");
    assert_eq!((names(&pods).await.len(), most), (3, 3));
}

/// A pod that is made and gone before anybody saw it is no news: after a while its set looks again.
#[tokio::test(start_paused = true)]
async fn a_pod_that_nobody_ever_saw_is_made_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let world = World::start().await;
    let context = own(&world);
    let server = context.client.clone();
    let forgetful = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
        let is_creation = request.method() == http::Method::POST && request.uri().path().ends_with("/pods");
        if is_creation && counted.fetch_add(1, Ordering::Relaxed) == 0 {
            let path = format!("{}?dryRun=All", request.uri().path());
            *request.uri_mut() = path.parse().unwrap();
        }
        let server = server.clone();
        async move { server.send(request).await }
    });
    let client = start_on(&world, &Context { client: Client::new(forgetful, "default"), ..context });
    Api::<ReplicaSet>::default_namespaced(client.clone()).create(&PostParams::default(), &set(1)).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(names(&Api::<Pod>::default_namespaced(client)).await.len(), 1);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}
