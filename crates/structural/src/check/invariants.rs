//! What makes a schema structural.

use serde_json::{Map, Value, json};

use super::{enough, flag, junctors, list, object, set, text};
use crate::error::FieldError;
use crate::node::compile;
use crate::place::below;

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

pub(super) fn check(schema: &Map<String, Value>, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    structural(schema, Level::Root, path, &mut errors);
    // Only the root's own alternatives are compared with what it specifies, as in Kubernetes.
    for (place, branch) in junctors(schema, path) {
        complete(branch, Some(schema), path, &place, &mut errors);
    }
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

fn structural(schema: &Map<String, Value>, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    if enough(errors) {
        return;
    }
    let kind = text(schema, "type");
    match object(schema, "items") {
        Some(items) => structural(items, Level::Item, &format!("{path}.items"), errors),
        None if kind == "array" => errors.push(FieldError::required(format!("{path}.items"), "must be specified")),
        None => {}
    }
    for (name, property) in object(schema, "properties").into_iter().flatten() {
        if let Value::Object(property) = property {
            structural(property, Level::Field, &below(path, format_args!(".properties[{name}]")), errors);
        }
    }
    let additional = schema.get("additionalProperties").filter(|additional| !additional.is_null());
    if let Some(additional) = additional {
        let path = format!("{path}.additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(path.as_str(), "must not be used at the root"));
        }
        if let Value::Object(additional) = additional {
            structural(additional, Level::Field, &path, errors);
        }
        if flag(schema, EMBEDDED) {
            errors.push(FieldError::forbidden(path, "must not be used if x-kubernetes-embedded-resource is set"));
        }
    }
    extensions(schema, path, errors);
    alternatives(schema, path, errors);
    pattern(schema, path, errors);
    types(schema, kind, level, path, errors);
    metadata(schema, level, path, errors);
}

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

fn extensions(schema: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for key in [PRESERVE, EMBEDDED] {
        if flag(schema, INT_OR_STRING) && flag(schema, key) {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(format!("{path}.{key}"), &Value::Bool(true), detail));
        }
    }
}

fn pattern(schema: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let pattern = text(schema, "pattern");
    if let Err(problem) = compile(pattern) {
        let problem = problem.to_string();
        // The parser draws the pattern and points into it; its last line says what is wrong.
        let reason = match problem.lines().last().unwrap_or_default().trim_start_matches("error: ") {
            "unclosed group" => "missing closing )",
            "unopened group" => "unexpected )",
            "unclosed character class" => "missing closing ]",
            "repetition operator missing expression" => "missing argument to repetition operator",
            other => other,
        };
        let detail =
            format!("must be a valid regular expression, but isn't: error parsing regexp: {reason}: `{pattern}`");
        errors.push(FieldError::invalid(format!("{path}.pattern"), &Value::from(pattern), detail));
    }
}

fn types(schema: &Map<String, Value>, kind: &str, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let path = format!("{path}.type");
    let found = Value::from(kind);
    if flag(schema, EMBEDDED) && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            FieldError::required(path.as_str(), detail)
        } else {
            FieldError::invalid(path.as_str(), &found, detail)
        });
    } else if kind.is_empty() && !flag(schema, INT_OR_STRING) && !flag(schema, PRESERVE) {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(path.as_str(), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(path, &found, "must be object at the root"));
    }
}

/// The API server knows `apiVersion`, `kind` and `metadata` of resources itself.
fn metadata(schema: &Map<String, Value>, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let properties = object(schema, "properties");
    let property = |name: &str| properties.and_then(|properties| object(properties, name));
    let resource = level == Level::Root || flag(schema, EMBEDDED);
    for (name, kind) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some(property) = property(name).filter(|_| resource) else { continue };
        let found = text(property, "type");
        if found != kind {
            let path = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(path, &Value::from(found), format_args!("must be {kind}")));
        }
    }
    if let Some(metadata) = property("metadata").filter(|_| level == Level::Root) {
        let names = |key: &String| matches!(key.as_str(), "name" | "generateName");
        let only_names = object(metadata, "properties").is_none_or(|properties| properties.keys().all(names));
        let others = metadata.keys().filter(|key| set(metadata, key));
        let foreign = others.filter(|key| !matches!(key.as_str(), "type" | "default" | "properties")).count();
        if foreign > 0 || !only_names {
            errors.push(FieldError::forbidden(
                format!("{path}.properties[metadata]"),
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
    if flag(schema, EMBEDDED) && !flag(schema, PRESERVE) && properties.is_none_or(Map::is_empty) {
        errors.push(FieldError::required(
            format!("{path}.properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

/// The alternatives of a schema; the two ways to spell int-or-string are let through.
fn alternatives(schema: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for (place, branch) in junctors(schema, path) {
        if is_int_or_string(list(schema, "anyOf")) && place.starts_with(&format!("{path}.anyOf[")) {
            continue;
        }
        nested(branch, &place, place == format!("{path}.allOf[0]"), errors);
    }
}

fn is_int_or_string(branches: &[Value]) -> bool {
    *branches == [json!({ "type": "integer" }), json!({ "type": "string" })]
}

/// What stands inside an alternative may limit values, and nothing else.
fn nested(schema: &Map<String, Value>, path: &str, first_of_all: bool, errors: &mut Vec<FieldError>) {
    if enough(errors) {
        return;
    }
    for (place, branch) in junctors(schema, path) {
        let skipped = first_of_all && is_int_or_string(list(schema, "anyOf"));
        if !(skipped && place.starts_with(&format!("{path}.anyOf["))) {
            nested(branch, &place, false, errors);
        }
    }
    pattern(schema, path, errors);
    if let Some(items) = object(schema, "items") {
        nested(items, &format!("{path}.items"), false, errors);
    }
    for (name, property) in object(schema, "properties").into_iter().flatten() {
        let path = below(path, format_args!(".properties[{name}]"));
        if name == "metadata" {
            errors.push(FieldError::forbidden(path.as_str(), "must not be specified in a nested context"));
        }
        if let Value::Object(property) = property {
            nested(property, &path, false, errors);
        }
    }
    let forbidden = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        (PRESERVE, "must be false to be structural"),
        (EMBEDDED, "must be false to be structural"),
        (INT_OR_STRING, "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (key, detail) in forbidden {
        if set(schema, key) {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
    }
    if schema.get("default").is_some_and(|default| !default.is_null()) {
        errors.push(FieldError::forbidden(format!("{path}.default"), "must be undefined to be structural"));
    }
}

/// Fields that an alternative limits must be specified outside of it.
fn complete(
    branch: &Map<String, Value>,
    outer: Option<&Map<String, Value>>,
    outer_path: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    if enough(errors) {
        return;
    }
    let Some(outer) = outer else {
        errors.push(FieldError::required(outer_path, format_args!("because it is defined in {path}")));
        return;
    };
    for (place, inner) in junctors(branch, path) {
        complete(inner, Some(outer), outer_path, &place, errors);
    }
    if let Some(items) = object(branch, "items") {
        let outer_path = format!("{outer_path}.items");
        complete(items, object(outer, "items"), &outer_path, &format!("{path}.items"), errors);
    }
    for (name, property) in object(branch, "properties").into_iter().flatten() {
        let Value::Object(property) = property else { continue };
        let outer = object(outer, "properties").and_then(|properties| object(properties, name));
        let step = format_args!(".properties[{name}]");
        complete(property, outer, &below(outer_path, step), &below(path, step), errors);
    }
}
