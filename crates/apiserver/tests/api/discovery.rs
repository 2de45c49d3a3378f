use serde_json::json;

use crate::support::{MAPS, server, widgets};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

#[tokio::test]
async fn groups_and_resources_are_listed() {
    let server = server().await;
    server.define(&widgets()).await;
    assert_eq!(server.get("/api").await.expect(200)["versions"], json!(["v1"]));
    let groups = server.get("/apis").await.expect(200);
    let names: Vec<_> = groups["groups"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"apps") && names.contains(&"example.com"), "{names:?}");
    let resources = server.get("/apis/example.com/v1").await.expect(200);
    let names: Vec<_> =
        resources["resources"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    assert_eq!(resources["resources"][0]["shortNames"], json!(["wd"]));
    server.get("/apis/example.com/v9").await.expect(404);
}

#[tokio::test]
async fn all_of_it_comes_in_one_document_if_asked() {
    let server = server().await;
    let answer = server.get_as("/apis", AGGREGATED).await;
    assert_eq!(answer.headers["content-type"], "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    let apps = answer.body["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "apps").unwrap();
    let deployments = apps["versions"][0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["resource"] == "deployments")
        .unwrap();
    assert_eq!(deployments["responseKind"], json!({ "group": "apps", "version": "v1", "kind": "Deployment" }));
    assert_eq!(deployments["scope"], "Namespaced");
    assert!(deployments["subresources"].as_array().unwrap().iter().any(|one| one["subresource"] == "scale"));
}

#[tokio::test]
async fn who_has_the_document_is_not_sent_it_again_until_a_definition_changes() {
    let server = server().await;
    let first = server.get_as("/apis", AGGREGATED).await;
    let tag = first.headers["etag"].clone();
    let again = async || {
        let request = http::Request::get("/apis").header("accept", AGGREGATED).header("if-none-match", &tag);
        server.send(request.body(Vec::new()).unwrap()).await
    };
    let same = again().await;
    assert_eq!((same.code, &same.headers["etag"]), (304, &tag));
    assert_eq!(same.expect(304), "");
    server.define(&widgets()).await;
    let other = again().await;
    assert_ne!(other.headers["etag"], tag);
    assert!(other.expect(200)["items"].as_array().unwrap().iter().any(|one| one["metadata"]["name"] == "example.com"));
}

#[tokio::test]
async fn schemas_follow_definitions() {
    let server = server().await;
    let before = server.get("/openapi/v3").await.expect(200);
    assert!(before["paths"]["apis/apps/v1"]["serverRelativeURL"].is_string());
    server.define(&widgets()).await;
    let after = server.get("/openapi/v3").await.expect(200);
    let url = after["paths"]["apis/example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = server.get(url).await.expect(200);
    let schema = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(schema["properties"]["spec"]["properties"]["color"]["default"], "red");
    let patch = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    let parameters: Vec<_> =
        patch["parameters"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(parameters.contains(&"fieldValidation") && parameters.contains(&"dryRun"), "{parameters:?}");
    assert!(server.get("/openapi/v2").await.expect(200)["definitions"]["com.example.v1.Widget"].is_object());
}

#[tokio::test]
async fn health_version_and_metrics_are_told() {
    let server = server().await;
    for path in ["/healthz", "/livez", "/readyz", "/readyz/store"] {
        assert_eq!(server.get(path).await.expect(200), json!("ok"), "{path}");
    }
    assert!(server.get("/readyz?verbose").await.expect(200).as_str().unwrap().contains("[+]store ok\n"));
    server.get("/readyz/other").await.expect(404);
    assert_eq!(server.get("/version").await.expect(200)["minor"], "36");
    server.get(MAPS).await.expect(200);
    let metrics = server.get("/metrics").await.expect(200);
    let text = metrics.as_str().unwrap();
    assert!(text.contains("apiserver_request_total{"), "{text}");
    let labels = "verb=\"LIST\",group=\"\",version=\"v1\",resource=\"configmaps\",subresource=\"\",scope=\"namespace\"";
    assert!(text.contains(&format!("apiserver_request_duration_seconds_count{{{labels}}} 1\n")), "{text}");
    assert!(text.contains(&format!("apiserver_request_duration_seconds_bucket{{le=\"0.0005\",{labels}}}")), "{text}");
    assert!(text.contains("apiserver_storage_objects{resource=\"namespaces\"} 4"), "{text}");
}
