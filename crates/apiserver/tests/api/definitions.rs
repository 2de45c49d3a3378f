use serde_json::{Value, json};

use crate::support::{DEFINITIONS, WIDGETS, server, widget, widgets};

#[tokio::test]
async fn what_is_defined_is_served_pruned_and_defaulted() {
    let server = server().await;
    server.get(WIDGETS).await.expect(404);
    server.define(&widgets()).await;
    let answer = server.post(WIDGETS, &widget("w", &json!({ "oops": 1 }))).await;
    assert_eq!(answer.headers["warning"], "299 - \"unknown field \\\"spec.oops\\\"\"");
    let made = answer.expect(201);
    assert_eq!(made["spec"], json!({ "color": "red", "replicas": 1 }));
    assert_eq!(made["metadata"]["generation"], 1);
    let listed = server.get(WIDGETS).await.expect(200);
    assert_eq!(listed["kind"], "WidgetList");
    assert_eq!(listed["items"][0], made);
}

#[tokio::test]
async fn what_does_not_fit_the_schema_is_refused_by_field() {
    let server = server().await;
    server.define(&widgets()).await;
    let refused = server.post(WIDGETS, &widget("w", &json!({ "color": "pink", "replicas": -1 }))).await.expect(422);
    let causes = refused["details"]["causes"].as_array().unwrap();
    let mut fields: Vec<&str> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    fields.sort_unstable();
    // The first says that rules were not looked at, since the object does not fit them.
    assert_eq!(fields, ["<nil>", "spec.color", "spec.replicas"]);
    server.post(WIDGETS, &widget("w", &json!({ "fixed": "a" }))).await.expect(201);
    let changed = server.merge(&format!("{WIDGETS}/w"), &json!({ "spec": { "fixed": "b" } })).await.expect(422);
    assert_eq!(changed["details"]["causes"][0]["message"], "Invalid value: \"b\": it is fixed");
}

#[tokio::test]
async fn a_custom_status_is_written_apart() {
    let server = server().await;
    server.define(&widgets()).await;
    let mut given = widget("w", &json!({}));
    given["status"] = json!({ "replicas": 5 });
    let made = server.post(WIDGETS, &given).await.expect(201);
    assert!(made.get("status").is_none());
    let path = format!("{WIDGETS}/w/status");
    let change =
        json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "color": "blue" }, "status": { "replicas": 2 } });
    let changed = server.merge(&path, &change).await.expect(200);
    assert_eq!((&changed["status"]["replicas"], &changed["spec"]["color"]), (&json!(2), &json!("red")));
    assert!(changed["metadata"].get("labels").is_none());
    assert_eq!(changed["metadata"]["generation"], 1);
}

#[tokio::test]
async fn selectable_fields_select_even_what_is_older_than_they() {
    let server = server().await;
    let mut definition = widgets();
    definition["spec"]["versions"][0].as_object_mut().unwrap().remove("selectableFields");
    server.define(&definition).await;
    server.post(WIDGETS, &widget("red", &json!({}))).await.expect(201);
    server.post(WIDGETS, &widget("blue", &json!({ "color": "blue" }))).await.expect(201);
    let query = format!("{WIDGETS}?fieldSelector=spec.color%3Dblue");
    server.get(&query).await.expect(400);
    let change = json!({ "spec": { "versions": widgets()["spec"]["versions"] } });
    server.merge(&format!("{DEFINITIONS}/widgets.example.com"), &change).await.expect(200);
    let list = loop {
        let answer = server.get(&query).await;
        if answer.code == 200 {
            break answer.body;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["metadata"]["name"], "blue");
}

#[tokio::test]
async fn a_later_default_shows_in_what_was_written_before() {
    let server = server().await;
    server.define(&widgets()).await;
    let made = server.post(WIDGETS, &widget("w", &json!({}))).await.expect(201);
    let mut definition = server.get(&format!("{DEFINITIONS}/widgets.example.com")).await.expect(200);
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    definition.pointer_mut(properties).unwrap()["size"] = json!({ "type": "string", "default": "xl" });
    server.put(&format!("{DEFINITIONS}/widgets.example.com"), &definition).await.expect(200);
    loop {
        let read = server.get(&format!("{WIDGETS}/w")).await.expect(200);
        if read["spec"]["size"] == "xl" {
            assert_eq!(read["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(server.get(WIDGETS).await.expect(200)["items"][0]["spec"]["size"], "xl");
}

#[tokio::test]
async fn all_versions_show_the_same_object() {
    let server = server().await;
    let mut definition = widgets();
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = "v2beta1".into();
    second["storage"] = false.into();
    second["deprecated"] = true.into();
    definition["spec"]["versions"].as_array_mut().unwrap().push(second);
    server.define(&definition).await;
    server.post(WIDGETS, &widget("w", &json!({}))).await.expect(201);
    let other = WIDGETS.replace("/v1/", "/v2beta1/");
    let answer = server.get(&format!("{other}/w")).await;
    assert_eq!(
        answer.headers["warning"],
        "299 - \"example.com/v2beta1 Widget is deprecated; use example.com/v1 Widget\""
    );
    assert_eq!(answer.body["apiVersion"], "example.com/v2beta1");
    let groups = server.get("/apis/example.com").await.expect(200);
    assert_eq!(groups["preferredVersion"]["version"], "v1");
    assert_eq!(groups["versions"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn bad_definitions_are_refused_by_field() {
    let server = server().await;
    let refused = async |change: fn(&mut Value)| {
        let mut definition = widgets();
        change(&mut definition);
        let answer = server.post(DEFINITIONS, &definition).await.expect(422);
        answer["details"]["causes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cause| cause["field"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(refused(|one| one["metadata"]["name"] = "other.example.com".into()).await, ["metadata.name"]);
    assert_eq!(refused(|one| one["spec"]["scope"] = "Global".into()).await, ["spec.scope"]);
    assert_eq!(
        refused(|one| one["spec"]["versions"][0]["storage"] = false.into()).await,
        ["spec.versions", "status.storedVersions"]
    );
    let path = "spec.versions[0].schema.openAPIV3Schema";
    assert_eq!(refused(|one| drop(one["spec"]["versions"][0].as_object_mut().unwrap().remove("schema"))).await, [path]);
    let found = refused(|one| {
        one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["type"] = Value::Null;
    })
    .await;
    // What all versions share is told as a part of the whole.
    assert_eq!(found, ["spec.validation.openAPIV3Schema.properties[spec].type"]);
    assert!(
        !refused(|one| one["spec"]["versions"][0]["selectableFields"] = json!([{ "jsonPath": ".spec.gone" }]))
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn a_definition_goes_with_its_objects() {
    let server = server().await;
    server.define(&widgets()).await;
    let mut held = widget("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/wait"]);
    server.post(WIDGETS, &held).await.expect(201);
    server.post(WIDGETS, &widget("free", &json!({}))).await.expect(201);
    let mut frames = server.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(frames.names(2).await, ["ADDED free", "ADDED held"]);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let mut definitions = server.watch(&format!("{DEFINITIONS}?watch=1")).await;
    server.delete(&path, &json!({})).await.expect(200);
    assert_eq!(frames.names(2).await, ["DELETED free", "MODIFIED held"]);
    server.get(&path).await.expect(200);
    server.merge(&format!("{WIDGETS}/held"), &json!({ "metadata": { "finalizers": null } })).await.expect(200);
    while definitions.next().await["type"] != "DELETED" {}
    while server.get(WIDGETS).await.code != 404 {
        tokio::task::yield_now().await;
    }
    assert_eq!(frames.names(1).await, ["DELETED held"]);
    assert_eq!(frames.next().await, Value::Null, "the watch of what is no longer served ends");
    // What is defined anew starts empty.
    server.define(&widgets()).await;
    assert_eq!(server.get(WIDGETS).await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn names_that_are_taken_are_not_accepted() {
    let server = server().await;
    server.define(&widgets()).await;
    let mut other = widgets();
    other["metadata"]["name"] = "gadgets.example.com".into();
    other["spec"]["names"] =
        json!({ "plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList" });
    server.post(DEFINITIONS, &other).await.expect(201);
    let conditions = loop {
        let found = server.get(&format!("{DEFINITIONS}/gadgets.example.com")).await.expect(200);
        if found["status"]["conditions"].is_array() {
            break found["status"]["conditions"].clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (&conditions[0]["type"], &conditions[0]["status"], &conditions[0]["reason"]),
        (&json!("NamesAccepted"), &json!("False"), &json!("KindConflict"))
    );
    server.get("/apis/example.com/v1/gadgets").await.expect(404);
}
