use serde_json::{Value, json};

use crate::support::{MAPS, Server, labelled, map, server};

async fn with_finalizer(server: &Server) -> Value {
    let mut given = map("a");
    given["metadata"]["finalizers"] = json!(["example.com/wait"]);
    server.post(MAPS, &given).await.expect(201)
}

#[tokio::test]
async fn the_answer_names_what_is_gone() {
    let server = server().await;
    let made = server.post(MAPS, &map("a")).await.expect(201);
    let status = server.delete(&format!("{MAPS}/a"), &json!({})).await.expect(200);
    assert_eq!(status["status"], "Success");
    assert_eq!(status["details"], json!({ "name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"] }));
    assert_eq!(server.delete(&format!("{MAPS}/a"), &json!({})).await.expect(404)["reason"], "NotFound");
}

#[tokio::test]
async fn a_finalizer_holds_until_it_is_taken_away() {
    let server = server().await;
    with_finalizer(&server).await;
    let path = format!("{MAPS}/a");
    let marked = server.delete(&path, &json!({})).await.expect(200);
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(server.delete(&path, &json!({})).await.expect(200), marked, "a second deletion changes nothing");
    let refused = server
        .merge(&path, &json!({ "metadata": { "finalizers": ["example.com/wait", "example.com/more"] } }))
        .await
        .expect(422);
    assert!(refused["message"].as_str().unwrap().contains("no new finalizers can be added"), "{refused}");
    let mut frames = server.watch(&format!("{MAPS}?watch=1")).await;
    server.merge(&path, &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    assert_eq!(frames.names(2).await, ["ADDED a", "DELETED a"]);
    server.get(&path).await.expect(404);
}

#[tokio::test]
async fn policies_leave_word_for_whoever_collects() {
    let server = server().await;
    for (policy, finalizers, code) in
        [("Foreground", json!(["foregroundDeletion"]), 200), ("Orphan", json!(["orphan"]), 200)]
    {
        let path = format!("{MAPS}/{}", policy.to_lowercase());
        server.post(MAPS, &map(&policy.to_lowercase())).await.expect(201);
        let marked = server.delete(&path, &json!({ "propagationPolicy": policy })).await.expect(code);
        assert_eq!(marked["metadata"]["finalizers"], finalizers);
    }
    server.post(MAPS, &map("b")).await.expect(201);
    let path = format!("{MAPS}/b");
    server.delete(&path, &json!({ "propagationPolicy": "Sideways" })).await.expect(422);
    server.delete(&path, &json!({ "propagationPolicy": "Orphan", "orphanDependents": true })).await.expect(422);
    assert_eq!(
        server.delete(&path, &json!({ "propagationPolicy": "Background" })).await.expect(200)["status"],
        "Success"
    );
}

#[tokio::test]
async fn preconditions_are_conditions() {
    let server = server().await;
    let made = server.post(MAPS, &map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    let wrong = server.delete(&path, &json!({ "preconditions": { "uid": "other" } })).await.expect(409);
    assert!(
        wrong["message"].as_str().unwrap().contains("the UID in the precondition (other) does not match"),
        "{wrong}"
    );
    server.delete(&path, &json!({ "preconditions": { "resourceVersion": "1" } })).await.expect(409);
    let right = json!({ "preconditions": { "uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"] } });
    server.delete(&path, &right).await.expect(200);
}

#[tokio::test]
async fn a_collection_is_deleted_by_its_selector() {
    let server = server().await;
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
        server.post(MAPS, &labelled(name, &json!({ "app": app }))).await.expect(201);
    }
    let gone = server.delete(&format!("{MAPS}?labelSelector=app%3Dweb"), &json!({})).await.expect(200);
    assert_eq!(gone["kind"], "ConfigMapList");
    assert_eq!(gone["items"].as_array().unwrap().len(), 2);
    let left = server.get(MAPS).await.expect(200);
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
    server.delete("/api/v1/configmaps", &json!({})).await.expect(405);
}

#[tokio::test]
async fn a_dry_run_deletes_nothing() {
    let server = server().await;
    server.post(MAPS, &map("a")).await.expect(201);
    server.delete(&format!("{MAPS}/a"), &json!({ "dryRun": ["All"] })).await.expect(200);
    server.get(&format!("{MAPS}/a")).await.expect(200);
}

/// The finalizer helper of kube: added before the work, taken away after the clean-up.
#[tokio::test]
async fn the_finalizer_of_kube_comes_and_goes() {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::controller::Action;
    use kube::runtime::finalizer::{Event, finalizer};
    let server = server().await;
    server.post(MAPS, &map("a")).await.expect(201);
    let api = kube::Api::<ConfigMap>::default_namespaced(server.client.clone());
    let mut seen = Vec::new();
    for step in 0..3 {
        let object = std::sync::Arc::new(api.get("a").await.unwrap());
        let reconcile = async |event| {
            seen.push(match event {
                Event::Apply(_) => "apply",
                Event::Cleanup(_) => "cleanup",
            });
            Ok::<_, std::io::Error>(Action::await_change())
        };
        finalizer(&api, "example.com/kube", object, reconcile).await.unwrap();
        if step == 1 {
            server.delete(&format!("{MAPS}/a"), &json!({})).await.expect(200);
        }
    }
    assert_eq!(seen, ["apply", "cleanup"]);
    server.get(&format!("{MAPS}/a")).await.expect(404);
}
