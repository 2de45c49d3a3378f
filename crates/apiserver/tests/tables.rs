//! Tables of the built-in kinds, against what kube-apiserver v1.36.3 printed for the same objects.
//!
//! A file in `tables/` has the columns of each resource and the objects with their cells. Ages stand as `<age>`, dates
//! as `<date>`: they are whatever the clock makes of them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

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
    /// Where the table is read, if in another version.
    seen_at: Option<String>,
    /// Which part takes the status.
    subresource: Option<String>,
    #[serde(default)]
    status: Value,
    /// Whether the object is deleted, and stays for some reason of its own.
    #[serde(default)]
    deleted: bool,
    cells: Vec<Value>,
}

const PODS: &str = include_str!("tables/pods.json");
const CORE: &str = include_str!("tables/core.json");
const APPS: &str = include_str!("tables/apps.json");
const BATCH: &str = include_str!("tables/batch.json");
const STORAGE: &str = include_str!("tables/storage.json");
const NETWORKING: &str = include_str!("tables/networking.json");
const CONTROL: &str = include_str!("tables/control.json");

#[tokio::test]
async fn pods_print_as_recorded() {
    check(PODS).await;
}

#[tokio::test]
async fn the_core_group_prints_as_recorded() {
    check(CORE).await;
}

#[tokio::test]
async fn apps_print_as_recorded() {
    check(APPS).await;
}

#[tokio::test]
async fn jobs_and_autoscalers_print_as_recorded() {
    check(BATCH).await;
}

#[tokio::test]
async fn storage_prints_as_recorded() {
    check(STORAGE).await;
}

#[tokio::test]
async fn networking_prints_as_recorded() {
    check(NETWORKING).await;
}

#[tokio::test]
async fn the_other_groups_print_as_recorded() {
    check(CONTROL).await;
}

/// A kind that is served but was never compared would print its plain columns, and nobody would know.
#[tokio::test]
async fn every_kind_is_recorded() {
    let files = [PODS, CORE, APPS, BATCH, STORAGE, NETWORKING, CONTROL];
    let recorded = files.iter().map(|file| serde_json::from_str::<Recorded>(file).unwrap());
    let recorded: BTreeSet<String> = recorded.flat_map(|file| file.columns.into_keys()).collect();
    let client = client().await;
    let mut versions = vec!["/api/v1".to_owned()];
    let groups = send(&client, Request::get("/apis"), &Value::Null).await;
    for version in groups["groups"].as_array().unwrap().iter().flat_map(|group| group["versions"].as_array().unwrap()) {
        versions.push(format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
    }
    let mut missing = Vec::new();
    for version in versions {
        let resources = send(&client, Request::get(&version), &Value::Null).await;
        for resource in resources["resources"].as_array().unwrap() {
            let place = if resource["namespaced"] == true { "/namespaces/default" } else { "" };
            let path = format!("{version}{place}/{}", resource["name"].as_str().unwrap());
            let listed = resource["verbs"].as_array().unwrap().contains(&json!("list"));
            if listed && !recorded.contains(&path) {
                missing.push(path);
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

async fn client() -> kube::Client {
    let server = ApiServer::builder(Place::Memory).seed(1).start().await.unwrap();
    kube::Client::new(server.for_identity(Identity::new("admin", ["system:masters".to_owned()])), "default")
}

/// Makes each recorded object and compares its table; all that differ are told at once.
async fn check(recorded: &str) {
    let Recorded { columns, cases } = serde_json::from_str(recorded).unwrap();
    let client = client().await;
    let mut wrong = Vec::new();
    for case in &cases {
        let name = case.object["metadata"]["name"].as_str().unwrap();
        make(&client, &format!("{}/{name}", case.path), case).await;
        let resource = case.seen_at.as_ref().unwrap_or(&case.path);
        let (columns, at) = (&columns[resource], format!("{resource}/{name}"));
        let table = send(&client, Request::get(&at).header("accept", TABLE), &Value::Null).await;
        let mut found = table["columnDefinitions"].clone();
        for column in found.as_array_mut().into_iter().flatten() {
            column.as_object_mut().unwrap().remove("description");
        }
        if found != *columns {
            wrong.push(format!("{at} has columns\n  {found}, not\n  {columns}"));
        }
        // The original has a cell more than columns for addresses; kubectl leaves it out.
        let expected = &case.cells[..case.cells.len().min(columns.as_array().unwrap().len())];
        let cells = table["rows"][0]["cells"].as_array().cloned().unwrap_or_default();
        if cells.len() != expected.len() || !cells.iter().zip(expected).all(|(cell, expected)| fits(cell, expected)) {
            wrong.push(format!("{at} has cells\n  {}, not\n  {}", json!(cells), json!(expected)));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

async fn make(client: &kube::Client, at: &str, case: &Case) {
    send(client, Request::post(&case.path), &case.object).await;
    if let Some(part) = &case.subresource {
        let patch = Request::patch(format!("{at}/{part}")).header("content-type", "application/merge-patch+json");
        send(client, patch, &json!({ "status": case.status })).await;
    }
    if case.deleted {
        send(client, Request::delete(at), &json!({})).await;
    }
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
    let is_part =
        |part: &&str| part.strip_suffix(['s', 'm', 'h', 'd', 'y']).is_some_and(|number| number.parse::<u32>().is_ok());
    matches!(parts.len(), 1 | 2) && parts.iter().all(is_part)
}
