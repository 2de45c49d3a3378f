//! List types and map types.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{flag, list, object, text};
use crate::error::FieldError;

const LIST: &str = "x-kubernetes-list-type";
const MAP: &str = "x-kubernetes-map-type";
const KEYS: &str = "x-kubernetes-list-map-keys";

pub(super) fn check(schema: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    if let Some(found) = schema.get(MAP).filter(|found| !found.is_null()) {
        must_be(kind, "object", MAP, path, errors);
        one_of(found, &["atomic", "granular"], &format!("{path}.{MAP}"), errors);
    }
    let list_type = schema.get(LIST).filter(|found| !found.is_null());
    if let Some(found) = list_type {
        if kind == "array" {
            if found == "set" {
                atomic_items(schema, path, errors);
            }
        } else {
            must_be(kind, "array", LIST, path, errors);
        }
        one_of(found, &["atomic", "set", "map"], &format!("{path}.{LIST}"), errors);
    }
    if !list(schema, KEYS).is_empty() {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.push(FieldError::required(format!("{path}.{LIST}"), detail)),
            Some(found) if found != "map" => {
                errors.push(FieldError::invalid(format!("{path}.{LIST}"), found, detail));
            }
            Some(_) => {}
        }
    }
    if list_type.is_some_and(|found| found == "map") {
        map_keys(schema, path, errors);
    }
    identities(schema, path, errors);
}

fn must_be(kind: &str, expected: &str, because: &str, path: &str, errors: &mut Vec<FieldError>) {
    let detail = format!("must be {expected} if {because} is specified");
    let path = format!("{path}.type");
    if kind.is_empty() {
        errors.push(FieldError::required(path, detail));
    } else if kind != expected {
        errors.push(FieldError::invalid(path, &Value::from(kind), detail));
    }
}

fn one_of(found: &Value, supported: &[&str], path: &str, errors: &mut Vec<FieldError>) {
    if !supported.iter().any(|known| found == *known) {
        let supported: Vec<Value> = supported.iter().map(|known| Value::from(*known)).collect();
        errors.push(FieldError::not_supported(path, found, supported.iter()));
    }
}

/// The items of a set are compared whole, so they must be changed whole.
fn atomic_items(schema: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let Some(items) = object(schema, "items") else { return };
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = items.get(LIST).cloned().unwrap_or_default();
    match text(items, "type") {
        "array" if !list_type.is_null() && list_type != "atomic" => {
            errors.push(FieldError::invalid(format!("{path}.items.{LIST}"), &list_type, detail));
        }
        "object" if text(items, MAP) != "atomic" => {
            errors.push(FieldError::invalid(format!("{path}.items.{MAP}"), &list_type, detail));
        }
        _ => {}
    }
}

fn map_keys(schema: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let keys = list(schema, KEYS);
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.{KEYS}"), detail));
    }
    let Some(items) = object(schema, "items") else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), detail));
        return;
    };
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), &Value::from(kind), detail));
        return;
    }
    let shown = Value::from(keys);
    let mut seen = BTreeSet::new();
    for key in keys.iter().filter_map(Value::as_str) {
        match object(items, "properties").and_then(|properties| object(properties, key)) {
            Some(property) if matches!(text(property, "type"), "array" | "object") => {
                let path = format!("{path}.items.properties[{key}].type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(path, &Value::from(kind), detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(format!("{path}.{KEYS}"), &shown, detail));
            }
        }
        if !seen.insert(key) {
            errors.push(FieldError::invalid(format!("{path}.{KEYS}"), &shown, "must not contain duplicate entries"));
        }
    }
}

/// What tells items apart must always be there.
fn identities(schema: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let list_type = text(schema, LIST);
    let Some(items) = object(schema, "items").filter(|_| matches!(list_type, "set" | "map")) else { return };
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    for key in list(schema, KEYS).iter().filter_map(Value::as_str) {
        let Some(property) = object(items, "properties").and_then(|properties| object(properties, key)) else {
            continue;
        };
        let path = format!("{path}.items.properties[{key}]");
        let required = list(items, "required").iter().any(|required| required == key);
        if !required && property.get("default").is_none_or(Value::is_null) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                          property";
            errors.push(FieldError::required(format!("{path}.default"), detail));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
        }
    }
}
