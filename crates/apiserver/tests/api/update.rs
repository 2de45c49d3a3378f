use serde_json::{Value, json};

use crate::support::{MAPS, PODS, map, pod, server};

#[tokio::test]
async fn a_stale_revision_is_a_conflict() {
    let server = server().await;
    let path = format!("{MAPS}/a");
    let mut one = server.post(MAPS, &map("a")).await.expect(201);
    let stale = one.clone();
    one["data"]["x"] = "2".into();
    let two = server.put(&path, &one).await.expect(200);
    assert_ne!(two["metadata"]["resourceVersion"], one["metadata"]["resourceVersion"]);
    let refused = server.put(&path, &stale).await.expect(409);
    assert_eq!(refused["reason"], "Conflict");
    assert!(refused["message"].as_str().unwrap().contains("the object has been modified"), "{refused}");
    // Without a revision the last writer wins.
    server.put(&path, &map("a")).await.expect(200);
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_none() {
    let server = server().await;
    let made = server.post(MAPS, &map("a")).await.expect(201);
    assert_eq!(server.put(&format!("{MAPS}/a"), &made).await.expect(200), made);
    assert_eq!(server.merge(&format!("{MAPS}/a"), &json!({ "data": { "x": "1" } })).await.expect(200), made);
}

#[tokio::test]
async fn what_never_changes_cannot_be_changed() {
    let server = server().await;
    let made = server.post(MAPS, &map("a")).await.expect(201);
    let put = async |change: fn(&mut Value)| {
        let mut new = made.clone();
        change(&mut new);
        server.put(&format!("{MAPS}/a"), &new).await
    };
    put(|new| new["metadata"]["name"] = "b".into()).await.expect(400);
    put(|new| new["metadata"]["namespace"] = "b".into()).await.expect(400);
    put(|new| new["kind"] = "Secret".into()).await.expect(400);
    let other = put(|new| new["metadata"]["uid"] = "other".into()).await.expect(409);
    assert!(other["message"].as_str().unwrap().contains("Precondition failed: UID in precondition: other"), "{other}");
    let kept = put(|new| new["metadata"]["creationTimestamp"] = "2000-01-01T00:00:00Z".into()).await.expect(200);
    assert_eq!(kept["metadata"]["creationTimestamp"], made["metadata"]["creationTimestamp"]);
}

#[tokio::test]
async fn only_what_is_missing_and_meant_to_is_created_by_put() {
    let server = server().await;
    server.put(&format!("{MAPS}/a"), &map("a")).await.expect(404);
    let lease = json!({ "metadata": { "name": "l" }, "spec": { "holderIdentity": "me" } });
    server.put("/apis/coordination.k8s.io/v1/namespaces/default/leases/l", &lease).await.expect(201);
}

#[tokio::test]
async fn a_status_is_written_through_its_subresource_alone() {
    let server = server().await;
    let made = server.post(PODS, &pod("p", "n")).await.expect(201);
    assert_eq!(made["status"]["phase"], "Pending");
    let path = format!("{PODS}/p");
    let mut new = made.clone();
    new["status"]["phase"] = "Running".into();
    assert_eq!(server.put(&path, &new).await.expect(200)["status"]["phase"], "Pending");
    new["spec"]["containers"][0]["image"] = "other:2".into();
    let changed = server.put(&format!("{path}/status"), &new).await.expect(200);
    assert_eq!(changed["status"]["phase"], "Running");
    assert_eq!(changed["spec"], made["spec"]);
    assert_eq!(changed["metadata"]["generation"], 1);
    let changed = server.merge(&path, &json!({ "spec": { "containers": [] } })).await.expect(422);
    assert!(changed["message"].as_str().unwrap().contains("pod updates may not change fields"), "{changed}");
}

#[tokio::test]
async fn a_generation_counts_changes_of_the_spec() {
    let server = server().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let given = json!({
        "metadata": { "name": "d" },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
        },
    });
    let made = server.post(deployments, &given).await.expect(201);
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
    assert_eq!(made["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"], "Always");
    let path = format!("{deployments}/d");
    let labelled = server.merge(&path, &json!({ "metadata": { "labels": { "x": "y" } } })).await.expect(200);
    assert_eq!(labelled["metadata"]["generation"], 1);
    let scaled = server.merge(&path, &json!({ "spec": { "replicas": 3 } })).await.expect(200);
    assert_eq!(scaled["metadata"]["generation"], 2);
    let refused =
        server.merge(&path, &json!({ "spec": { "selector": { "matchLabels": { "a": "c" } } } })).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.selector");
}
