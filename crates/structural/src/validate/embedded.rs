//! Embedded resources: `apiVersion`, `kind` and `metadata` of objects inside objects.

use serde_json::Value;

use super::names;
use super::objects::child;
use crate::error::FieldError;
use crate::node::Node;
use crate::place::below;

/// Checks the embedded resources in an object.
pub(super) fn check(node: &Node, value: &Value, errors: &mut Vec<FieldError>) {
    walk(node, value, "", errors);
}

/// Checks the embedded resources in a value that has a path already.
pub(crate) fn check_at(node: &Node, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(node, value, path, &mut errors);
    errors
}

fn walk(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !node.below.embedded || errors.len() >= super::MOST_ERRORS {
        return;
    }
    match value {
        Value::Object(map) => {
            if node.embedded {
                resource(value, path, errors);
            }
            for (name, field) in map {
                if let Some(property) = node.property(name) {
                    walk(property, field, &child(path, name), errors);
                } else if let Some(additional) = node.additional_schema() {
                    walk(additional, field, &below(path, format_args!("[{name}]")), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    walk(inner, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn resource(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (name, check) in [("apiVersion", api_version as fn(&str) -> Option<String>), ("kind", kind)] {
        let path = child(path, name);
        match value.get(name) {
            None => errors.push(FieldError::required(path, "")),
            Some(found @ Value::String(text)) => {
                let problem = if text.is_empty() { Some("must not be empty".to_owned()) } else { check(text) };
                errors.extend(problem.map(|problem| FieldError::invalid(path, found, problem)));
            }
            Some(other) => errors.push(FieldError::invalid(path, other, "must be a string")),
        }
    }
    if let Some(found) = value.get("metadata") {
        metadata(found, &child(path, "metadata"), errors);
    }
}

fn api_version(text: &str) -> Option<String> {
    (text.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {text}"))
}

fn kind(text: &str) -> Option<String> {
    let problem = names::label_1035(&text.to_lowercase())?;
    Some(format!("may have mixed case, but should otherwise match: {problem}"))
}

fn metadata(found: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Value::Object(metadata) = found else {
        errors.push(FieldError::invalid(path, found, "must be an object"));
        return;
    };
    for (name, field) in metadata {
        let path = child(path, name);
        match (name.as_str(), field) {
            ("name" | "generateName", Value::String(text)) => {
                let problems = names::path_segment(text, name == "generateName");
                errors.extend(problems.into_iter().map(|problem| FieldError::invalid(path.as_str(), field, problem)));
            }
            ("name" | "generateName" | "namespace", other) if !other.is_string() && !other.is_null() => {
                errors.push(FieldError::invalid(path, other, "must be a string"));
            }
            ("namespace", Value::String(text)) if !text.is_empty() => {
                let problem = names::label_1123(text);
                errors.extend(problem.map(|problem| FieldError::invalid(path, field, problem)));
            }
            ("labels" | "annotations", Value::Object(entries)) => {
                for (key, value) in entries {
                    entry(name, key, value, &path, errors);
                }
            }
            ("labels" | "annotations", other) if !other.is_null() => {
                errors.push(FieldError::invalid(path, other, "must be an object"));
            }
            _ => {}
        }
    }
}

/// A label or an annotation.
fn entry(kind: &str, key: &str, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let lower = key.to_lowercase();
    // Annotations that differ in case only are the same name to some of their readers.
    let checked = if kind == "annotations" { &lower } else { key };
    let problems = names::qualified(checked);
    errors.extend(problems.into_iter().map(|problem| FieldError::invalid(path, &Value::from(key), problem)));
    match value {
        Value::String(text) if kind == "labels" => {
            let problems = names::label_value(text);
            errors.extend(problems.into_iter().map(|problem| FieldError::invalid(path, value, problem)));
        }
        Value::String(_) => {}
        other => errors.push(FieldError::invalid(path, other, "must be a string")),
    }
}
