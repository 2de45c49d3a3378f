//! Defaulting: absent fields get their defaults, and nulls that may not be null get theirs or go.

use serde_json::Value;

use crate::node::{Additional, Node};

/// Drops the nulls that are neither allowed nor have a default, then fills in the defaults.
pub(crate) fn default(node: &Node, value: &mut Value) {
    drop_nulls(node, value);
    fill(node, value);
}

/// Removes fields that are null, may not be, and have no default. Items of lists stay: their places count.
pub(crate) fn drop_nulls(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|key, field| {
            let Some(node) = node.field(key) else { return true };
            if field.is_null() && !node.nullable && node.default.is_none() {
                return false;
            }
            drop_nulls(node, field);
            true
        }),
        Value::Array(items) => {
            if let Some(node) = &node.items {
                items.iter_mut().for_each(|item| drop_nulls(node, item));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill(node: &Node, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, property) in &node.properties {
                let Some(default) = &property.default else { continue };
                if map.get(&**key).is_none_or(|field| field.is_null() && !property.nullable) {
                    map.insert(String::from(&**key), (**default).clone());
                }
            }
            for (key, field) in map.iter_mut() {
                match (node.property(key), &node.additional) {
                    (Some(property), _) => fill(property, field),
                    (None, Additional::Schema(additional)) => fill_element(additional, field),
                    (None, Additional::Unset | Additional::Bool(_)) => {}
                }
            }
        }
        Value::Array(items) => {
            if let Some(node) = &node.items {
                items.iter_mut().for_each(|item| fill_element(node, item));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// An element of a list or map is there already; only a null that may not be one is replaced.
fn fill_element(node: &Node, value: &mut Value) {
    if value.is_null()
        && !node.nullable
        && let Some(default) = &node.default
    {
        *value = (**default).clone();
    }
    fill(node, value);
}
