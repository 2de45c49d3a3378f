//! Defaults must be valid by the schema that they are part of, and must not hold what pruning would remove.

use serde_json::{Map, Value};

use super::{enough, flag, object};
use crate::error::FieldError;
use crate::node::Node;
use crate::place::below;
use crate::validate::NOWHERE;
use crate::{prune, validate};

pub(super) fn check(schema: &Map<String, Value>, node: &Node, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, node, path, &mut errors);
    errors
}

fn walk(schema: &Map<String, Value>, node: &Node, path: &str, errors: &mut Vec<FieldError>) {
    if enough(errors) {
        return;
    }
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        errors.extend(default_holds(schema, node, default, &format!("{path}.default")));
    }
    // Maps may not have defaults for their values in resources' metadata, and elsewhere they are not checked.
    if let (Some(items), Some(node)) = (object(schema, "items"), &node.items) {
        walk(items, node, &format!("{path}.items"), errors);
    }
    for (name, property) in object(schema, "properties").into_iter().flatten() {
        if let (Value::Object(property), Some(node)) = (property, node.property(name)) {
            walk(property, node, &below(path, format_args!(".properties[{name}]")), errors);
        }
    }
}

fn default_holds(schema: &Map<String, Value>, node: &Node, default: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let mut pruned = default.clone();
    prune::prune(node, &mut pruned, embedded);
    if pruned != *default {
        errors.push(FieldError::invalid(path, default, "must not have unknown fields"));
    }
    let found = validate::check_embedded(node, default, "");
    let found = if found.is_empty() { validate::fragment(node, default, "") } else { found };
    errors.extend(found.into_iter().map(|error| placed(error, path)));
    errors
}

/// An error inside a default, told from the schema's root.
fn placed(mut error: FieldError, path: &str) -> FieldError {
    error.field = match error.field.as_str() {
        "" | NOWHERE => path.to_owned(),
        inner => format!("{path}.{inner}"),
    };
    error
}
