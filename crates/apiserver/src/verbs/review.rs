//! Reviews: questions that are asked by creating an object, answered in its status, and never stored.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Call;
use crate::body::Body;
use crate::identity::{Attributes, Identity};
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
    review["status"] = match call.resource.plural.as_str() {
        "selfsubjectreviews" => json!({ "userInfo": call.identity.to_json() }),
        "tokenreviews" => token(call, &review["spec"]),
        "selfsubjectrulesreviews" => rules(call, &review),
        "selfsubjectaccessreviews" => access(call, &call.identity.clone(), &review["spec"]),
        _ => {
            let spec = &review["spec"];
            let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
            let user = spec["user"].as_str().unwrap_or_default().to_owned();
            let who = Identity { user, groups: groups.collect(), ..Identity::default() };
            access(call, &who, spec)
        }
    };
    call.answer_value(StatusCode::CREATED, &review)
}

fn token(call: &Call, spec: &Value) -> Value {
    let named = spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let mut audiences: Vec<String> = named.collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    match call.server.who_shows(spec["token"].as_str().unwrap_or_default(), &audiences) {
        Some(Shown { identity, audiences }) => {
            json!({ "authenticated": true, "user": identity.to_json(), "audiences": audiences })
        }
        None => json!({ "user": {}, "error": "invalid bearer token" }),
    }
}

fn access(call: &Call, who: &Identity, spec: &Value) -> Value {
    let text = |place: &str, field: &str| spec[place][field].as_str().unwrap_or_default().to_owned();
    let resource = |field: &str| text("resourceAttributes", field);
    let (verb, path) = if spec["nonResourceAttributes"].is_object() {
        (text("nonResourceAttributes", "verb"), text("nonResourceAttributes", "path"))
    } else {
        (resource("verb"), String::new())
    };
    let (group, version, plural, sub) =
        (resource("group"), resource("version"), resource("resource"), resource("subresource"));
    let (namespace, name) = (resource("namespace"), resource("name"));
    let what = Attributes {
        verb: &verb,
        group: &group,
        version: &version,
        resource: &plural,
        subresource: &sub,
        namespace: &namespace,
        name: &name,
        path: &path,
    };
    json!({ "allowed": call.server.authorizer.allows(who, what) })
}

fn rules(call: &Call, _review: &Value) -> Value {
    let any = Attributes {
        verb: "*",
        group: "*",
        version: "*",
        resource: "*",
        subresource: "",
        namespace: "",
        name: "",
        path: "",
    };
    let all = call.server.authorizer.allows(&call.identity, any);
    let resource_rules =
        if all { json!([{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }]) } else { json!([]) };
    let other_rules = if all { json!([{ "verbs": ["*"], "nonResourceURLs": ["*"] }]) } else { json!([]) };
    json!({ "resourceRules": resource_rules, "nonResourceRules": other_rules, "incomplete": false })
}
