//! The scheduler on the embedded API server, with hollow nodes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kube_controllers::scheduler::run::{DEFAULT_SCHEDULER, Scheduler};
use node::hollow::{Behaviour, HollowNodes};
use serde_json::{Value, json};
use testkit::world::{self, World};
use tokio::time::sleep;
use virt_server::Component;

async fn start(nodes: &[&str]) -> Client {
    let world = World::start().await;
    let (context, hollow) = (world.program(&Component::Scheduler), world.nodes());
    let scheduler = Scheduler::new(&context, DEFAULT_SCHEDULER);
    let nodes = HollowNodes::new(&hollow, nodes.iter().map(|&name| name.to_owned()), Behaviour::default());
    tokio::spawn(scheduler.run());
    tokio::spawn(async move { nodes.run().await });
    world::watch(&context);
    world::watch(&hollow);
    sleep(Duration::from_secs(1)).await;
    world.client()
}

async fn create(client: &Client, name: &str, spec: Value) {
    let mut spec = spec;
    spec["containers"] =
        json!([{ "name": "c", "image": "i", "resources": { "requests": { "cpu": spec["cpu"].take() } } }]);
    spec.as_object_mut().unwrap().remove("cpu");
    let pod = json!({ "metadata": { "name": name }, "spec": spec });
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

async fn node_of(client: &Client, name: &str) -> Option<String> {
    Api::<Pod>::default_namespaced(client.clone()).get(name).await.unwrap().spec.unwrap().node_name
}

/// What is written about a pod that fits nowhere, and that it is placed as soon as it fits.
#[tokio::test(start_paused = true)]
async fn a_pod_that_fits_nowhere_says_why_and_waits_for_what_cures_it() {
    let client = start(&["one", "two"]).await;
    create(&client, "huge", json!({ "cpu": "33", "schedulerName": DEFAULT_SCHEDULER })).await;
    sleep(Duration::from_secs(5)).await;
    let message = "0/2 nodes are available: 2 Insufficient cpu.";
    let pod = Api::<Pod>::default_namespaced(client.clone()).get("huge").await.unwrap();
    let conditions = pod.status.unwrap().conditions.unwrap();
    let condition = conditions.iter().find(|one| one.type_ == "PodScheduled").unwrap();
    assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("False", Some("Unschedulable")));
    assert!(condition.message.as_deref().unwrap().starts_with(message), "{condition:?}");
    let events = Api::<Event>::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap();
    let failed = events.items.iter().find(|one| one.reason.as_deref() == Some("FailedScheduling")).unwrap();
    assert!(failed.message.as_deref().unwrap().starts_with(message));
    let version =
        async || Api::<Pod>::default_namespaced(client.clone()).get("huge").await.unwrap().metadata.resource_version;
    let before = version().await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(version().await, before, "what is known is not written again");
    let large = json!({ "status": { "allocatable": { "cpu": "64" } } });
    let nodes = Api::<Node>::all(client.clone());
    nodes.patch_status("two", &PatchParams::default(), &Patch::Merge(&large)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(node_of(&client, "huge").await.as_deref(), Some("two"));
}

#[tokio::test(start_paused = true)]
async fn pods_are_spread_and_other_schedulers_pods_left_alone() {
    let client = start(&["one", "two"]).await;
    for number in 0..10 {
        create(&client, &format!("p{number}"), json!({ "cpu": "1" })).await;
    }
    create(&client, "other", json!({ "cpu": "1", "schedulerName": "another" })).await;
    sleep(Duration::from_secs(2)).await;
    let mut on_one = 0;
    for number in 0..10 {
        on_one += usize::from(node_of(&client, &format!("p{number}")).await.as_deref() == Some("one"));
    }
    assert_eq!(on_one, 5);
    assert_eq!(node_of(&client, "other").await, None);
    let events = Api::<Event>::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap();
    let scheduled = events.items.iter().filter(|one| one.reason.as_deref() == Some("Scheduled"));
    let components: Vec<_> = scheduled.map(|one| one.source.as_ref().unwrap().component.clone().unwrap()).collect();
    assert_eq!(components, vec!["default-scheduler"; 10]);
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_gets_nothing_until_it_is_free_again() {
    let client = start(&["one"]).await;
    let nodes = Api::<Node>::all(client.clone());
    let cordon = |value: bool| Patch::Merge(json!({ "spec": { "unschedulable": value } }));
    nodes.patch("one", &PatchParams::default(), &cordon(true)).await.unwrap();
    create(&client, "p", json!({ "cpu": "1" })).await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(node_of(&client, "p").await, None);
    nodes.patch("one", &PatchParams::default(), &cordon(false)).await.unwrap();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(node_of(&client, "p").await.as_deref(), Some("one"));
}
