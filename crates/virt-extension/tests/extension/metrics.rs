//! What is counted, as the page of metrics shows it.

use std::sync::Arc;

use futures_util::StreamExt as _;
use serde_json::json;

use crate::bench::{Bench, VMIS};
use crate::reviews::{asked, vm};
use crate::streams::{Echo, console};

/// A number on the page; none, if it is not there.
fn shown(bench: &Bench, name: &str) -> Option<u64> {
    bench.pages.metrics().lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[tokio::test]
async fn reviews_requests_and_open_streams_are_counted() {
    let bench = Bench::new().await;
    let _node = bench.node("red", "red", Arc::new(Echo::default())).await;
    bench.instance("i", "red").await;
    let wrong = vm(|vm| vm["spec"]["template"]["spec"]["domain"]["memory"]["guest"] = "-1".into());
    asked(&bench, "mutate", &vm(|_| {})).await;
    asked(&bench, "validate", &vm(|_| {})).await;
    asked(&bench, "validate", &vm(|_| {})).await;
    asked(&bench, "validate", &wrong).await;
    assert_eq!(bench.put("admin", &format!("{VMIS}/i/pause"), &json!({})).await.0, 200);
    assert_eq!(bench.put("admin", &format!("{VMIS}/nobody/pause"), &json!({})).await.0, 404);
    let mut socket = console(&bench, "i").await;
    for (name, count) in [
        ("virt_api_reviews_total{webhook=\"mutate\",outcome=\"allowed\"}", 1),
        ("virt_api_reviews_total{webhook=\"validate\",outcome=\"allowed\"}", 2),
        ("virt_api_reviews_total{webhook=\"validate\",outcome=\"denied\"}", 1),
        ("virt_api_requests_total{code=\"200\"}", 1),
        ("virt_api_requests_total{code=\"404\"}", 1),
        ("virt_api_requests_total{code=\"101\"}", 1),
        ("virt_api_streams", 1),
    ] {
        assert_eq!(shown(&bench, name), Some(count), "{name}\n{}", bench.pages.metrics());
    }
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    while shown(&bench, "virt_api_streams") != Some(0) {
        tokio::task::yield_now().await;
    }
    bench.stop().await;
}
