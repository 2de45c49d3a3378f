//! Replica sets of instances on the embedded server: the controllers are real, and the test plays scheduler, node and handler.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use api::replicaset::{VirtualMachineInstanceReplicaSet, VirtualMachineInstanceReplicaSetStatus};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use testkit::world::until;
use tokio::time::sleep;

#[expect(dead_code, reason = "each test uses a part of it")]
mod support;

use support::{World, spec};

fn sets(world: &World) -> Api<VirtualMachineInstanceReplicaSet> {
    Api::default_namespaced(world.client.clone())
}

async fn create(world: &World, replicas: i32) {
    let set = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "metadata": { "name": "farm" },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "farm" } },
            "template": { "metadata": { "labels": { "app": "farm" } }, "spec": spec() },
        },
    });
    sets(world).create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
}

/// As `kubectl scale` does.
async fn scale(world: &World, replicas: i32) {
    let patch = json!({ "spec": { "replicas": replicas } });
    sets(world).patch_scale("farm", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn change(world: &World, patch: &Value) {
    sets(world).patch("farm", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits until the set has so many instances that stay, and returns them.
async fn instances(world: &World, count: usize) -> Vec<VirtualMachineInstance> {
    until(&format!("{count} instances"), async || {
        let all = world.vmis().list(&ListParams::default()).await.unwrap().items;
        let stay: Vec<_> = all.into_iter().filter(|vmi| !vmi.is_marked_for_deletion() && !vmi.is_final()).collect();
        (stay.len() == count).then_some(stay)
    })
    .await
}

/// Waits until the status of the set satisfies something.
async fn status(
    world: &World,
    wanted: impl Fn(&VirtualMachineInstanceReplicaSetStatus) -> bool,
) -> VirtualMachineInstanceReplicaSetStatus {
    until("the wanted status", async || {
        let set = sets(world).get("farm").await.unwrap();
        set.status.into_option().filter(|status| wanted(status))
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_set_has_as_many_instances_as_it_is_scaled_to() {
    let world = World::start().await;
    create(&world, 2).await;
    let first = instances(&world, 2).await;
    for vmi in &first {
        world.boot(&vmi.name_any()).await;
    }
    let shown = status(&world, |status| status.ready_replicas == Some(2)).await;
    assert_eq!((shown.replicas, shown.label_selector.as_deref(), shown.conditions), (Some(2), Some("app=farm"), None));
    let seen = sets(&world).get_scale("farm").await.unwrap();
    let selector = seen.status.as_ref().and_then(|status| status.selector.as_deref());
    assert_eq!((seen.status.as_ref().map(|status| status.replicas), selector), (Some(2), Some("app=farm")));
    scale(&world, 4).await;
    instances(&world, 4).await;
    scale(&world, 2).await;
    // Those that do not run yet go first.
    let names = |all: &[VirtualMachineInstance]| all.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    assert_eq!(names(&instances(&world, 2).await), names(&first));
    status(&world, |status| status.replicas == Some(2)).await;
    world.writes();
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.writes(), Vec::<String>::new(), "at rest nobody writes");
}

#[tokio::test(start_paused = true)]
async fn what_has_ended_is_replaced_unless_the_set_is_paused() {
    let world = World::start().await;
    create(&world, 1).await;
    let first = instances(&world, 1).await.remove(0).name_any();
    world.boot(&first).await;
    change(&world, &json!({ "spec": { "paused": true } })).await;
    let shown = status(&world, |status| status.conditions.is_some()).await;
    assert_eq!(shown.conditions.unwrap()[0].type_, "ReplicaPaused");
    world.phase(&first, "Succeeded").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.vmis().list(&ListParams::default()).await.unwrap().items.len(), 1);
    change(&world, &json!({ "spec": { "paused": false } })).await;
    let second = instances(&world, 1).await.remove(0).name_any();
    assert_ne!(first, second);
    until("the end of the first", async || {
        world.vmis().get_opt(&first).await.unwrap().is_none_or(|vmi| vmi.is_marked_for_deletion()).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_matches_is_adopted_and_one_that_no_longer_matches_is_let_go() {
    let world = World::start().await;
    let metadata = json!({ "name": "stray", "labels": { "app": "farm" } });
    let vmi = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata, "spec": spec() });
    world.vmis().create(&PostParams::default(), &serde_json::from_value(vmi).unwrap()).await.unwrap();
    create(&world, 1).await;
    let owned = |vmi: &VirtualMachineInstance| vmi.owner_references().iter().any(|owner| owner.name == "farm");
    world.vmi("stray", owned).await;
    status(&world, |status| status.replicas == Some(1)).await;
    assert_eq!(instances(&world, 1).await[0].name_any(), "stray");
    world.patch_vmi("stray", &json!({ "metadata": { "labels": { "app": "own" } } })).await;
    world.vmi("stray", |vmi| !owned(vmi)).await;
    instances(&world, 2).await;
}

/// A quota, or admission, that refuses an instance is asked for one at a time, more and more seldom.
#[tokio::test(start_paused = true)]
async fn a_refused_template_is_shown_and_not_asked_for_again_and_again() {
    let world = World::start_with(|client| {
        let refusing = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let refused =
                request.method() == http::Method::POST && request.uri().path().ends_with("/virtualmachineinstances");
            let client = client.clone();
            async move {
                if !refused {
                    return client.send(request).await;
                }
                let status = json!({ "code": 403, "reason": "Forbidden", "message": "no room for more" });
                let body = kube::client::Body::from(status.to_string().into_bytes());
                Ok(http::Response::builder().status(403).body(body).unwrap())
            }
        });
        Client::new(refusing, "default")
    })
    .await;
    create(&world, 100).await;
    let shown = status(&world, |status| status.conditions.is_some()).await;
    let condition = &shown.conditions.unwrap()[0];
    assert_eq!((condition.type_.as_str(), condition.reason.as_deref()), ("ReplicaFailure", Some("FailedCreate")));
    assert_eq!(condition.message.as_deref(), Some("no room for more"));
    let since = condition.last_transition_time.clone();
    sleep(Duration::from_secs(300)).await;
    let shown = status(&world, |_| true).await;
    assert_eq!(shown.conditions.unwrap()[0].last_transition_time, since);
    // Nobody waits for what was never wanted.
    scale(&world, 0).await;
    status(&world, |status| status.conditions.is_none() && status.replicas == Some(0)).await;
}

#[tokio::test(start_paused = true)]
async fn budgets_of_instances_are_removed_and_those_of_users_stay() {
    let world = World::start().await;
    create(&world, 1).await;
    let vmi = instances(&world, 1).await.remove(0);
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(world.client.clone());
    for (name, owners) in [("old", json!([api::owner::controller_reference(&vmi)])), ("own", Value::Null)] {
        let budget = json!({
            "metadata": { "name": name, "ownerReferences": owners },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "a": "b" } } },
        });
        budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    }
    until("the end of the old budget", async || budgets.get_opt("old").await.unwrap().is_none().then_some(())).await;
    assert!(budgets.get_opt("own").await.unwrap().is_some());
}
