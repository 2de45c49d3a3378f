//! Reviews: questions that are asked by creating an object, answered in its status, and never stored.

mod access;

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Call;
use crate::body::Body;
use crate::clock;
use crate::registry::Resource;
use crate::request::WriteOptions;
use crate::status::Status;
use crate::tokens::{ISSUER, Shown};

pub(super) fn is_review(resource: &Resource) -> bool {
    matches!(resource.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io")
}

pub(super) fn run(call: &mut Call) -> Result<Response<Body>, Status> {
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let mut review = call.object(options.validation)?;
    super::update::check_namespace(call, &review)?;
    if let Some(namespace) = call.target.namespace.clone() {
        review["metadata"]["namespace"] = namespace.into();
    }
    review["status"] = match call.resource.plural.as_str() {
        "selfsubjectreviews" => {
            review["metadata"]["creationTimestamp"] = clock::text(call.server.clock.now()).into();
            json!({ "userInfo": call.identity.to_json() })
        }
        "tokenreviews" => token(call, &review["spec"])?,
        "selfsubjectrulesreviews" => {
            let rules = access::rules(call, &review)?;
            // The question is not repeated.
            review["spec"] = json!({});
            rules
        }
        _ => access::status(call, &review)?,
    };
    call.answer_value(StatusCode::CREATED, &review)
}

fn token(call: &Call, spec: &Value) -> Result<Value, Status> {
    let shown = spec["token"].as_str().unwrap_or_default();
    if shown.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let named = spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let mut audiences: Vec<String> = named.collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    Ok(match call.server.who_shows(shown, &audiences) {
        Some(Shown { identity, audiences }) => {
            json!({ "authenticated": true, "user": identity.to_json(), "audiences": audiences })
        }
        None => json!({ "user": {}, "error": "invalid bearer token" }),
    })
}
