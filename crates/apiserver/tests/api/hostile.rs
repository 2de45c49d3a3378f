//! Nothing a client sends crashes the server or gets a wrong answer.

use std::time::Duration;

use apiserver::Identity;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::Service as _;

use crate::support::{DEFINITIONS, MAPS, map, server};

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let server = server().await;
    let mut large = map("a");
    large["data"]["x"] = "x".repeat(3 << 20).into();
    assert_eq!(server.post(MAPS, &large).await.expect(413)["reason"], "RequestEntityTooLarge");
}

#[tokio::test]
async fn deep_and_broken_documents_are_refused() {
    let server = server().await;
    let bodies = [
        "[".repeat(100_000),
        "{\"a\":".repeat(1000),
        "{".to_owned(),
        String::new(),
        "null".to_owned(),
        "[]".to_owned(),
        "{}x".to_owned(),
        "\u{0}".to_owned(),
    ];
    for body in bodies {
        let request =
            Request::post(MAPS).header("content-type", "application/json").body(body.clone().into_bytes()).unwrap();
        let start: String = body.chars().take(20).collect();
        let answer = server.send(request).await;
        assert!(matches!(answer.code, 400 | 422), "{start}: {}", answer.body);
    }
    let request = Request::post(MAPS).header("content-type", "text/plain").body(b"x".to_vec()).unwrap();
    server.send(request).await.expect(415);
}

#[tokio::test]
async fn unknown_paths_kinds_and_methods_are_told_apart() {
    let server = server().await;
    assert_eq!(server.get("/foo").await.expect(404), json!("404 page not found\n"));
    assert_eq!(
        server.get("/api/v1/foos").await.expect(404)["message"],
        "the server could not find the requested resource"
    );
    server.get("/apis/foo/v1/bars").await.expect(404);
    server.get("/api/v1/namespaces/default/nodes").await.expect(404);
    server.get(&format!("{MAPS}/a/status")).await.expect(404);
    server.post("/api/v1/configmaps", &map("a")).await.expect(405);
    server.put(MAPS, &map("a")).await.expect(405);
    server.get("/api/v1/namespaces/default/pods/p/binding").await.expect(405);
}

/// Each shape that decoders of objects, definitions, options and patches may be given.
#[tokio::test]
async fn a_corpus_of_odd_documents_is_survived() {
    let server = server().await;
    server.post(MAPS, &map("a")).await.expect(201);
    let odd = [
        json!({}),
        json!({ "metadata": [] }),
        json!({ "metadata": { "name": {} } }),
        json!({ "metadata": { "name": "a", "labels": "x", "ownerReferences": [null, 1] } }),
        json!({ "apiVersion": 1, "kind": [] }),
        json!({ "spec": { "versions": [null, {}, { "name": "v1", "schema": { "openAPIV3Schema": [] } }], "names": 1, "group": {} } }),
        json!({ "spec": { "versions": { "a": 1 }, "replicas": 1e300 } }),
        json!({ "preconditions": [], "gracePeriodSeconds": "x", "dryRun": "All" }),
        json!([{ "op": "move", "from": "/", "path": "/metadata" }]),
        json!([{ "op": "remove", "path": "" }]),
        json!([{ "op": "replace", "path": "", "value": null }]),
        json!({ "data": { "x": null }, "$patch": "explode", "$retainKeys": 3, "$setElementOrder/data": 7 }),
    ];
    for document in odd {
        for path in [MAPS, DEFINITIONS, "/api/v1/namespaces", "/api/v1/namespaces/default/pods"] {
            let answer = server.post(path, &document).await;
            assert!((400..500).contains(&answer.code), "{path} {document}: {} {}", answer.code, answer.body);
        }
        for kind in ["json", "merge", "strategic-merge"] {
            let answer = server.patch(kind, &format!("{MAPS}/a"), &document).await;
            assert!(answer.code < 500, "{kind} {document}: {} {}", answer.code, answer.body);
        }
        let answer = server.put(&format!("{MAPS}/a"), &document).await;
        assert!((400..500).contains(&answer.code), "{document}: {}", answer.body);
        let answer = server.delete(&format!("{MAPS}/gone"), &document).await;
        assert!((400..500).contains(&answer.code), "{document}: {}", answer.body);
    }
    server.get(&format!("{MAPS}/a")).await.expect(200);
}

/// A body that begins and never ends.
#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let server = server().await;
    let start = futures_util::stream::iter([Ok::<_, std::io::Error>(Frame::data(Bytes::from("{")))]);
    let body = StreamBody::new(start.chain(futures_util::stream::pending()));
    let request = Request::post(MAPS).header("content-type", "application/json").body(body).unwrap();
    let started = Instant::now();
    let answer = server.server.for_identity(Identity::admin()).call(request).await.unwrap();
    assert_eq!((answer.status().as_u16(), started.elapsed()), (408, Duration::from_secs(60)));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("Timeout")));
}

/// The most that an object may have, as etcd takes it.
const LARGEST: usize = 1_572_864;
const TEMPLATES: &str = "/api/v1/namespaces/default/podtemplates";

fn template(argument: usize) -> Value {
    let containers = json!([{ "name": "c", "image": "registry.example/i:1", "args": ["x".repeat(argument)] }]);
    json!({ "metadata": { "name": "t" }, "template": { "metadata": {}, "spec": { "containers": containers } } })
}

#[tokio::test]
async fn an_object_is_no_larger_than_the_store_takes() {
    let server = server().await;
    let refused = server.post(TEMPLATES, &template(LARGEST)).await.expect(413);
    assert_eq!(refused["reason"], "RequestEntityTooLarge");
    assert_eq!(refused["message"], format!("Request entity too large: limit is {LARGEST}"));
    server.post(&format!("{TEMPLATES}?dryRun=All"), &template(LARGEST)).await.expect(413);
    let made = server.post(TEMPLATES, &template(1)).await.expect(201);
    let path = format!("{TEMPLATES}/t");
    server.put(&path, &template(LARGEST)).await.expect(413);
    server.put(&format!("{path}?dryRun=All"), &template(LARGEST)).await.expect(413);
    assert_eq!(server.get(&path).await.expect(200), made);
}

/// Each patch is small, what comes of them is not.
#[tokio::test]
async fn an_object_does_not_outgrow_the_store_by_patches() {
    let server = server().await;
    server.post(TEMPLATES, &template(1)).await.expect(201);
    let path = format!("{TEMPLATES}/t");
    let mut patches = 0;
    let refused = loop {
        let added = json!([{ "name": format!("c{patches}"), "image": "i", "args": ["x".repeat(200_000)] }]);
        let patch = json!({ "template": { "spec": { "containers": added } } });
        let answer = server.patch("strategic-merge", &path, &patch).await;
        if answer.code != 200 {
            break answer;
        }
        patches += 1;
        assert!(patches < 20, "it grows without end");
    };
    assert_eq!((patches, refused.expect(413)["reason"].as_str()), (7, Some("RequestEntityTooLarge")));
    server.merge(&path, &json!({ "metadata": { "labels": { "a": "b" } } })).await.expect(200);
    server.delete(&path, &json!({})).await.expect(200);
}
