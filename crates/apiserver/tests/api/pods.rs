use serde_json::{Value, json};

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

fn budget(allowed: i64) -> Value {
    json!({
        "metadata": { "name": "b" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
        "status": { "disruptionsAllowed": allowed },
    })
}

#[tokio::test]
async fn an_eviction_asks_the_budget() {
    let server = server().await;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let mut given = pod("p", "n");
    given["metadata"]["labels"] = json!({ "app": "web" });
    server.post(PODS, &given).await.expect(201);
    server.merge(&format!("{PODS}/p/status"), &json!({ "status": { "phase": "Running" } })).await.expect(200);
    server.post(budgets, &budget(0)).await.expect(201);
    let eviction = json!({ "metadata": { "name": "p" }, "deleteOptions": { "gracePeriodSeconds": 3 } });
    let refused = server.post(&format!("{PODS}/p/eviction"), &eviction).await.expect(429);
    assert_eq!(refused["details"]["causes"][0]["reason"], "DisruptionBudget");
    server.merge(&format!("{budgets}/b/status"), &budget(1)).await.expect(200);
    server.post(&format!("{PODS}/p/eviction"), &eviction).await.expect(201);
    assert_eq!(server.get(&format!("{budgets}/b")).await.expect(200)["status"]["disruptionsAllowed"], 0);
    let marked = server.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 3);
}
