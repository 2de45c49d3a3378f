//! The disruption controller on the embedded API server, with replica sets and hollow nodes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use kube_controllers::disruption::controller as disruption;
use kube_controllers::replicaset::controller as replicaset;
use node::hollow::{Behaviour, HollowNodes};
use serde_json::{Value, json};
use testkit::world::{self, World};
use tokio::time::sleep;

async fn start() -> Client {
    let world = World::start().await;
    let (budgets, sets, hollow) =
        (world.kubernetes("disruption-controller"), world.kubernetes("replicaset-controller"), world.nodes());
    // Long enough for somebody to see that a pod is missing.
    let behaviour = Behaviour { start_delay: Duration::from_secs(1), ..Behaviour::default() };
    let nodes = HollowNodes::new(&hollow, ["one".to_owned()], behaviour);
    tokio::spawn(disruption::start(&budgets).run);
    tokio::spawn(replicaset::start(&sets, 3).run);
    tokio::spawn(async move { nodes.run().await });
    world::watch(&budgets);
    world::watch(&sets);
    world::watch(&hollow);
    world.client()
}

async fn settle() {
    sleep(Duration::from_secs(4)).await;
}

async fn make_set(client: &Client, replicas: i32) {
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
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
}

async fn make_budget(client: &Client, limit: Value) -> Api<PodDisruptionBudget> {
    let mut spec = json!({ "selector": { "matchLabels": { "app": "web" } } });
    spec.as_object_mut().unwrap().extend(limit.as_object().unwrap().clone());
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client.clone());
    let budget = serde_json::from_value(json!({ "metadata": { "name": "web" }, "spec": spec })).unwrap();
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    budgets
}

async fn status(budgets: &Api<PodDisruptionBudget>) -> PodDisruptionBudgetStatus {
    budgets.get("web").await.unwrap().status.unwrap_or_default()
}

fn figures(status: &PodDisruptionBudgetStatus) -> (i32, i32, i32, i32) {
    let number = |field: Option<i32>| field.unwrap_or(0);
    let (expected, desired) = (number(status.expected_pods), number(status.desired_healthy));
    (expected, desired, number(status.current_healthy), number(status.disruptions_allowed))
}

async fn names(pods: &Api<Pod>) -> Vec<String> {
    let list = pods.list(&ListParams::default()).await.unwrap();
    list.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).map(ResourceExt::name_any).collect()
}

/// The number of pods that are ready and stay.
async fn healthy(pods: &Api<Pod>) -> usize {
    let list = pods.list(&ListParams::default()).await.unwrap();
    let is_ready = |pod: &&Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        pod.metadata.deletion_timestamp.is_none()
            && conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    list.items.iter().filter(is_ready).count()
}

/// What `kubectl drain` lives by: one pod at a time, and the next one when the first is replaced.
#[tokio::test(start_paused = true)]
async fn pods_leave_as_fast_as_their_replacements_are_ready() {
    let client = start().await;
    make_set(&client, 3).await;
    let budgets = make_budget(&client, json!({ "maxUnavailable": 1 })).await;
    settle().await;
    let first = status(&budgets).await;
    assert_eq!((figures(&first), first.observed_generation), ((3, 2, 3, 1), Some(1)));
    let pods: Api<Pod> = Api::default_namespaced(client);
    let leaving = names(&pods).await;
    pods.evict(&leaving[0], &EvictParams::default()).await.unwrap();
    let mut refusals = 0;
    loop {
        let healthy = healthy(&pods).await;
        match pods.evict(&leaving[1], &EvictParams::default()).await {
            Ok(_) => {
                assert_eq!(healthy, 3, "only when the replacement is ready");
                break;
            }
            Err(kube::Error::Api(status)) if status.code == 429 => refusals += 1,
            Err(error) => panic!("{error}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
    assert!(refusals > 0, "nobody had to wait");
    sleep(Duration::from_secs(60)).await;
    let rested = budgets.get("web").await.unwrap();
    assert_eq!(rested.status.as_ref().unwrap().disrupted_pods, None);
    // At rest nothing is written.
    sleep(Duration::from_secs(600)).await;
    assert_eq!(budgets.get("web").await.unwrap().resource_version(), rested.resource_version());
}

#[tokio::test(start_paused = true)]
async fn a_scale_is_heard_of_before_any_pod_changes() {
    let client = start().await;
    make_set(&client, 2).await;
    let budgets = make_budget(&client, json!({ "minAvailable": "50%" })).await;
    settle().await;
    assert_eq!(figures(&status(&budgets).await), (2, 1, 2, 1));
    let sets: Api<ReplicaSet> = Api::default_namespaced(client);
    let scale = json!({ "spec": { "replicas": 4 } });
    sets.patch_scale("web", &PatchParams::default(), &Patch::Merge(&scale)).await.unwrap();
    settle().await;
    assert_eq!(figures(&status(&budgets).await), (4, 2, 4, 2));
}

/// An eviction that was granted and led to nothing is forgotten after two minutes, and so is what the pod says.
#[tokio::test(start_paused = true)]
async fn what_was_granted_and_not_taken_is_given_back() {
    let client = start().await;
    make_set(&client, 2).await;
    let budgets = make_budget(&client, json!({ "minAvailable": 1 })).await;
    settle().await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let name = names(&pods).await.remove(0);
    let now = jiff::Timestamp::UNIX_EPOCH + Duration::from_secs(4);
    let granted = json!({ "status": { "disruptionsAllowed": 0, "disruptedPods": { name.as_str(): now.to_string() } } });
    budgets.patch_status("web", &PatchParams::default(), &Patch::Merge(&granted)).await.unwrap();
    let target = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "m",
        "lastTransitionTime": now.to_string(),
    });
    let patch = json!({ "status": { "conditions": [target] } });
    pods.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    settle().await;
    assert_eq!(figures(&status(&budgets).await), (2, 1, 1, 0));
    sleep(Duration::from_secs(130)).await;
    let after = status(&budgets).await;
    assert_eq!((figures(&after), after.disrupted_pods), ((2, 1, 2, 1), None));
    let conditions = pods.get(&name).await.unwrap().status.unwrap().conditions.unwrap();
    let target = conditions.iter().find(|one| one.type_ == "DisruptionTarget").unwrap();
    assert_eq!((target.status.as_str(), target.reason.as_deref()), ("False", None));
    let events = Api::<Event>::default_namespaced(client).list(&ListParams::default()).await.unwrap();
    assert!(events.items.iter().any(|event| event.reason.as_deref() == Some("NotDeleted")));
}

/// A kind of the user's own that has a scale is asked for it; one that has none is told of.
#[tokio::test(start_paused = true)]
async fn a_kind_of_the_users_own_is_asked_for_its_scale() {
    let client = start().await;
    for (plural, kind, subresources) in [
        (
            "fleets",
            "Fleet",
            json!({ "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" } }),
        ),
        ("rafts", "Raft", json!({})),
    ] {
        let definition = json!({
            "metadata": { "name": format!("{plural}.example.com") },
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": { "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") },
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": subresources,
                    "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
                }],
            },
        });
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    }
    settle().await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let budgets = make_budget(&client, json!({ "maxUnavailable": "50%" })).await;
    let mut expected = [(4, 2, 1, 0), (4, 2, 1, 0)].into_iter();
    for (kind, reason) in [("Fleet", "InsufficientPods"), ("Raft", "SyncFailed")] {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", kind));
        let owners: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &resource);
        let owner = DynamicObject::new("owner", &resource).data(json!({ "spec": { "replicas": 4 } }));
        let owner = owners.create(&PostParams::default(), &owner).await.unwrap();
        let reference = json!({
            "apiVersion": "example.com/v1", "kind": kind, "name": "owner", "uid": owner.uid(), "controller": true,
        });
        let pod = json!({
            "metadata": { "name": kind.to_lowercase(), "labels": { "app": "web" }, "ownerReferences": [reference] },
            "spec": { "nodeName": "one", "containers": [{ "name": "c", "image": "i" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        settle().await;
        let told = status(&budgets).await;
        assert_eq!(figures(&told), expected.next().unwrap(), "{kind}");
        let condition = told.conditions.unwrap().remove(0);
        assert_eq!(condition.reason, reason, "{}", condition.message);
    }
    let message = status(&budgets).await.conditions.unwrap().remove(0).message;
    assert_eq!(message, "rafts.example.com does not implement the scale subresource");
}
