//! A full store takes nothing more, and lets everything go.

use serde_json::{Value, json};

use crate::support::{MAPS, Server, server};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";

fn map(name: &str, bytes: usize) -> Value {
    json!({ "metadata": { "name": name, "finalizers": ["example.com/kept"] }, "data": { "x": "x".repeat(bytes) } })
}

/// A server with one large object, and room for some small ones.
async fn nearly_full() -> Server {
    let server = server().await;
    server.post(MAPS, &map("large", 5_000)).await.expect(201);
    server.server.limit_store(server.server.store_size().bytes + 1_000);
    server
}

#[tokio::test]
async fn at_the_quota_nothing_grows_and_the_client_is_told_what_to_do() {
    let server = nearly_full().await;
    let size = server.server.store_size();
    let refused = server.post(MAPS, &map("another", 5_000)).await.expect(507);
    assert_eq!(refused["reason"], "InsufficientStorage");
    let message = format!(
        "the store is full: its objects have {} bytes, and its quota is {}; \
         delete unneeded objects, or raise --store-quota",
        size.bytes,
        size.quota.unwrap()
    );
    assert_eq!(refused["message"], message);
    server.merge(&format!("{MAPS}/large"), &json!({ "data": { "y": "y".repeat(5_000) } })).await.expect(507);
    assert_eq!(server.server.store_size(), size);
    server.post(MAPS, &map("small", 10)).await.expect(201);
}

#[tokio::test]
async fn what_shrinks_or_is_on_its_way_out_passes_a_full_store() {
    let server = nearly_full().await;
    server.server.limit_store(1);
    server.post(MAPS, &map("small", 10)).await.expect(507);
    let large = format!("{MAPS}/large");
    server.merge(&large, &json!({ "data": { "x": "x".repeat(4_000) } })).await.expect(200);
    // Marked only, which makes it longer; then let go.
    server.server.limit_store(server.server.store_size().bytes);
    server.delete(&large, &json!({})).await.expect(200);
    assert!(server.server.store_size().bytes > server.server.store_size().quota.unwrap());
    server.merge(&large, &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    server.get(&large).await.expect(404);
    server.post(MAPS, &map("small", 10)).await.expect(201);
}

#[tokio::test]
async fn nodes_stay_alive_in_a_full_store_for_as_long_as_its_reserve_lasts() {
    let server = nearly_full().await;
    server.server.limit_store(server.server.store_size().bytes);
    let lease = |name: &str| json!({ "metadata": { "name": name }, "spec": { "holderIdentity": name.repeat(50) } });
    server.post(LEASES, &lease("here")).await.expect(201);
    server.merge(&format!("{LEASES}/here"), &json!({ "spec": { "leaseTransitions": 1 } })).await.expect(200);
    server.post("/api/v1/nodes", &json!({ "metadata": { "name": "here" } })).await.expect(201);
    let made = async |count: usize| server.post(LEASES, &lease(&format!("of-{count}"))).await.code == 201;
    let mut count = 0;
    while made(count).await {
        count += 1;
        assert!(count < 1_000, "the reserve never ends");
    }
}

#[tokio::test]
async fn how_full_a_store_is_can_be_asked_before_it_is_full() {
    let server = server().await;
    let verbose = async || server.get("/readyz?verbose").await.expect(200).as_str().unwrap().to_owned();
    let bytes = server.server.store_size().bytes;
    server.server.limit_store(bytes * 2);
    assert!(verbose().await.contains("[+]store ok\n"));
    let metrics = server.get("/metrics").await.expect(200).as_str().unwrap().to_owned();
    for line in [format!("apiserver_storage_bytes {bytes}\n"), format!("apiserver_storage_quota_bytes {}\n", bytes * 2)]
    {
        assert!(metrics.contains(&line), "{line} {metrics}");
    }
    server.server.limit_store(bytes + 1);
    let told = verbose().await;
    assert!(
        told.contains(&format!("[+]store ok: its objects have {bytes} bytes, and its quota is {}", bytes + 1)),
        "{told}"
    );
}
