//! Nothing a client sends crashes the server or gets a wrong answer.

use http::Request;
use serde_json::json;

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
