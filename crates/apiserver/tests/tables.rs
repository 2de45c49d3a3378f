//! Tables of the built-in kinds, against what kube-apiserver v1.36.3 printed for the same objects.
//!
//! A file in `tables/` has the columns of each resource and the objects with their cells. Ages stand as `<age>`, dates
//! as `<date>`: they are whatever the clock makes of them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use apiserver::{ApiServer, Identity, Place};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Deserialize;
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

#[derive(Deserialize)]
struct Recorded {
    columns: BTreeMap<String, Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    path: String,
    object: Value,
    /// Which part takes the status.
    subresource: Option<String>,
    #[serde(default)]
    status: Value,
    /// Whether the object is deleted, and stays for some reason of its own.
    #[serde(default)]
    deleted: bool,
    cells: Vec<Value>,
}

#[tokio::test]
async fn pods_print_as_recorded() {
    check(include_str!("tables/pods.json")).await;
}

#[tokio::test]
async fn the_core_group_prints_as_recorded() {
    check(include_str!("tables/core.json")).await;
}

#[tokio::test]
async fn apps_print_as_recorded() {
    check(include_str!("tables/apps.json")).await;
}

#[tokio::test]
async fn jobs_and_autoscalers_print_as_recorded() {
    check(include_str!("tables/batch.json")).await;
}

#[tokio::test]
async fn storage_prints_as_recorded() {
    check(include_str!("tables/storage.json")).await;
}

#[tokio::test]
async fn networking_prints_as_recorded() {
    check(include_str!("tables/networking.json")).await;
}

#[tokio::test]
async fn the_other_groups_print_as_recorded() {
    check(include_str!("tables/control.json")).await;
}

/// Makes each recorded object and compares its table; all that differ are told at once.
async fn check(recorded: &str) {
    let Recorded { columns, cases } = serde_json::from_str(recorded).unwrap();
    let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
    let client = kube::Client::new(server.for_identity(Identity::admin()), "default");
    let mut wrong = Vec::new();
    for case in &cases {
        let at = format!("{}/{}", case.path, case.object["metadata"]["name"].as_str().unwrap());
        let table = make(&client, &at, case).await;
        let mut found = table["columnDefinitions"].clone();
        for column in found.as_array_mut().into_iter().flatten() {
            column.as_object_mut().unwrap().remove("description");
        }
        if found != columns[&case.path] {
            wrong.push(format!("{at} has columns\n  {found}, not\n  {}", columns[&case.path]));
        }
        // The original has a cell more than columns for addresses; no client shows it.
        let expected = &case.cells[..case.cells.len().min(columns[&case.path].as_array().unwrap().len())];
        let cells = table["rows"][0]["cells"].as_array().cloned().unwrap_or_default();
        if cells.len() != expected.len() || !cells.iter().zip(expected).all(|(cell, expected)| fits(cell, expected)) {
            wrong.push(format!("{at} has cells\n  {}, not\n  {}", json!(cells), json!(expected)));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

async fn make(client: &kube::Client, at: &str, case: &Case) -> Value {
    send(client, Request::post(&case.path), &case.object).await;
    if let Some(part) = &case.subresource {
        let patch = Request::patch(format!("{at}/{part}")).header("content-type", "application/merge-patch+json");
        send(client, patch, &json!({ "status": case.status })).await;
    }
    if case.deleted {
        send(client, Request::delete(at), &json!({})).await;
    }
    send(client, Request::get(at).header("accept", TABLE), &Value::Null).await
}

async fn send(client: &kube::Client, request: http::request::Builder, body: &Value) -> Value {
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let has_type = request.headers_ref().unwrap().contains_key("content-type");
    let request = if has_type { request } else { request.header("content-type", "application/json") };
    let request = request.body(Body::from(bytes)).unwrap();
    let what = format!("{} {}", request.method(), request.uri());
    let response = client.send(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    assert!(status.is_success(), "{what}: {status} {answer}");
    answer
}

fn fits(cell: &Value, expected: &Value) -> bool {
    match (cell.as_str(), expected.as_str()) {
        (Some(cell), Some("<date>")) => cell.parse::<jiff::Timestamp>().is_ok(),
        (Some(cell), Some(expected)) => match expected.split_once("<age>") {
            Some((before, after)) => {
                let age = cell.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                age.is_some_and(is_age)
            }
            None => cell == expected,
        },
        _ => cell == expected,
    }
}

/// One or two numbers, each with its unit.
fn is_age(text: &str) -> bool {
    let parts: Vec<_> = text.split_inclusive(|c: char| c.is_ascii_alphabetic()).collect();
    let is_part = |part: &&str| {
        part.strip_suffix(['s', 'm', 'h', 'd', 'y']).is_some_and(|number| number.parse::<u32>().is_ok())
    };
    matches!(parts.len(), 1 | 2) && parts.iter().all(is_part)
}
