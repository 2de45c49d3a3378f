//! The namespace controller on the embedded API server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kube_controllers::namespace::NamespaceController;
use serde_json::json;
use testkit::world::{self, World};

async fn start() -> Client {
    let world = World::start().await;
    let context = world.kubernetes("namespace-controller");
    let controller = NamespaceController::new(&context);
    tokio::spawn(async move { controller.run(2).await });
    world::watch(&context);
    world.client()
}

async fn make<T>(client: &Client, namespace: &str, object: serde_json::Value) -> T
where
    T: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    T: serde::de::DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
{
    let object: T = serde_json::from_value(object).unwrap();
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &object).await.unwrap()
}

/// How often a kind was listed.
async fn lists_of(client: &Client, resource: &str) -> usize {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    let of_it = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains("verb=\"LIST\"")
            && line.contains(&format!("resource=\"{resource}\""))
    };
    text.lines().filter(of_it).map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}

async fn gone(namespaces: &Api<Namespace>, name: &str) -> bool {
    for _ in 0..30 {
        if namespaces.get_opt(name).await.unwrap().is_none() {
            return true;
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    false
}

#[tokio::test(start_paused = true)]
async fn a_deleted_namespace_goes_with_all_that_is_in_it() {
    let client = start().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": "n" } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    make::<ConfigMap>(&client, "n", json!({ "metadata": { "name": "a" } })).await;
    make::<Secret>(&client, "n", json!({ "metadata": { "name": "b" } })).await;
    make::<Pod>(&client, "n", json!({ "metadata": { "name": "p" }, "spec": { "containers": [] } })).await;
    make::<ConfigMap>(&client, "default", json!({ "metadata": { "name": "stays" } })).await;
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    assert!(gone(&namespaces, "n").await);
    assert!(
        Api::<ConfigMap>::namespaced(client.clone(), "n").list(&Default::default()).await.unwrap().items.is_empty()
    );
    Api::<ConfigMap>::namespaced(client, "default").get("stays").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_holds_it_is_told() {
    let client = start().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": "n" } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    make::<ConfigMap>(&client, "n", json!({ "metadata": { "name": "a", "finalizers": ["example.com/hold"] } })).await;
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    assert!(!gone(&namespaces, "n").await);
    // All that time only kinds of which something is left were looked at.
    let (held, others) = (lists_of(&client, "configmaps").await, lists_of(&client, "secrets").await);
    assert!(held > 10 && others < 3, "{held} and {others}");
    let conditions = namespaces.get("n").await.unwrap().status.unwrap().conditions.unwrap();
    let text = conditions.iter().filter_map(|one| one.message.clone()).collect::<Vec<_>>().join("; ");
    assert!(text.contains("configmaps. has 1 resource instances"), "{text}");
    assert!(text.contains("example.com/hold in 1 resource instances"), "{text}");
    let free = json!({ "metadata": { "finalizers": null } });
    let maps = Api::<ConfigMap>::namespaced(client, "n");
    maps.patch("a", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    assert!(gone(&namespaces, "n").await);
}

/// As long as a pod runs, what it reads stays; and the namespace says what holds the pod.
#[tokio::test(start_paused = true)]
async fn pods_go_first_and_what_holds_them_is_told() {
    let client = start().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": "n" } })).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let held = json!({ "name": "p", "finalizers": ["example.com/hold"] });
    make::<Pod>(&client, "n", json!({ "metadata": held, "spec": { "containers": [{ "name": "c", "image": "i" }] } }))
        .await;
    make::<ConfigMap>(&client, "n", json!({ "metadata": { "name": "a" } })).await;
    namespaces.delete("n", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "n");
    assert!(maps.get("a").await.unwrap().metadata.deletion_timestamp.is_none());
    let status = namespaces.get("n").await.unwrap().status.unwrap();
    let conditions = status.conditions.unwrap();
    let truth = |kind: &str| conditions.iter().find(|one| one.type_ == kind).map(|one| one.status.as_str());
    assert_eq!(truth("NamespaceDeletionContentFailure"), Some("False"));
    assert_eq!(truth("NamespaceFinalizersRemaining"), Some("True"));
    let pods: Api<Pod> = Api::namespaced(client.clone(), "n");
    let released = json!({ "metadata": { "finalizers": null } });
    pods.patch("p", &PatchParams::default(), &Patch::Merge(&released)).await.unwrap();
    assert!(gone(&namespaces, "n").await);
}
