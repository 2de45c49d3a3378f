//! Requests of every kind for the audit log, and what of its events two servers have in common.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::http::{Connection, Server};
use crate::kubeconfig::Kubeconfig;

/// A request: method, path, headers, body.
type Asked<'a> = (Method, &'a str, &'a [(&'a str, &'a str)], &'a Value);

/// What these requests call themselves: a server has others of its own.
const AGENT: &str = "orlop-audit";
/// The id that one of them brings along.
const OWN_ID: &str = "an-id-of-its-own";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PLAIN: (&str, &str) = ("content-type", "application/json");
const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");

/// Asks for one thing after the other, as the admin of a kubeconfig, as somebody unknown, and as somebody who lies. Returns how
/// each was answered.
///
/// # Errors
/// When a request is not answered at all.
pub async fn requests(config: &Kubeconfig) -> Result<Vec<u16>> {
    let mut admin = Server::new(config)?.connect().await?;
    let nobody = Kubeconfig { identity: None, token: None, ..config.clone() };
    let mut stranger = Server::new(&nobody)?.connect().await?;
    let mut liar = Server::new(&Kubeconfig { token: Some("x".to_owned()), ..nobody })?.connect().await?;
    let one = format!("{MAPS}/audited");
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "audited" } });
    let (created, made) = ask(&mut admin, Method::POST, MAPS, &[PLAIN], &map).await?;
    let mut changed = made.clone();
    changed["data"] = json!({ "x": "secret" });
    let generated = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "audited-" } });
    let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": { "nonResourceAttributes": { "path": "/", "verb": "get" } } });
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let by_name = format!("{MAPS}?fieldSelector=metadata.name%3Daudited");
    let watch = format!("{by_name}&watch=true&timeoutSeconds=1&resourceVersion=0");
    let nothing = Value::Null;
    let asked: [Asked<'_>; 16] = [
        (Method::GET, &one, &[("audit-id", OWN_ID)], &nothing),
        (Method::HEAD, &one, &[], &nothing),
        (Method::GET, &by_name, &[("x-forwarded-for", "192.0.2.7, 192.0.2.8")], &nothing),
        (Method::PUT, &one, &[PLAIN], &changed),
        (Method::PATCH, &one, &[MERGE], &json!({ "data": { "y": "1" } })),
        (Method::PUT, &one, &[PLAIN], &changed),
        (Method::POST, MAPS, &[PLAIN], &map),
        (Method::POST, MAPS, &[PLAIN], &generated),
        (Method::POST, reviews, &[PLAIN], &review),
        (Method::GET, &format!("{MAPS}/none"), &[], &nothing),
        (Method::GET, "/version", &[], &nothing),
        (Method::GET, "/nowhere", &[], &nothing),
        (Method::GET, MAPS, &[("impersonate-user", "alice"), ("impersonate-group", "people")], &nothing),
        (Method::GET, "/api/v1/namespaces/default", &[], &nothing),
        (Method::GET, &watch, &[], &nothing),
        (Method::DELETE, &one, &[], &nothing),
    ];
    let mut answers = vec![created];
    for (method, path, headers, body) in asked {
        answers.push(ask(&mut admin, method, path, headers, body).await?.0);
    }
    answers.push(ask(&mut stranger, Method::GET, "/api/v1/secrets", &[], &Value::Null).await?.0);
    answers.push(ask(&mut liar, Method::GET, MAPS, &[], &Value::Null).await?.0);
    Ok(answers)
}

async fn ask(
    connection: &mut Connection,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<(u16, Value)> {
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    let headers = [&[("user-agent", AGENT)], headers].concat();
    let answer = connection.ask(method, path, &headers, body).await?;
    Ok((answer.status().as_u16(), serde_json::from_slice(answer.body()).unwrap_or_default()))
}

/// The events of those requests, as they were written.
///
/// # Errors
/// When a line is no event.
pub fn events(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let mut events = Vec::new();
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).with_context(|| format!("no event: {line}"))?;
        ensure!(event["kind"] == "Event" && event["apiVersion"] == "audit.k8s.io/v1", "no event: {line}");
        if event["userAgent"] == AGENT {
            events.push(event);
        }
    }
    Ok(events)
}

/// An event without what no two servers have in common: ids, times, and who the admin is.
#[must_use]
pub fn comparable(mut event: Value) -> Value {
    for key in ["requestReceivedTimestamp", "stageTimestamp"] {
        let is_time = event[key].as_str().is_some_and(|time| time.len() == 27 && time.ends_with('Z'));
        event[key] = if is_time { "a time".into() } else { event[key].clone() };
    }
    if event["auditID"].as_str().is_some_and(|id| id.len() == 36) {
        event["auditID"] = "an id".into();
    }
    for path in ["/objectRef/uid", "/objectRef/resourceVersion", "/responseStatus/details/uid"] {
        if let Some(value) = event.pointer_mut(path) {
            *value = "some".into();
        }
    }
    let is_admin = event["user"]["groups"].as_array().is_some_and(|all| all.iter().any(|one| one == "system:masters"));
    if is_admin {
        event["user"] = "the admin".into();
    }
    event
}
