//! Events go by themselves.

use std::time::Duration;

use apiserver::{ApiServer, Clock, Place};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::Server;

const EVENTS: &str = "/api/v1/namespaces/default/events";

fn event(name: &str) -> Value {
    let object = json!({ "kind": "Pod", "namespace": "default", "name": "p" });
    json!({ "metadata": { "name": name }, "involvedObject": object, "reason": "Tested", "type": "Normal" })
}

#[tokio::test(start_paused = true)]
async fn an_event_is_forgotten_an_hour_after_it_last_happened() {
    let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
    let server = Server::on(ApiServer::builder(Place::Memory).clock(clock).seed(1).start().await.unwrap());
    for name in ["once", "again"] {
        server.post(EVENTS, &event(name)).await.expect(201);
    }
    let mut frames = server.watch(&format!("{EVENTS}?watch=1")).await;
    assert_eq!(frames.names(2).await, ["ADDED again", "ADDED once"]);
    sleep(Duration::from_secs(30 * 60)).await;
    let again = json!({ "count": 2, "lastTimestamp": "2026-01-01T00:30:00Z" });
    server.merge(&format!("{EVENTS}/again"), &again).await.expect(200);
    let exists = async |name: &str| server.get(&format!("{EVENTS}/{name}")).await.code == 200;
    sleep(Duration::from_secs(29 * 60)).await;
    assert_eq!((exists("once").await, exists("again").await), (true, true), "after 59 minutes");
    sleep(Duration::from_secs(4 * 60)).await;
    assert_eq!((exists("once").await, exists("again").await), (false, true), "after 63 minutes");
    sleep(Duration::from_secs(30 * 60)).await;
    assert_eq!((exists("once").await, exists("again").await), (false, false), "after 93 minutes");
    assert_eq!(frames.names(3).await, ["MODIFIED again", "DELETED once", "DELETED again"]);
}
