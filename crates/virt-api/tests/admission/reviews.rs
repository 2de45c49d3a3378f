//! The webhook's JSON.

use base64::Engine as _;
use serde_json::{Value, json};
use virt_api::review::{answer, patch};

use crate::support::{Cluster, changed, vmi};

fn review(object: &Value, user: &Value) -> Value {
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "operation": "CREATE", "namespace": "default", "dryRun": false, "userInfo": user,
        "resource": { "group": "kubevirt.io", "version": "v1", "resource": "virtualmachineinstances" },
        "object": object, "oldObject": null,
    } })
}

fn asked(object: &Value, user: &Value) -> Value {
    answer(&review(object, user), &Cluster::new(), |user| user == "us").unwrap().review["response"].clone()
}

#[test]
fn an_admitted_object_comes_back_as_a_patch() {
    let response = asked(&vmi(), &json!({ "username": "somebody" }));
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("u-1"), &json!(true)));
    assert_eq!(response["patchType"], "JSONPatch");
    let bytes = base64::engine::general_purpose::STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
    let operations: Value = serde_json::from_slice(&bytes).unwrap();
    let paths: Vec<(&str, &str)> = operations
        .as_array()
        .unwrap()
        .iter()
        .map(|operation| (operation["op"].as_str().unwrap(), operation["path"].as_str().unwrap()))
        .collect();
    assert_eq!(paths, [("replace", "/metadata"), ("replace", "/spec"), ("add", "/status")]);
}

#[test]
fn a_refused_object_comes_back_with_its_causes() {
    let bad = changed(&vmi(), &json!({ "spec": { "hostname": "Bad" } }));
    let response = asked(&bad, &json!({ "username": "somebody" }));
    assert_eq!(response["allowed"], false);
    assert_eq!((&response["status"]["code"], &response["status"]["reason"]), (&json!(422), &json!("Invalid")));
    assert_eq!(response["status"]["details"]["causes"][0]["field"], "spec.hostname");
    assert_eq!(response["status"]["details"]["causes"][0]["reason"], "FieldValueInvalid");
}

#[test]
fn requesters_are_told_apart_by_name_and_group() {
    let labelled = changed(&vmi(), &json!({ "metadata": { "labels": { "kubevirt.io/nodeName": "n" } } }));
    for (user, allowed) in [
        (json!({ "username": "somebody", "groups": ["system:authenticated"] }), false),
        (json!({ "username": "boss", "groups": ["system:masters"] }), true),
        (json!({ "username": "us" }), true),
    ] {
        assert_eq!(asked(&labelled, &user)["allowed"], allowed, "{user}");
    }
}

#[test]
fn what_is_no_review_gets_no_answer() {
    let cluster = Cluster::new();
    let mut connect = review(&vmi(), &json!({}));
    connect["request"]["operation"] = json!("CONNECT");
    let mut old = review(&vmi(), &json!({}));
    old["apiVersion"] = json!("admission.k8s.io/v1beta1");
    for (review, words) in [
        (json!({}), "expected an AdmissionReview"),
        (old, "v1beta1"),
        (json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview" }), "malformed"),
        (connect, "CONNECT"),
    ] {
        let error = answer(&review, &cluster, |_| false).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_patch_touches_what_differs() {
    let operations = patch(&json!({ "a": 1, "b": 2, "c": 3 }), &json!({ "a": 1, "b": 5, "d": 4 }));
    let wanted = json!([
        { "op": "replace", "path": "/b", "value": 5 },
        { "op": "add", "path": "/d", "value": 4 },
        { "op": "remove", "path": "/c" },
    ]);
    assert_eq!(operations, wanted);
}
