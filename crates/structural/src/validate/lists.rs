//! Lists: their limits, their items, and the uniqueness that sets and maps promise.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::outcome::Outcome;
use crate::correlate;
use crate::error::{FieldError, Reason};
use crate::node::{ListType, Node};
use crate::place::below;

/// Limits and items of a list.
pub(super) fn check(node: &Node, items: &[Value], old: Option<&Value>, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(inner) = &node.items {
        let old = correlate::OldItems::new(node, old);
        for (index, item) in items.iter().enumerate() {
            outcome.merge(super::value(inner, item, old.find(item), &format!("{path}[{index}]"), false));
        }
    }
    if let Some(limits) = &node.limits {
        let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(least) = limits.min_items
            && size < least
        {
            let detail = format!("{path} in body should have at least {least} items");
            outcome.add(FieldError::invalid(path, &Value::from(size), detail));
        }
        if let Some(most) = limits.max_items
            && size > most
        {
            outcome.add(too_many(path, size, most));
        }
    }
    outcome.matches += 1;
    outcome
}

pub(super) fn too_many(path: &str, size: i64, most: i64) -> FieldError {
    let items = if most == 1 { "item" } else { "items" };
    FieldError::with_value(path, Reason::TooMany, &Value::from(size), format_args!("must have at most {most} {items}"))
}

/// The duplicates in lists that are sets or maps, anywhere in a value.
pub(super) fn unique(node: &Node, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(node, value, path, &mut errors);
    errors
}

fn walk(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if !node.below.unique_lists || errors.len() >= super::MOST_ERRORS {
        return;
    }
    match value {
        Value::Array(items) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => duplicates(items.iter().cloned(), path, errors),
                ListType::Map(keys) => match items.iter().position(|item| !item.is_object() && !item.is_null()) {
                    Some(index) => errors.push(FieldError::invalid(
                        format!("{path}[{index}]"),
                        &items[index],
                        "must be an object for an array of list-type map",
                    )),
                    None => duplicates(items.iter().map(|item| key(item, keys)), path, errors),
                },
            }
            if let Some(inner) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    walk(inner, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        Value::Object(map) => {
            for (name, field) in map {
                if let Some(property) = node.property(name) {
                    walk(property, field, &super::objects::child(path, name), errors);
                } else if let Some(additional) = node.additional_schema() {
                    walk(additional, field, &below(path, format_args!("[{name}]")), errors);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What tells an item of a map from the others.
fn key(item: &Value, keys: &[Box<str>]) -> Value {
    let fields = keys.iter().filter_map(|key| Some((String::from(&**key), item.get(&**key)?.clone())));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Tells the second appearance of each value; further ones say nothing new.
fn duplicates(items: impl Iterator<Item = Value>, path: &str, errors: &mut Vec<FieldError>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, item) in items.enumerate() {
        let times = seen.entry(crate::go::json(&item)).or_default();
        *times += 1;
        if *times == 2 && errors.len() < super::MOST_ERRORS {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), &item));
        }
    }
}
