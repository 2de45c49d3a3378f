//! Checks of a CRD's schema, as the API server makes them when the CRD is created.
//!
//! Flow: the invariants of structural schemas, then the defaults, then each schema by itself (`nodes`), and with it the
//! rules. What could only fail because of an earlier error is not looked at.

mod costs;
mod defaults;
mod invariants;
mod lists;
mod nodes;
mod rules;

use serde_json::{Map, Value};

use crate::error::FieldError;
use crate::intern::Interner;
use crate::node::{DEPTH, Node, Shared};
use crate::parse;

/// How many problems of a schema are told.
const MOST_ERRORS: usize = crate::validate::MOST_ERRORS;

/// The problems of a schema that stands at `path`, as far as they are told.
pub(crate) fn check(schema: &Value, path: &str) -> Vec<FieldError> {
    let Value::Object(root) = schema else {
        return vec![FieldError::invalid(path, schema, "must be an object")];
    };
    if depth(schema) > DEPTH {
        return vec![FieldError::forbidden(path, format_args!("must not nest deeper than {DEPTH} levels"))];
    }
    let mut errors = Vec::new();
    if flag(root, "nullable") {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    // Read once: a schema may have defaults and rules on each of its levels.
    let node = parse::parse(schema, &mut Interner::new());
    let mut structural = Vec::new();
    // Constructs that structural schemas do not have are told below, and make this step meaningless.
    if !nodes::has_unsupported(schema) {
        structural = invariants::check(root, path);
        if structural.is_empty() {
            structural = defaults::check(root, &node, path);
        }
    }
    let sound = structural.is_empty() && !nodes::has_unsupported(schema);
    errors.extend(structural);
    errors.extend(nodes::check(root, node, path, sound));
    errors
}

fn depth(value: &Value) -> usize {
    // Schemas that arrive were parsed from JSON, which bounds their depth, so this may recurse.
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, inner)| match key.as_str() {
                "properties" => {
                    inner.as_object().into_iter().flat_map(Map::values).map(depth).max().unwrap_or_default()
                }
                "allOf" | "anyOf" | "oneOf" => {
                    inner.as_array().into_iter().flatten().map(depth).max().unwrap_or_default()
                }
                "items" | "additionalProperties" | "not" => depth(inner),
                _ => 0,
            })
            .max()
            .unwrap_or_default()
            .saturating_add(1),
        _ => 0,
    }
}

/// Whether enough was found: nobody mends more at a time, and each problem has a path of its own.
fn enough(errors: &[FieldError]) -> bool {
    errors.len() >= MOST_ERRORS
}

fn flag(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn text<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a str {
    schema.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn object<'a>(schema: &'a Map<String, Value>, key: &str) -> Option<&'a Map<String, Value>> {
    schema.get(key).and_then(Value::as_object)
}

fn list<'a>(schema: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether a keyword says something; Kubernetes' own types leave out what is empty or false.
fn set(schema: &Map<String, Value>, key: &str) -> bool {
    schema.get(key).is_some_and(|value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    })
}

/// The alternatives below `allOf`, `anyOf`, `oneOf` and `not`, with their paths.
fn junctors<'a>(schema: &'a Map<String, Value>, path: &str) -> Vec<(String, &'a Map<String, Value>)> {
    let mut nested = Vec::new();
    for key in ["allOf", "anyOf", "oneOf"] {
        let branches = list(schema, key).iter().enumerate();
        nested.extend(
            branches.filter_map(|(index, branch)| Some((format!("{path}.{key}[{index}]"), branch.as_object()?))),
        );
    }
    nested.extend(object(schema, "not").map(|not| (format!("{path}.not"), not)));
    nested
}

/// The nodes of those alternatives, in the same order.
fn junctor_nodes(schema: &Map<String, Value>, node: &Node) -> Vec<Shared> {
    let Some(read) = &node.junctors else { return Vec::new() };
    let mut nodes = Vec::new();
    for (key, all) in [("allOf", &read.all_of), ("anyOf", &read.any_of), ("oneOf", &read.one_of)] {
        let branches = list(schema, key).iter().zip(all);
        nodes.extend(branches.filter(|(branch, _)| branch.is_object()).map(|(_, node)| node.clone()));
    }
    nodes.extend(read.not.clone());
    nodes
}
