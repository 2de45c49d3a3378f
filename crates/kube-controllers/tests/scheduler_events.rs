//! The events of the scheduler on the embedded API server, when answers come late.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use kube_controllers::scheduler::run::{DEFAULT_SCHEDULER, Scheduler};
use manager::context::Context;
use serde_json::json;
use testkit::world::{self, World};
use virt_server::Component;

const PODS: usize = 10;

/// A client that hears of bindings after the watches do.
fn late(client: &Client) -> Client {
    let client = client.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let client = client.clone();
        async move {
            let is_binding = request.uri().path().ends_with("/binding");
            let answer = client.send(request).await?;
            if is_binding {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok::<_, kube::Error>(answer)
        }
    });
    Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn of_every_binding_an_event_tells() {
    let world = World::start().await;
    let (client, context) = (world.client(), world.program(&Component::Scheduler));
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({
        "metadata": { "name": "n" },
        "status": { "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "100" } },
    });
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    for number in 0..PODS {
        let pod = json!({
            "metadata": { "name": format!("p{number}") },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    let scheduler = Scheduler::new(&Context { client: late(&context.client), ..context.clone() }, DEFAULT_SCHEDULER);
    world::watch(&context);
    tokio::spawn(scheduler.run());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let placed = pods.list(&ListParams::default()).await.unwrap();
    assert!(placed.iter().all(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some("n")));
    let events: Api<Event> = Api::namespaced(client, "default");
    let told = events.list(&ListParams::default()).await.unwrap();
    let about: std::collections::BTreeSet<_> = told
        .iter()
        .filter(|event| event.reason.as_deref() == Some("Scheduled"))
        .filter_map(|event| event.involved_object.name.clone())
        .collect();
    assert_eq!(about.len(), PODS);
}
