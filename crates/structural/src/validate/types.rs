//! Types and enumerations.

use serde_json::Value;

use super::outcome::Outcome;
use crate::error::{FieldError, Reason};
use crate::node::{Node, Type};

/// Whether the value has the node's type.
pub(super) fn check(node: &Node, value: &Value, path: &str) -> Outcome {
    let Some(kind) = node.kind else { return Outcome::passed() };
    if value.is_null() {
        return if node.nullable { Outcome::passed() } else { mismatch(path, kind.as_str(), "null") };
    }
    if fits(kind, value) {
        return Outcome::passed();
    }
    let (name, width) = describe(value);
    match node.limits.as_ref().and_then(|limits| limits.format.as_ref()) {
        // Of values that are neither strings nor lists the format is told, not the type.
        Some(format) if !matches!(value, Value::String(_) | Value::Array(_)) => mismatch(path, format.name(), width),
        _ => mismatch(path, kind.as_str(), name),
    }
}

/// Whether the value is one of those that are enumerated.
pub(super) fn allowed(node: &Node, value: &Value, path: &str) -> Outcome {
    let allowed = node.limits.as_ref().map_or(&[][..], |limits| &limits.allowed);
    if allowed.is_empty() || allowed.iter().any(|candidate| same(candidate, value)) {
        return Outcome::default();
    }
    Outcome::failed(FieldError::not_supported(path, value, allowed.iter()))
}

fn fits(kind: Type, value: &Value) -> bool {
    match (kind, value) {
        (Type::Object, Value::Object(_))
        | (Type::Array, Value::Array(_))
        | (Type::String | Type::IntOrString, Value::String(_))
        | (Type::Boolean, Value::Bool(_))
        | (Type::Number, Value::Number(_)) => true,
        (Type::Integer | Type::IntOrString, Value::Number(number)) => {
            number.is_i64() || number.as_f64().is_some_and(super::numbers::is_whole)
        }
        _ => false,
    }
}

/// A null is never one of the enumerated values, even if it is listed.
fn same(candidate: &Value, value: &Value) -> bool {
    match (candidate, value) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
            (Some(one), Some(other)) => one == other,
            _ => one.as_f64() == other.as_f64(),
        },
        _ => candidate == value,
    }
}

/// The type of a value, and its width where it is a number.
fn describe(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn mismatch(path: &str, expected: &str, found: &str) -> Outcome {
    Outcome::failed(FieldError::with_value(
        path,
        Reason::TypeInvalid,
        &Value::from(found),
        format_args!("{path} in body must be of type {expected}: \"{found}\""),
    ))
}
