//! Definitions that would make every object, every answer or every other definition expensive.

use serde_json::{Value, json};

use crate::scene::{SHRUBS, Scene, nested, shrubs};
use crate::support::DEFINITIONS;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn many(count: usize, make: impl FnMut(usize) -> Value) -> Value {
    (0..count).map(make).collect()
}

fn column(turn: usize, path: &str) -> Value {
    json!({ "name": format!("c{turn}"), "type": "string", "jsonPath": path })
}

/// Columns that all lead to one large value showed it once for each: gigabytes for a GET.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_has_no_more_of_an_object_than_there_is() {
    let scene = Scene::begin().await;
    let mut definition = shrubs();
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = many(101, |turn| column(turn, ".spec"));
    let refused = scene.post(DEFINITIONS, &definition).await.expect(422);
    assert!(refused["message"].as_str().unwrap().contains("must have at most 100 items"), "{refused}");
    // The same value on each level, whole on each.
    definition["spec"]["versions"][0]["additionalPrinterColumns"] = many(100, |turn| column(turn, "..a"));
    scene.server.define(&definition).await;
    let mut shrub = json!({ "apiVersion": "example.com/v1", "kind": "Shrub", "metadata": { "name": "s" } });
    let text = "x".repeat(1_000_000);
    shrub["spec"] = nested(90);
    shrub["spec"]["a"]["a"]["text"] = text.as_str().into();
    scene.post(SHRUBS, &shrub).await.expect(201);
    let rows = scene.server.get_as(&format!("{SHRUBS}?includeObject=None"), TABLE).await.expect(200);
    assert_eq!(rows["rows"][0]["cells"].as_array().map(Vec::len), Some(101));
    let bytes = rows.to_string().len();
    assert!(bytes > text.len() && bytes < text.len() * 2, "{bytes}");
    scene.server.delete(&format!("{DEFINITIONS}/shrubs.example.com"), &json!({})).await.expect(200);
    scene.end(&[]).await;
}

/// What can be selected by is kept beside each object.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_to_select_by_are_few_and_each_is_there_once() {
    let scene = Scene::begin().await;
    let mut definition = shrubs();
    let properties: serde_json::Map<String, Value> =
        (0..9).map(|turn| (format!("f{turn}"), json!({ "type": "string" }))).collect();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = properties.into();
    for (fields, problem) in [
        (many(9, |turn| json!({ "jsonPath": format!(".f{turn}") })), "must have at most 8 items"),
        (many(18_000, |_| json!({ "jsonPath": ".f0" })), "Duplicate value"),
    ] {
        definition["spec"]["versions"][0]["selectableFields"] = fields;
        let refused = scene.post(DEFINITIONS, &definition).await.expect(422);
        assert!(refused["message"].as_str().unwrap().contains(problem), "{refused}");
    }
    scene.end(&[]).await;
}

/// Each was compared with each of all others, while nothing else ran on that thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn further_names_are_few_and_names() {
    let scene = Scene::begin().await;
    let mut definition = shrubs();
    for list in ["shortNames", "categories"] {
        for (names, problem) in [
            (many(101, |turn| format!("s{turn}").into()), "must have at most 100 items"),
            (json!(["Not a name"]), "a DNS-1035 label must consist of"),
            (json!(["x".repeat(1_000_000)]), "must be no more than 63"),
        ] {
            definition["spec"]["names"][list] = names;
            let refused = scene.post(DEFINITIONS, &definition).await.expect(422);
            assert!(refused["message"].as_str().unwrap().contains(problem), "{refused}");
        }
        definition["spec"]["names"].as_object_mut().unwrap().remove(list);
    }
    scene.end(&[]).await;
}

/// It took the place of what the cluster itself needs, and took that along when it was deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_definition_takes_the_place_of_a_built_in_kind() {
    let scene = Scene::begin().await;
    let mut definition = shrubs();
    definition["metadata"]["name"] = "leases.coordination.k8s.io".into();
    definition["spec"]["group"] = "coordination.k8s.io".into();
    definition["spec"]["names"] = json!({ "plural": "leases", "singular": "lease", "kind": "Lease" });
    let refused = scene.post(DEFINITIONS, &definition).await.expect(422);
    assert!(refused["message"].as_str().unwrap().contains("is the name of a built-in resource"), "{refused}");
    scene.end(&[]).await;
}

/// Each condition read every object that is older than the definition's last change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conditions_of_a_selector_are_few() {
    let scene = Scene::begin().await;
    scene.server.define(&shrubs()).await;
    for (selector, condition) in [("fieldSelector", "color!%3Dx"), ("labelSelector", "a!%3Dx")] {
        let query = |count: usize| format!("{SHRUBS}?{selector}={}", vec![condition; count].join(","));
        scene.server.get(&query(100)).await.expect(200);
        let refused = scene.server.get(&query(101)).await.expect(400);
        assert!(refused["message"].as_str().unwrap().contains("must have at most 100 conditions"), "{refused}");
    }
    scene.server.delete(&format!("{DEFINITIONS}/shrubs.example.com"), &json!({})).await.expect(200);
    scene.end(&[]).await;
}

/// Counts, histories and empty tables stayed for ever; somebody may define and delete all day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_counted_for_a_definition_goes_with_it() {
    let scene = Scene::begin().await;
    let metrics = async || {
        let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
        scene.server.client.request_text(request).await.unwrap()
    };
    for _ in 0..2 {
        scene.server.define(&shrubs()).await;
        let shrub = json!({ "apiVersion": "example.com/v1", "kind": "Shrub", "metadata": { "name": "s" } });
        scene.server.post(SHRUBS, &shrub).await.expect(201);
        // A watch that begins now hears of what comes, also of a table that was there before.
        let mut frames = scene.server.watch(&format!("{SHRUBS}?watch=1")).await;
        assert_eq!(frames.names(1).await, ["ADDED s"]);
        scene.server.merge(&format!("{SHRUBS}/s"), &json!({ "spec": { "a": 1 } })).await.expect(200);
        assert_eq!(frames.names(1).await, ["MODIFIED s"]);
        assert!(metrics().await.contains("resource=\"shrubs\""));
        scene.server.delete(&format!("{DEFINITIONS}/shrubs.example.com"), &json!({})).await.expect(200);
        while scene.server.get(SHRUBS).await.code != 404 || metrics().await.contains("shrubs") {
            tokio::task::yield_now().await;
        }
    }
    assert!(metrics().await.contains("resource=\"configmaps\""));
    scene.end(&[]).await;
}
