use serde_json::json;

use crate::support::{map, server};

#[tokio::test]
async fn every_cluster_starts_with_four() {
    let server = server().await;
    let list = server.get("/api/v1/namespaces").await.expect(200);
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|one| one["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    assert_eq!(list["items"][0]["metadata"]["labels"]["kubernetes.io/metadata.name"], "default");
}

#[tokio::test]
async fn nothing_is_made_in_one_that_is_not_there() {
    let server = server().await;
    let refused = server.post("/api/v1/namespaces/gone/configmaps", &map("a")).await.expect(404);
    assert_eq!(refused["message"], "namespaces \"gone\" not found");
}

#[tokio::test]
async fn one_that_goes_takes_nothing_new_and_waits_to_be_emptied() {
    let server = server().await;
    let path = "/api/v1/namespaces/n";
    let made = server.post("/api/v1/namespaces", &json!({ "metadata": { "name": "n" } })).await.expect(201);
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    server.post(&format!("{path}/configmaps"), &map("a")).await.expect(201);
    let marked = server.delete(path, &json!({})).await.expect(200);
    assert_eq!(marked["status"]["phase"], "Terminating");
    assert_eq!(server.delete(path, &json!({})).await.expect(200), marked);
    let refused = server.post(&format!("{path}/configmaps"), &map("b")).await.expect(403);
    assert_eq!(refused["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert!(refused["message"].as_str().unwrap().contains("because it is being terminated"), "{refused}");
    // Finalizers of the spec go by their own subresource alone.
    let kept = server.merge(path, &json!({ "spec": { "finalizers": [] } })).await.expect(200);
    assert_eq!(kept["spec"]["finalizers"], json!(["kubernetes"]));
    let mut last = server.get(path).await.expect(200);
    last["spec"]["finalizers"] = json!([]);
    server.put(&format!("{path}/finalize"), &last).await.expect(200);
    server.get(path).await.expect(404);
}

#[tokio::test]
async fn those_that_a_cluster_needs_stay() {
    let server = server().await;
    let refused = server.delete("/api/v1/namespaces/default", &json!({})).await.expect(403);
    assert_eq!(refused["message"], "namespaces \"default\" is forbidden: this namespace may not be deleted");
}
