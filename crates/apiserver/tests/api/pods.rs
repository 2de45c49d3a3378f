use serde_json::json;

use crate::support::{PODS, pod, server};

#[tokio::test]
async fn a_running_pod_has_its_grace_period() {
    let server = server().await;
    let path = format!("{PODS}/p");
    server.post(PODS, &pod("p", "n")).await.expect(201);
    let marked = server.delete(&path, &json!({})).await.expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(marked["metadata"]["generation"], 2);
    let shorter = server.delete(&path, &json!({ "gracePeriodSeconds": 5 })).await.expect(200);
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let longer = server.delete(&path, &json!({ "gracePeriodSeconds": 60 })).await.expect(200);
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 5);
    server.delete(&path, &json!({ "gracePeriodSeconds": 0 })).await.expect(200);
    server.get(&path).await.expect(404);
}

#[tokio::test]
async fn a_pod_that_nobody_runs_goes_at_once() {
    let server = server().await;
    server.post(PODS, &pod("p", "")).await.expect(201);
    let gone = server.delete(&format!("{PODS}/p"), &json!({})).await.expect(200);
    assert_eq!(gone["kind"], "Pod", "pods are shown as they go");
    server.get(&format!("{PODS}/p")).await.expect(404);
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let server = server().await;
    server.post(PODS, &pod("p", "")).await.expect(201);
    let binding = |node: &str| json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "p" }, "target": { "kind": "Node", "name": node } });
    server.post(&format!("{PODS}/p/binding"), &binding("")).await.expect(422);
    assert_eq!(server.post(&format!("{PODS}/p/binding"), &binding("one")).await.expect(201)["status"], "Success");
    let bound = server.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(bound["spec"]["nodeName"], "one");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let refused = server.post(&format!("{PODS}/p/binding"), &binding("two")).await.expect(409);
    assert!(refused["message"].as_str().unwrap().contains("already assigned to node \"one\""), "{refused}");
}
