use serde_json::json;

use crate::support::{MAPS, Server, map, server};

#[tokio::test]
async fn what_the_server_sets_is_set() {
    let server = server().await;
    let mut given = map("a");
    given["metadata"]["uid"] = "mine".into();
    given["metadata"]["creationTimestamp"] = "2000-01-01T00:00:00Z".into();
    given["metadata"]["selfLink"] = "/a".into();
    let made = server.post(MAPS, &given).await.expect(201);
    let metadata = &made["metadata"];
    assert_eq!(metadata["namespace"], "default");
    assert_ne!(metadata["uid"], "mine");
    assert_ne!(metadata["creationTimestamp"], "2000-01-01T00:00:00Z");
    assert!(metadata["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap() > 1);
    assert!(metadata.get("selfLink").is_none() && metadata.get("generation").is_none());
    assert_eq!(server.get(&format!("{MAPS}/a")).await.expect(200), made);
}

#[tokio::test]
async fn a_name_is_given_once() {
    let server = server().await;
    server.post(MAPS, &map("a")).await.expect(201);
    let refused = server.post(MAPS, &map("a")).await.expect(409);
    assert_eq!(refused["reason"], "AlreadyExists");
    assert_eq!(refused["message"], "configmaps \"a\" already exists");
    assert_eq!(refused["details"], json!({ "name": "a", "kind": "configmaps" }));
}

#[tokio::test]
async fn names_are_generated() {
    let server = server().await;
    let mut given = map("");
    given["metadata"] = json!({ "generateName": "web-" });
    let (one, two) = (server.post(MAPS, &given).await.expect(201), server.post(MAPS, &given).await.expect(201));
    let name = one["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_ne!(one["metadata"]["name"], two["metadata"]["name"]);
}

async fn refused(server: &Server, change: impl FnOnce(&mut serde_json::Value)) -> (u16, String) {
    let mut given = map("a");
    change(&mut given);
    let answer = server.post(MAPS, &given).await;
    (answer.code, answer.body["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn bad_metadata_is_refused_by_field() {
    let server = server().await;
    let (code, text) = refused(&server, |map| map["metadata"]["name"] = "A_".into()).await;
    assert!(
        code == 422 && text.contains("metadata.name: Invalid value: \"A_\": a lowercase RFC 1123 subdomain"),
        "{text}"
    );
    let (code, text) = refused(&server, |map| map["metadata"]["labels"] = json!({ "a": "b c" })).await;
    assert!(code == 422 && text.contains("metadata.labels: Invalid value: \"b c\""), "{text}");
    let (code, text) = refused(&server, |map| map["metadata"]["finalizers"] = json!(["mine"])).await;
    assert!(code == 422 && text.contains("neither a standard finalizer name nor is it fully qualified"), "{text}");
    let (code, text) = refused(&server, |map| map["metadata"] = json!({})).await;
    assert!(code == 422 && text.contains("name or generateName is required"), "{text}");
    let (code, _) = refused(&server, |map| map["metadata"]["namespace"] = "other".into()).await;
    assert_eq!(code, 400);
    let (code, _) = refused(&server, |map| map["metadata"]["resourceVersion"] = "5".into()).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn unknown_fields_are_dropped_told_or_refused() {
    let server = server().await;
    let mut given = map("a");
    given["oops"] = 1.into();
    let answer = server.post(MAPS, &given).await;
    assert_eq!(answer.headers["warning"], "299 - \"unknown field \\\"oops\\\"\"");
    assert!(answer.expect(201).get("oops").is_none());
    given["metadata"]["name"] = "b".into();
    let strict = server.post(&format!("{MAPS}?fieldValidation=Strict"), &given).await.expect(400);
    let text = strict["message"].as_str().unwrap();
    assert!(text.ends_with("strict decoding error: unknown field \"oops\""), "{text}");
    let silent = server.post(&format!("{MAPS}?fieldValidation=Ignore"), &given).await;
    assert!(!silent.headers.contains_key("warning"));
    silent.expect(201);
    server.post(&format!("{MAPS}?fieldValidation=Loud"), &map("c")).await.expect(422);
}

#[tokio::test]
async fn fields_given_twice_are_told() {
    let server = server().await;
    let body = br#"{"metadata":{"name":"a"},"data":{"x":"1","x":"2"}}"#.to_vec();
    let send = |query: &str| {
        http::Request::post(format!("{MAPS}{query}"))
            .header("content-type", "application/json")
            .body(body.clone())
            .unwrap()
    };
    let strict = server.send(send("?fieldValidation=Strict")).await.expect(400);
    assert!(strict["message"].as_str().unwrap().contains("duplicate field \"data.x\""), "{strict}");
    assert_eq!(server.send(send("")).await.expect(201)["data"]["x"], "2");
}

#[tokio::test]
async fn a_value_of_the_wrong_type_is_refused_with_its_place() {
    let server = server().await;
    let (code, text) = refused(&server, |map| map["data"] = json!({ "x": 1 })).await;
    assert_eq!(code, 400);
    assert!(
        text.contains("json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        "{text}"
    );
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let server = server().await;
    let made = server.post(&format!("{MAPS}?dryRun=All"), &map("a")).await.expect(201);
    assert!(made["metadata"].get("resourceVersion").is_none());
    assert!(made["metadata"]["uid"].is_string());
    server.get(&format!("{MAPS}/a")).await.expect(404);
    server.post(MAPS, &map("a")).await.expect(201);
    server.post(&format!("{MAPS}?dryRun=All"), &map("a")).await.expect(409);
    server.post(&format!("{MAPS}?dryRun=Some"), &map("b")).await.expect(422);
}

#[tokio::test]
async fn yaml_is_taken_too() {
    let server = server().await;
    let body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: \"1\"}\n".to_vec();
    let request = http::Request::post(MAPS).header("content-type", "application/yaml").body(body).unwrap();
    assert_eq!(server.send(request).await.expect(201)["data"]["x"], "1");
}

#[tokio::test]
async fn secrets_fold_their_strings_and_immutable_ones_stay() {
    let server = server().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let given = json!({ "metadata": { "name": "s" }, "stringData": { "k": "v" }, "immutable": true });
    let made = server.post(secrets, &given).await.expect(201);
    assert_eq!((&made["data"], &made["type"]), (&json!({ "k": "dg==" }), &json!("Opaque")));
    assert!(made.get("stringData").is_none());
    let refused = server.merge(&format!("{secrets}/s"), &json!({ "stringData": { "k": "w" } })).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "data");
}
