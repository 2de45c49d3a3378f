//! Reviews of access: may somebody do this, and what may they do at all?

use serde_json::{Map, Value, json};
use structural::{FieldError, Reason};

use super::super::Call;
use crate::identity::{Attributes, Identity};
use crate::rbac;
use crate::status::{Status, Subject};

/// The answer to a review of one request: of the caller's own, or of the subject's that the review names.
pub(super) fn status(call: &Call, review: &Value) -> Result<Value, Status> {
    let own = call.resource.plural == "selfsubjectaccessreviews";
    let errors = problems(call, review, own);
    if !errors.is_empty() {
        return Err(Status::invalid(Subject { group: &call.resource.group, resource: "", kind: "" }, "", &errors));
    }
    let spec = &review["spec"];
    if own {
        return Ok(decide(call, &call.identity, spec));
    }
    let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
    let who = Identity { user: text(&spec["user"]).to_owned(), groups: groups.collect(), ..Identity::default() };
    Ok(decide(call, &who, spec))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn decide(call: &Call, who: &Identity, spec: &Value) -> Value {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let verb = if path.is_object() { &path["verb"] } else { &resource["verb"] };
    let what = Attributes {
        verb: text(verb),
        group: text(&resource["group"]),
        version: text(&resource["version"]),
        resource: text(&resource["resource"]),
        subresource: text(&resource["subresource"]),
        namespace: text(&resource["namespace"]),
        name: text(&resource["name"]),
        path: text(&path["path"]),
    };
    let decision = call.server.decide(who, what);
    let mut status = json!({ "allowed": decision.allowed });
    if !decision.reason.is_empty() {
        status["reason"] = decision.reason.into();
    }
    status
}

/// What is wrong with a question.
fn problems(call: &Call, review: &Value, own: bool) -> Vec<FieldError> {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let invalid = |field: &str, value: &Value, problem: &str| FieldError {
        field: field.to_owned(),
        reason: Reason::Invalid,
        message: format!("Invalid value: {value}: {problem}"),
    };
    let shown_path = || json!({ "Path": text(&path["path"]), "Verb": text(&path["verb"]) });
    let mut errors = Vec::new();
    if resource.is_object() && path.is_object() {
        let problem = "cannot be specified in combination with resourceAttributes";
        errors.push(invalid("spec.nonResourceAttributes", &shown_path(), problem));
    } else if !resource.is_object() && !path.is_object() {
        let problem = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(invalid("spec.resourceAttributes", &Value::Null, problem));
    }
    let nobody = text(&spec["user"]).is_empty() && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if !own && nobody {
        errors.push(invalid("spec.user", &"".into(), "at least one of user or group must be specified"));
    }
    if is_described(&review["metadata"]) {
        errors.push(invalid("metadata", &review["metadata"], "must be empty"));
    }
    if call.resource.namespaced {
        let namespace = &resource["namespace"];
        if resource.is_object() && text(namespace) != call.namespace() {
            let field = "spec.resourceAttributes.namespace";
            errors.push(invalid(field, &text(namespace).into(), "must match metadata.namespace"));
        }
        if path.is_object() {
            errors.push(invalid("spec.nonResourceAttributes", &shown_path(), "disallowed on this kind of request"));
        }
    }
    errors
}

/// Whether metadata says anything beyond a namespace.
fn is_described(metadata: &Value) -> bool {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    let none = Map::new();
    metadata.as_object().unwrap_or(&none).iter().any(|(field, value)| field != "namespace" && !empty(value))
}

/// All rules that the caller has in a namespace.
pub(super) fn rules(call: &Call, review: &Value) -> Result<Value, Status> {
    let namespace = text(&review["spec"]["namespace"]);
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (rules, missing) = call.server.rbac.rules(&call.identity, namespace, &call.server.store.snapshot());
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in rules {
        let list = if rule.paths.is_empty() { &mut resources } else { &mut paths };
        list.push(serde_json::to_value(rule).map_err(Status::internal)?);
    }
    let mut status = json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false });
    if let Some(problem) = rbac::absent(&missing) {
        status["evaluationError"] = problem.into();
    }
    Ok(status)
}
