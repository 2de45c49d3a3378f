//! What cells are made of.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::table::since;

/// The text at a pointer; empty if there is none.
pub(super) fn at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The same, as a cell.
pub(super) fn text(object: &Value, pointer: &str) -> Value {
    at(object, pointer).into()
}

/// What is at a pointer, written out; something else if nothing is there.
pub(super) fn or(object: &Value, pointer: &str, fallback: &str) -> String {
    match object.pointer(pointer) {
        Some(Value::String(text)) if !text.is_empty() => text.clone(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        _ => fallback.to_owned(),
    }
}

/// The number at a pointer, or zero.
pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// Whether it is true at a pointer.
pub(super) fn flag(object: &Value, pointer: &str, fallback: bool) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or(fallback)
}

/// Whether there is anything at a pointer.
pub(super) fn has(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).is_some_and(|value| !value.is_null())
}

/// The list at a pointer.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The map at a pointer.
pub(super) fn map<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.pointer(pointer).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

/// How many there are in the list at a pointer.
pub(super) fn size(object: &Value, pointer: &str) -> Value {
    items(object, pointer).len().into()
}

/// One field of each of a list.
pub(super) fn joined(object: &Value, pointer: &str, field: &str) -> Value {
    texts(items(object, pointer), field).join(",").into()
}

/// One field of each, by pointer: `""` is the item itself.
pub(super) fn texts<'a>(items: &'a [Value], pointer: &str) -> Vec<&'a str> {
    items.iter().map(|item| at(item, pointer)).collect()
}

/// The first few of a list, and how many more there are.
pub(super) fn first_of(all: &[String], most: usize, separator: &str) -> String {
    match all.len().checked_sub(most) {
        None | Some(0) => all.join(separator),
        Some(more) => format!("{} + {more} more...", all[..most].join(separator)),
    }
}

/// The labels at a pointer.
pub(super) fn labels(object: &Value, pointer: &str) -> Value {
    let mut all: Vec<_> =
        map(object, pointer).map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    all.sort_unstable();
    if all.is_empty() { "<none>".into() } else { all.join(",").into() }
}

/// How long ago the time at a pointer was.
pub(super) fn ago(object: &Value, pointer: &str, now: Timestamp) -> String {
    match at(object, pointer) {
        "" => "<unknown>".to_owned(),
        time => since(time, now),
    }
}

/// The first condition of a type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").iter().find(|condition| condition["type"] == kind)
}

/// Whether the first condition of a type is true.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Whether the object is on its way out.
pub(super) fn is_deleted(object: &Value) -> bool {
    has(object, "/metadata/deletionTimestamp")
}

/// The value of an annotation.
pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key)?.as_str()
}

/// The name, marked if others are made with it unless they say otherwise.
pub(super) fn name_or_default(object: &Value, keys: &[&str]) -> Value {
    let name = at(object, "/metadata/name");
    let is_default = keys.iter().any(|key| annotation(object, key) == Some("true"));
    if is_default { format!("{name} (default)").into() } else { name.into() }
}
