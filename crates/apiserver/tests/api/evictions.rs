//! Evictions: what a disruption budget allows, and what it says when it does not.

use std::sync::{Arc, Mutex};

use apiserver::{Admission, ApiServer, Attributes, Place, Review, Status};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Answer, PODS, Server, pod, server};

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// A server with running pods, ready or not, and a budget with this status.
async fn with(pods: &[(&str, bool)], status: &Value) -> Server {
    let server = server().await;
    for (name, ready) in pods {
        let mut given = pod(name, "n");
        given["metadata"]["labels"] = json!({ "app": "web" });
        server.post(PODS, &given).await.expect(201);
        run(&server, name, *ready).await;
    }
    let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } });
    server.post(BUDGETS, &json!({ "metadata": { "name": "b" }, "spec": spec })).await.expect(201);
    server.merge(&format!("{BUDGETS}/b/status"), &json!({ "status": status })).await.expect(200);
    server
}

async fn run(server: &Server, name: &str, ready: bool) {
    let ready = json!({ "type": "Ready", "status": if ready { "True" } else { "False" } });
    let running = json!({ "status": { "phase": "Running", "conditions": [ready] } });
    server.merge(&format!("{PODS}/{name}/status"), &running).await.expect(200);
}

async fn evict(server: &Server, name: &str, options: Value) -> Answer {
    let eviction = json!({ "metadata": { "name": name }, "deleteOptions": options });
    server.post(&format!("{PODS}/{name}/eviction"), &eviction).await
}

async fn budget(server: &Server) -> Value {
    server.get(&format!("{BUDGETS}/b")).await.expect(200)["status"].clone()
}

fn cause(refused: &Value) -> &str {
    assert_eq!(refused["details"]["causes"][0]["reason"], "DisruptionBudget", "{refused}");
    refused["details"]["causes"][0]["message"].as_str().unwrap()
}

#[tokio::test]
async fn an_eviction_takes_from_the_budget_and_says_so_in_the_pod() {
    let status = json!({ "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "observedGeneration": 1 });
    let server = with(&[("p", true), ("q", true)], &status).await;
    evict(&server, "p", json!({ "gracePeriodSeconds": 3 })).await.expect(201);
    let after = budget(&server).await;
    assert_eq!(after["disruptionsAllowed"], 0);
    assert!(after["disruptedPods"]["p"].is_string(), "{after}");
    let condition = &after["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("InsufficientPods")));
    let marked = server.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 3);
    let conditions = marked["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|one| one["type"] == "DisruptionTarget").unwrap();
    assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!("EvictionByEvictionAPI")));
    // The second one is refused, and nothing happens to its pod.
    let before = server.get(&format!("{PODS}/q")).await.expect(200);
    let answer = evict(&server, "q", json!({})).await;
    assert_eq!(answer.headers.get("retry-after"), None);
    let refused = answer.expect(429);
    assert_eq!(refused["message"], "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(server.get(&format!("{PODS}/q")).await.expect(200), before);
}

#[tokio::test]
async fn a_refusal_says_what_the_budget_lacks() {
    let short = json!({ "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "observedGeneration": 1 });
    let server = with(&[("p", true)], &short).await;
    let refused = evict(&server, "p", json!({})).await.expect(429);
    assert_eq!(cause(&refused), "The disruption budget b needs 1 healthy pods and has 1 currently");
    let condition = |reason: &str, message: &str| {
        json!({
            "type": "DisruptionAllowed", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let failed = json!({ "status": { "conditions": [condition("SyncFailed", "found no controllers for pod \"p\"")] } });
    server.merge(&format!("{BUDGETS}/b/status"), &failed).await.expect(200);
    let refused = evict(&server, "p", json!({})).await.expect(429);
    assert!(cause(&refused).ends_with("because it failed sync: found no controllers for pod \"p\""), "{refused}");
    let healthy = json!({ "status": { "currentHealthy": 3, "conditions": [] } });
    server.merge(&format!("{BUDGETS}/b/status"), &healthy).await.expect(200);
    let refused = evict(&server, "p", json!({})).await.expect(429);
    assert_eq!(cause(&refused), "The disruption budget b does not allow evicting pods currently");
}

/// What the controller has not looked at yet is not to be relied on: the client may ask again soon.
#[tokio::test]
async fn a_budget_that_is_behind_its_specification_allows_nothing() {
    let status = json!({ "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "observedGeneration": 1 });
    let server = with(&[("p", true)], &status).await;
    server.merge(&format!("{BUDGETS}/b"), &json!({ "spec": { "minAvailable": 2 } })).await.expect(200);
    let answer = evict(&server, "p", json!({})).await;
    assert_eq!(answer.headers["retry-after"], "10");
    let refused = answer.expect(429);
    assert_eq!(cause(&refused), "The disruption budget b is still being processed by the server.");
    assert_eq!(refused["details"]["retryAfterSeconds"], 10);
}

#[tokio::test]
async fn a_pod_that_is_pending_or_has_ended_asks_no_budget() {
    let none = json!({ "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1, "observedGeneration": 1 });
    let server = with(&[("pending", false), ("failed", false), ("going", true)], &none).await;
    for (name, phase) in [("pending", "Pending"), ("failed", "Failed")] {
        server.merge(&format!("{PODS}/{name}/status"), &json!({ "status": { "phase": phase } })).await.expect(200);
    }
    server.delete(&format!("{PODS}/going"), &json!({})).await.expect(200);
    let before = budget(&server).await;
    for name in ["pending", "failed", "going"] {
        evict(&server, name, json!({})).await.expect(201);
    }
    assert_eq!(budget(&server).await, before);
}

#[tokio::test]
async fn an_unready_pod_goes_where_it_does_not_count() {
    let healthy = json!({ "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "observedGeneration": 1 });
    let server = with(&[("sick", false), ("ill", false), ("fine", true)], &healthy).await;
    let before = budget(&server).await;
    evict(&server, "sick", json!({})).await.expect(201);
    assert_eq!(budget(&server).await, before, "it counted for nothing");
    evict(&server, "fine", json!({})).await.expect(429);
    // Below what must be healthy even an unready pod stays, unless the budget says otherwise.
    let short = json!({ "status": { "currentHealthy": 0 } });
    server.merge(&format!("{BUDGETS}/b/status"), &short).await.expect(200);
    evict(&server, "ill", json!({})).await.expect(429);
    let always = json!({ "spec": { "unhealthyPodEvictionPolicy": "AlwaysAllow" } });
    server.merge(&format!("{BUDGETS}/b"), &always).await.expect(200);
    evict(&server, "ill", json!({})).await.expect(201);
}

#[tokio::test]
async fn two_budgets_are_one_too_many() {
    let status = json!({ "disruptionsAllowed": 1, "observedGeneration": 1 });
    let server = with(&[("p", true)], &status).await;
    let spec = json!({ "maxUnavailable": 1, "selector": {} });
    server.post(BUDGETS, &json!({ "metadata": { "name": "c" }, "spec": spec })).await.expect(201);
    let refused = evict(&server, "p", json!({})).await.expect(500);
    assert!(refused["message"].as_str().unwrap().contains("more than one PodDisruptionBudget"), "{refused}");
}

#[tokio::test]
async fn a_budget_with_a_negative_number_or_too_many_notes_is_forbidden_to_take_from() {
    let server = with(&[("p", true)], &json!({ "disruptionsAllowed": -1, "observedGeneration": 1 })).await;
    let refused = evict(&server, "p", json!({})).await.expect(403);
    assert!(cause(&refused).ends_with("pdb disruptions allowed is negative"), "{refused}");
    let notes: Value = (0..2001).map(|number| (format!("p{number}"), json!("2026-01-01T00:00:00Z"))).collect();
    let many = json!({ "status": { "disruptionsAllowed": 1, "disruptedPods": notes } });
    server.merge(&format!("{BUDGETS}/b/status"), &many).await.expect(200);
    let refused = evict(&server, "p", json!({})).await.expect(403);
    assert!(cause(&refused).ends_with("too many pending evictions not confirmed by PDB controller"), "{refused}");
}

/// However many ask at the same time: never more than the budget allows.
#[tokio::test]
async fn a_budget_is_not_overdrawn_by_many_at_once() {
    let names: Vec<String> = (0..12).map(|number| format!("p{number}")).collect();
    let pods: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), true)).collect();
    let status = json!({ "disruptionsAllowed": 5, "currentHealthy": 12, "desiredHealthy": 7, "observedGeneration": 1 });
    let server = with(&pods, &status).await;
    let answers = join_all(names.iter().map(|name| evict(&server, name, json!({})))).await;
    let granted = answers.iter().filter(|answer| answer.code == 201).count();
    assert!(answers.iter().all(|answer| matches!(answer.code, 201 | 429)), "{answers:?}");
    assert_eq!(granted, 5);
    let after = budget(&server).await;
    assert_eq!(after["disruptionsAllowed"], 0);
    assert_eq!(after["disruptedPods"].as_object().unwrap().len(), 5);
}

/// Refuses evictions of pods named `held`, and notes what it is asked.
#[derive(Clone, Default)]
struct Holding(Arc<Mutex<Vec<String>>>);

impl Admission for Holding {
    fn admit(&self, review: &Review<'_>, object: Option<&mut Value>, _: &mut Vec<String>) -> Result<(), Status> {
        let Attributes { verb, resource, subresource, name, .. } = review.attributes;
        if resource == "pods" && matches!(verb, "create" | "delete") && !name.is_empty() {
            let options = object.map(|object| object["deleteOptions"].to_string()).unwrap_or_default();
            self.0.lock().unwrap().push(format!("{verb} {resource}/{subresource} {name} {options} {}", review.dry_run));
        }
        match (subresource, name) {
            ("eviction", "held") => Err(Status::too_many_requests("not yet")),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn admission_is_asked_about_the_eviction_itself() {
    let holding = Holding::default();
    let builder = ApiServer::builder(Place::Memory).seed(1).admission(holding.clone());
    let server = Server::on(builder.start().await.unwrap());
    for name in ["held", "free"] {
        server.post(PODS, &pod(name, "n")).await.expect(201);
        run(&server, name, true).await;
    }
    holding.0.lock().unwrap().clear();
    let refused = evict(&server, "held", json!({})).await.expect(429);
    assert_eq!((&refused["reason"], &refused["message"]), (&json!("TooManyRequests"), &json!("not yet")));
    assert_eq!(server.get(&format!("{PODS}/held")).await.expect(200)["metadata"]["deletionTimestamp"], Value::Null);
    evict(&server, "free", json!({ "dryRun": ["All"] })).await.expect(201);
    let asked = std::mem::take(&mut *holding.0.lock().unwrap());
    let expected = ["create pods/eviction held {} false", "create pods/eviction free {\"dryRun\":[\"All\"]} true"];
    assert_eq!(asked[..2], expected);
    assert!(asked[2].starts_with("delete pods/"), "{asked:?}");
}
