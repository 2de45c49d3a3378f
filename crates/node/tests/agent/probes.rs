//! Probes, and what follows from them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bench::{Bench, is_ready, phase, status};

fn spec(probes: &Value) -> Value {
    let mut container = json!({ "name": "c", "image": "image:1" });
    container.as_object_mut().unwrap().extend(probes.as_object().unwrap().clone());
    json!({ "containers": [container] })
}

fn exec(more: &Value) -> Value {
    let mut probe = json!({ "exec": { "command": ["x"] }, "periodSeconds": 2, "failureThreshold": 2 });
    probe.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    probe
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_ready_while_its_probe_passes() {
    let mut bench = Bench::new().await;
    bench.machine.0.answers.lock().unwrap().insert("c".to_owned(), 1);
    bench.create("a", spec(&json!({ "readinessProbe": exec(&json!({})) }))).await;
    let running = bench.until("a", |pod| phase(pod) == "Running").await;
    assert!(!is_ready(&running));
    sleep(Duration::from_secs(20)).await;
    assert!(!is_ready(&bench.get("a").await));
    bench.machine.0.answers.lock().unwrap().clear();
    let ready = bench.until("a", is_ready).await;
    assert!(bench.events().await.iter().any(|reason| reason == "Unhealthy"));
    // A new agent does not take back what the old one has seen.
    bench.kill();
    bench.start();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(bench.get("a").await, ready);
    bench.machine.0.answers.lock().unwrap().insert("c".to_owned(), 1);
    bench.until("a", |pod| !is_ready(pod)).await;
    assert_eq!(status(&bench.get("a").await, "c").unwrap().restart_count, 0);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_live_is_restarted() {
    let bench = Bench::new().await;
    let startup = exec(&json!({ "failureThreshold": 30 }));
    bench.machine.0.answers.lock().unwrap().insert("c".to_owned(), 1);
    bench.create("a", spec(&json!({ "livenessProbe": exec(&json!({})), "startupProbe": startup }))).await;
    let starting = bench.until("a", |pod| phase(pod) == "Running").await;
    assert_eq!(status(&starting, "c").unwrap().started, Some(false));
    sleep(Duration::from_secs(20)).await;
    assert_eq!(status(&bench.get("a").await, "c").unwrap().restart_count, 0, "it is still starting");
    bench.machine.0.answers.lock().unwrap().clear();
    bench.until("a", is_ready).await;
    bench.machine.0.answers.lock().unwrap().insert("c".to_owned(), 1);
    bench.until("a", |pod| status(pod, "c").is_some_and(|one| one.restart_count == 1)).await;
    assert!(bench.machine.log().contains(&"signal c 15".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn probes_by_grpc_are_refused_by_name() {
    let bench = Bench::new().await;
    bench.create("a", spec(&json!({ "readinessProbe": { "grpc": { "port": 1 } } }))).await;
    bench.until("a", |pod| phase(pod) == "Running").await;
    sleep(Duration::from_secs(2)).await;
    assert!(bench.events().await.iter().any(|reason| reason == "Unhealthy"));
    assert!(!is_ready(&bench.get("a").await));
}
