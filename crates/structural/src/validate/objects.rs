//! Objects: their limits and their fields.

use serde_json::{Map, Value};

use super::lists::too_many;
use super::outcome::Outcome;
use crate::error::FieldError;
use crate::node::{Additional, Node};
use crate::place::below;

pub(super) fn check(node: &Node, map: &Map<String, Value>, old: Option<&Value>, path: &str, root: bool) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(limits) = &node.limits {
        let size = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(least) = limits.min_properties
            && size < least
        {
            let detail = format!("{path} in body should have at least {least} properties");
            outcome.add(FieldError::invalid(path, &Value::from(size), detail));
        }
        if let Some(most) = limits.max_properties
            && size > most
        {
            outcome.add(too_many(path, size, most));
        }
    }
    // Kind and version of a root are never tolerated for being old: both objects were converted to them.
    let old_field = |name: &str| {
        if root && matches!(name, "kind" | "apiVersion") { None } else { old.and_then(|old| old.get(name)) }
    };
    for (name, field) in map {
        match (node.property(name), &node.additional) {
            (Some(property), _) => {
                outcome.merge(super::value(property, field, old_field(name), &child(path, name), false));
            }
            (None, Additional::Schema(inner)) => {
                outcome.merge(super::value(
                    inner,
                    field,
                    old_field(name),
                    &below(path, format_args!(".{name}")),
                    false,
                ));
            }
            (None, Additional::Bool(false)) => {
                let detail = format!("{} in body is a forbidden property", below(path, format_args!(".{name}")));
                outcome.add(FieldError::invalid(path, &Value::from(name.as_str()), detail));
            }
            (None, Additional::Bool(true) | Additional::Unset) => {}
        }
    }
    for name in node.limits.iter().flat_map(|limits| &limits.required) {
        if !map.contains_key(&**name) {
            outcome.add(FieldError::required(child(path, name), ""));
        }
    }
    outcome
}

/// The path of a field.
pub(super) fn child(path: &str, name: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    below(path, format_args!("{dot}{name}"))
}
