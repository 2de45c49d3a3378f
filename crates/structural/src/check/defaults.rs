//! Defaults must be valid by the schema that they are part of, and must not hold what pruning would remove.

use serde_json::{Map, Value};

use super::{flag, object};
use crate::error::FieldError;
use crate::intern::Interner;
use crate::validate::NOWHERE;
use crate::{parse, prune, validate};

pub(super) fn check(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Value::Object(root) = schema {
        walk(root, path, &mut errors);
    }
    errors
}

fn walk(schema: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        errors.extend(default_holds(schema, default, &format!("{path}.default")));
    }
    // Maps may not have defaults for their values in resources' metadata, and elsewhere they are not checked.
    if let Some(items) = object(schema, "items") {
        walk(items, &format!("{path}.items"), errors);
    }
    for (name, property) in object(schema, "properties").into_iter().flatten() {
        if let Value::Object(property) = property {
            walk(property, &format!("{path}.properties[{name}]"), errors);
        }
    }
}

fn default_holds(schema: &Map<String, Value>, default: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let embedded = flag(schema, "x-kubernetes-embedded-resource");
    let node = parse::parse(&Value::Object(schema.clone()), &mut Interner::new());
    let mut pruned = default.clone();
    prune::prune(&node, &mut pruned, embedded);
    if pruned != *default {
        errors.push(FieldError::invalid(path, default, "must not have unknown fields"));
    }
    let found = validate::check_embedded(&node, default, "");
    let found = if found.is_empty() { validate::fragment(&node, default, "") } else { found };
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
