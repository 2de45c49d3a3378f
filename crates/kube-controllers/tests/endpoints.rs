//! The controllers of endpoints and of endpoint slices on the embedded API server, with hollow nodes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_controllers::endpoint_slice::controller::{self as endpoint_slice, Options};
use kube_controllers::endpoints::controller as endpoints;
use manager::context::Context;
use node::hollow::{Behaviour, HollowNodes};
use serde_json::json;
use testkit::world::{self, World};
use tokio::time::sleep;

const MOST: usize = 3;

async fn start() -> Client {
    let world = World::start().await;
    let context = world.kubernetes("endpointslice-controller");
    start_on(&world, &context)
}

fn start_on(world: &World, of_slices: &Context) -> Client {
    let (of_endpoints, hollow) = (world.kubernetes("endpoint-controller"), world.nodes());
    let nodes = HollowNodes::new(&hollow, ["one".to_owned()], Behaviour::default());
    tokio::spawn(endpoint_slice::start(of_slices, Options { workers: 3, most: MOST }).run);
    tokio::spawn(endpoints::start(&of_endpoints, 3).run);
    tokio::spawn(async move { nodes.run().await });
    for context in [of_slices, &of_endpoints, &hollow] {
        world::watch(context);
    }
    world.client()
}

async fn settle() {
    sleep(Duration::from_secs(3)).await;
}

fn service() -> Service {
    let ports = json!([{ "name": "http", "port": 80, "targetPort": 8080 }]);
    let spec =
        json!({ "selector": { "app": "web" }, "clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"], "ports": ports });
    serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": spec })).unwrap()
}

async fn make_pods(client: &Client, names: &[&str]) -> Api<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for name in names {
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": "web" } },
            "spec": { "nodeName": "one", "containers": [{ "name": "c", "image": "i" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    pods
}

/// The pods of each slice, and whether they are ready; in the order of the slices' names.
async fn in_slices(client: &Client) -> Vec<Vec<(String, bool)>> {
    let slices: Api<EndpointSlice> = Api::default_namespaced(client.clone());
    let list = slices.list(&ListParams::default().labels("kubernetes.io/service-name=web")).await.unwrap();
    let shown = |slice: EndpointSlice| {
        let one = |endpoint: k8s_openapi::api::discovery::v1::Endpoint| {
            (endpoint.target_ref.unwrap().name.unwrap(), endpoint.conditions.unwrap().ready.unwrap())
        };
        slice.endpoints.into_iter().flatten().map(one).collect::<Vec<_>>()
    };
    list.into_iter().map(shown).collect()
}

/// How many addresses the Endpoints have, ready and not.
async fn in_endpoints(client: &Client) -> Option<(usize, usize)> {
    let all: Api<Endpoints> = Api::default_namespaced(client.clone());
    let found = all.get_opt("web").await.unwrap()?;
    let count = |all: Option<Vec<_>>| all.map_or(0, |all: Vec<k8s_openapi::api::core::v1::EndpointAddress>| all.len());
    let counted = found.subsets.into_iter().flatten().map(|one| (count(one.addresses), count(one.not_ready_addresses)));
    Some(counted.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_and_go_are_told_of_in_both_forms() {
    let client = start().await;
    let services: Api<Service> = Api::default_namespaced(client.clone());
    services.create(&PostParams::default(), &service()).await.unwrap();
    settle().await;
    assert_eq!((in_slices(&client).await, in_endpoints(&client).await), (vec![vec![]], Some((0, 0))));
    let pods = make_pods(&client, &["a", "b", "c", "d", "e"]).await;
    settle().await;
    let told = in_slices(&client).await;
    let mut all: Vec<_> = told.iter().flatten().cloned().collect();
    all.sort();
    assert_eq!(all, ["a", "b", "c", "d", "e"].map(|name| (name.to_owned(), true)));
    assert!(told.len() == 2 && told.iter().all(|slice| slice.len() <= MOST), "{told:?}");
    assert_eq!(in_endpoints(&client).await, Some((5, 0)));
    // One that goes is not ready at once, and gone in the end.
    let slow = DeleteParams { grace_period_seconds: Some(20), ..DeleteParams::default() };
    pods.delete("a", &slow).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(in_slices(&client).await.concat().len(), 4);
    assert_eq!(in_endpoints(&client).await, Some((4, 0)));
    // One that no longer belongs to it.
    let away = json!({ "metadata": { "labels": { "app": "other" } } });
    pods.patch("b", &PatchParams::default(), &Patch::Merge(&away)).await.unwrap();
    settle().await;
    assert_eq!((in_slices(&client).await.concat().len(), in_endpoints(&client).await), (3, Some((3, 0))));
    // At rest nothing is written.
    let versions = async || {
        let slices =
            Api::<EndpointSlice>::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap();
        let endpoints =
            Api::<Endpoints>::default_namespaced(client.clone()).list(&ListParams::default()).await.unwrap();
        let slices = slices.items.iter().map(ResourceExt::resource_version);
        slices.chain(endpoints.items.iter().map(ResourceExt::resource_version)).collect::<Vec<_>>()
    };
    let before = versions().await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(versions().await, before);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_takes_away_or_spoils_is_made_good() {
    let client = start().await;
    Api::<Service>::default_namespaced(client.clone()).create(&PostParams::default(), &service()).await.unwrap();
    make_pods(&client, &["a"]).await;
    settle().await;
    let slices: Api<EndpointSlice> = Api::default_namespaced(client.clone());
    let endpoints: Api<Endpoints> = Api::default_namespaced(client.clone());
    let name = slices.list(&ListParams::default()).await.unwrap().items[0].name_any();
    slices.delete(&name, &DeleteParams::default()).await.unwrap();
    endpoints.delete("web", &DeleteParams::default()).await.unwrap();
    settle().await;
    assert_eq!((in_slices(&client).await.concat().len(), in_endpoints(&client).await), (1, Some((1, 0))));
    let nothing = json!({ "endpoints": [] });
    let name = slices.list(&ListParams::default()).await.unwrap().items[0].name_any();
    slices.patch(&name, &PatchParams::default(), &Patch::Merge(&nothing)).await.unwrap();
    endpoints.patch("web", &PatchParams::default(), &Patch::Merge(&json!({ "subsets": null }))).await.unwrap();
    settle().await;
    assert_eq!((in_slices(&client).await.concat().len(), in_endpoints(&client).await), (1, Some((1, 0))));
}

#[tokio::test(start_paused = true)]
async fn endpoints_go_with_their_service_and_not_before_it_comes() {
    let client = start().await;
    let endpoints: Api<Endpoints> = Api::default_namespaced(client.clone());
    let own = serde_json::from_value(json!({ "metadata": { "name": "own" } })).unwrap();
    endpoints.create(&PostParams::default(), &own).await.unwrap();
    let services: Api<Service> = Api::default_namespaced(client.clone());
    services.create(&PostParams::default(), &service()).await.unwrap();
    settle().await;
    assert_eq!(in_endpoints(&client).await, Some((0, 0)));
    services.delete("web", &DeleteParams::default()).await.unwrap();
    settle().await;
    assert_eq!(in_endpoints(&client).await, None);
    assert!(endpoints.get_opt("own").await.unwrap().is_some(), "its service may be still to come");
    let bare = json!({ "metadata": { "name": "own" }, "spec": { "ports": [{ "port": 80 }] } });
    services.create(&PostParams::default(), &serde_json::from_value(bare).unwrap()).await.unwrap();
    settle().await;
    assert!(endpoints.get_opt("own").await.unwrap().is_some(), "without a selector they are the user's");
}

/// The answers to the first creations are lost: the slices are there, and no second one is made.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_no_second_slice() {
    let world = World::start().await;
    let context = world.kubernetes("endpointslice-controller");
    let (asked, server) = (Arc::new(AtomicUsize::new(0)), context.client.clone());
    let counted = asked.clone();
    let lossy = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_creation = request.method() == http::Method::POST && request.uri().path().ends_with("/endpointslices");
        let lost = is_creation && counted.fetch_add(1, Ordering::Relaxed) < 2;
        let server = server.clone();
        async move {
            let answer = server.send(request).await.map_err(std::io::Error::other);
            if lost { Err(std::io::Error::other("lost")) } else { answer }
        }
    });
    let client = start_on(&world, &Context { client: Client::new(lossy, "default"), ..context });
    make_pods(&client, &["a", "b", "c", "d"]).await;
    settle().await;
    Api::<Service>::default_namespaced(client.clone()).create(&PostParams::default(), &service()).await.unwrap();
    let mut most = 0;
    for _ in 0..600 {
        sleep(Duration::from_secs(1)).await;
        most = most.max(in_slices(&client).await.len());
    }
    assert!(asked.load(Ordering::Relaxed) >= 2, "answers were lost");
    assert_eq!((most, in_slices(&client).await.concat().len()), (2, 4));
}
