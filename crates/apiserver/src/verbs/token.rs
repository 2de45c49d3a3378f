//! POST of a `TokenRequest` to a service account: a token that ends by itself, or with what it is bound to.

use http::{Response, StatusCode};
use jiff::SignedDuration;
use serde_json::{Value, json};
use structural::{FieldError, Reason};

use super::Call;
use crate::body::Body;
use crate::clock;
use crate::identity::Stored;
use crate::meta;
use crate::request::WriteOptions;
use crate::status::{Status, Subject};
use crate::tokens::{Bound, Grant, ISSUER};

const SHORTEST: i64 = 10 * 60;
const LONGEST: i64 = 1 << 32;
const USUAL: i64 = 60 * 60;

pub(super) fn run(call: &mut Call) -> Result<Response<Body>, Status> {
    WriteOptions::parse(&call.query, "CreateOptions")?;
    let mut request = call.document_of(("authentication.k8s.io", "v1", "TokenRequest"))?;
    check_place(call, &request)?;
    let spec = &request["spec"];
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(USUAL);
    check_seconds(seconds)?;
    let account = call.current()?.value().map_err(Status::internal)?;
    let snapshot = call.server.store.snapshot();
    let bound = bound(call, &spec["boundObjectRef"], Stored(&snapshot))?;
    let named = spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let mut audiences: Vec<String> = named.collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let now = call.server.clock.now();
    let until = now.saturating_add(SignedDuration::from_secs(seconds)).map_err(Status::internal)?;
    let grant = Grant {
        namespace: call.namespace(),
        account: call.name(),
        account_uid: meta::text(&account, "uid"),
        audiences: &audiences,
        bound: &bound,
        id: &call.server.chance.uid(),
        from: now,
        until,
    };
    let token = grant.sign(&call.server.token_key).map_err(Status::internal)?;
    request["kind"] = "TokenRequest".into();
    request["apiVersion"] = "authentication.k8s.io/v1".into();
    request["metadata"] = json!({
        "name": call.name(), "namespace": call.namespace(), "uid": grant.account_uid,
        "creationTimestamp": clock::text(now),
    });
    request["spec"]["audiences"] = json!(audiences);
    request["spec"]["expirationSeconds"] = seconds.into();
    // Told even when there is none.
    request["spec"]["boundObjectRef"] = request["spec"]["boundObjectRef"].take();
    request["status"] = json!({ "token": token, "expirationTimestamp": clock::text(until) });
    call.answer_value(StatusCode::CREATED, &request)
}

/// What the body says of itself must be what the path says.
fn check_place(call: &Call, request: &Value) -> Result<(), Status> {
    let said = |field: &str| request["metadata"][field].as_str().unwrap_or_default();
    if !said("name").is_empty() && said("name") != call.name() {
        let problem = format!("Invalid value: {:?}: must match the service account name if specified", said("name"));
        return Err(invalid(call.name(), "metadata.name", problem));
    }
    if !said("namespace").is_empty() && said("namespace") != call.namespace() {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(why));
    }
    Ok(())
}

fn check_seconds(seconds: i64) -> Result<(), Status> {
    let why = match seconds {
        ..SHORTEST => "may not specify a duration less than 10 minutes",
        seconds if seconds > LONGEST => "may not specify a duration larger than 2^32 seconds",
        _ => return Ok(()),
    };
    Err(invalid("", "spec.expirationSeconds", format!("Invalid value: {seconds}: {why}")))
}

fn invalid(name: &str, field: &str, message: String) -> Status {
    let subject = Subject { group: "authentication.k8s.io", resource: "tokenrequests", kind: "TokenRequest" };
    Status::invalid(subject, name, &[FieldError { field: field.to_owned(), reason: Reason::Invalid, message }])
}

/// What the token is to be bound to; a pod brings its node along.
fn bound(call: &Call, reference: &Value, stored: Stored<'_>) -> Result<Vec<Bound>, Status> {
    if reference.is_null() {
        return Ok(Vec::new());
    }
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (kind, table, place) = match (text("apiVersion"), text("kind")) {
        ("v1" | "", "Pod") => ("pod", "pods", call.namespace()),
        ("v1" | "", "Secret") => ("secret", "secrets", call.namespace()),
        ("v1" | "", "Node") => ("node", "nodes", ""),
        (version, kind) => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let named = format!("{group}/{version}, Kind={kind}");
            return Err(Status::bad_request(format!("cannot bind token to object of type {named}")));
        }
    };
    let subject = Subject { group: "", resource: table, kind: text("kind") };
    let object = stored.get("", table, place, text("name")).ok_or_else(|| Status::not_found(subject, text("name")))?;
    let uid = meta::text(&object, "uid");
    if !text("uid").is_empty() && text("uid") != uid {
        let said = text("uid");
        return Err(Status::conflict(
            Subject { resource: text("kind"), ..subject },
            text("name"),
            format!(
                "the UID in the bound object reference ({said}) does not match the UID in record. The object might have been deleted and then recreated"
            ),
        ));
    }
    let mut all = vec![Bound { kind, name: text("name").to_owned(), uid: uid.to_owned() }];
    if kind == "pod" {
        let account = object["spec"]["serviceAccountName"].as_str().unwrap_or_default();
        if account != call.name() {
            return Err(Status::bad_request(format!(
                "cannot bind token for serviceaccount \"{}\" to pod running with different serviceaccount name.",
                call.name()
            )));
        }
        let node = object["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
        if let Some((name, node)) = node.and_then(|name| Some((name, stored.get("", "nodes", "", name)?))) {
            all.push(Bound { kind: "node", name: name.to_owned(), uid: meta::text(&node, "uid").to_owned() });
        }
    }
    Ok(all)
}
