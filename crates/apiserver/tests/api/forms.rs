use serde_json::json;

use crate::support::{MAPS, WIDGETS, map, server, widget, widgets};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

#[tokio::test]
async fn a_table_has_the_columns_of_the_definition() {
    let server = server().await;
    server.define(&widgets()).await;
    server.post(WIDGETS, &widget("w", &json!({ "replicas": 3 }))).await.expect(201);
    let table = server.get_as(WIDGETS, TABLE).await.expect(200);
    assert_eq!(table["kind"], "Table");
    let names: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Name", "Color", "Replicas"]);
    assert_eq!(table["rows"][0]["cells"], json!(["w", "red", 3]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let whole = server.get_as(&format!("{WIDGETS}/w?includeObject=Object"), TABLE).await.expect(200);
    assert_eq!(whole["rows"][0]["object"]["spec"]["color"], "red");
    let none = server.get_as(&format!("{WIDGETS}?includeObject=None"), TABLE).await.expect(200);
    assert_eq!(none["rows"][0]["object"], json!(null));
    server.get_as(&format!("{WIDGETS}?includeObject=Half"), TABLE).await.expect(400);
}

#[tokio::test]
async fn metadata_comes_alone_if_asked() {
    let server = server().await;
    let made = server.post(MAPS, &map("a")).await.expect(201);
    let expected =
        json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"] });
    assert_eq!(server.get_as(&format!("{MAPS}/a"), METADATA).await.expect(200), expected);
    let list = server.get_as(MAPS, METADATA_LIST).await.expect(200);
    assert_eq!((&list["kind"], &list["items"][0]), (&json!("PartialObjectMetadataList"), &expected));
}

#[tokio::test]
async fn yaml_comes_if_asked_and_what_cannot_come_is_refused() {
    let server = server().await;
    server.post(MAPS, &map("a")).await.expect(201);
    let yaml = server.get_as(&format!("{MAPS}/a"), "application/yaml").await;
    assert_eq!(yaml.headers["content-type"], "application/yaml");
    assert!(yaml.body.as_str().unwrap().contains("kind: ConfigMap\n"), "{:?}", yaml.body);
    let refused = server.get_as(&format!("{MAPS}/a"), "text/html").await.expect(406);
    assert_eq!(refused["reason"], "NotAcceptable");
}

#[tokio::test]
async fn an_event_is_seen_through_both_groups() {
    let server = server().await;
    let event = json!({
        "metadata": { "name": "e" },
        "regarding": { "kind": "Pod", "name": "p", "namespace": "default" },
        "note": "it happened",
        "reason": "Happened",
        "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c",
        "reportingInstance": "i",
        "action": "a",
    });
    server.post("/apis/events.k8s.io/v1/namespaces/default/events", &event).await.expect(201);
    let core = server.get("/api/v1/namespaces/default/events/e").await.expect(200);
    assert_eq!((&core["message"], &core["involvedObject"]["name"]), (&json!("it happened"), &json!("p")));
    let found = server.get("/apis/events.k8s.io/v1/events?fieldSelector=regarding.name%3Dp").await.expect(200);
    assert_eq!(found["items"][0]["note"], "it happened");
    // Whoever reports by a controller has no source of the old kind, and is found as one.
    let found = server.get("/api/v1/events?fieldSelector=source%3Dc").await.expect(200);
    assert_eq!(found["items"][0]["metadata"]["name"], "e");
    let others = server.get("/api/v1/events?fieldSelector=source%3Dd").await.expect(200);
    assert_eq!(others["items"], json!([]));
}

#[tokio::test]
async fn an_autoscaler_is_seen_through_both_versions() {
    let server = server().await;
    let base = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let spec = json!({ "scaleTargetRef": { "kind": "Deployment", "name": "d" }, "maxReplicas": 3, "targetCPUUtilizationPercentage": 70 });
    let made = server.post(base, &json!({ "metadata": { "name": "h" }, "spec": spec })).await.expect(201);
    assert_eq!(made["spec"]["targetCPUUtilizationPercentage"], 70);
    let second = server.get(&format!("{}/h", base.replace("/v1/", "/v2/"))).await.expect(200);
    assert_eq!(second["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
}
