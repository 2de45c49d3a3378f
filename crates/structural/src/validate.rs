//! Validation of objects, in the order and wording of Kubernetes.
//!
//! Flow: the schema's own limits (`object`), embedded resources, unique lists, and last the CEL rules, which are skipped
//! when an error was found that could only confuse them.

mod combinators;
mod embedded;
mod lists;
mod names;
mod numbers;
mod objects;
mod outcome;
mod rules;
mod strings;
mod types;

use serde_json::Value;

use self::outcome::Outcome;
use crate::correlate;
use crate::error::{FieldError, Reason};
use crate::node::Node;

/// How many errors one validation tells at most; a client can mend no more at a time.
pub(crate) const MOST_ERRORS: usize = 100;

/// The field that Kubernetes names for problems of a junctor or a number's format: none.
pub(crate) const NOWHERE: &str = "<nil>";

/// Validates a whole object; `old` is the stored one on update.
pub(crate) fn object(root: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = value(root, object, old, "", true).errors;
    if root.below.embedded {
        embedded::check(root, object, &mut errors);
    }
    if root.below.unique_lists {
        // A list that was stored with duplicates may keep them.
        let tolerated = old.is_some_and(|old| !lists::unique(root, old, "").is_empty());
        if !tolerated {
            errors.extend(lists::unique(root, object, ""));
        }
    }
    if root.below.rules {
        if errors.iter().any(|error| error.reason.blocks_rules()) {
            errors.push(skipped_rules());
        } else {
            errors.extend(rules::check(root, object, old, ""));
        }
    }
    errors.truncate(MOST_ERRORS);
    errors
}

/// Validates one value by its schema alone, for defaults; paths begin with `path`.
pub(crate) fn fragment(node: &Node, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = self::value(node, value, None, path, false).errors;
    if errors.is_empty() && node.below.rules {
        // A default must hold both for a new object and for one that had it before.
        errors = rules::check(node, value, Some(value), path);
        if errors.is_empty() {
            errors = rules::check(node, value, None, path);
        }
    }
    errors
}

pub(crate) use self::embedded::check_at as check_embedded;

fn skipped_rules() -> FieldError {
    FieldError::with_value(
        NOWHERE,
        Reason::Invalid,
        &Value::Null,
        "some validation rules were not checked because the object was invalid; \
         correct the existing errors to complete validation",
    )
}

/// Validates one value and all below it. `old` is what stood in its place, where that can be told.
///
/// Guarantee: what is unchanged is never an error on update (ratcheting).
fn value(node: &Node, value: &Value, old: Option<&Value>, path: &str, root: bool) -> Outcome {
    let outcome = judged(node, value, old, path, root);
    match old {
        Some(old) if !outcome.errors.is_empty() && correlate::equal(value, old) => {
            Outcome { errors: Vec::new(), matches: outcome.matches }
        }
        _ => outcome,
    }
}

fn judged(node: &Node, value: &Value, old: Option<&Value>, path: &str, root: bool) -> Outcome {
    let mut outcome = Outcome::default();
    if value.is_null() {
        outcome.merge(types::check(node, value, path));
        outcome.merge(types::allowed(node, value, path));
        return outcome;
    }
    if node.kind.is_some() {
        outcome.step(types::check(node, value, path));
    }
    outcome.step(combinators::check(node, value, path));
    match value {
        Value::String(text) => outcome.step(strings::check(node, text, path)),
        Value::Number(number) => outcome.step(numbers::check(node, number, path)),
        Value::Array(items) => outcome.step(lists::check(node, items, old, path)),
        Value::Object(_) | Value::Bool(_) | Value::Null => {}
    }
    outcome.step(types::allowed(node, value, path));
    if let Value::Object(map) = value {
        outcome.step(objects::check(node, map, old, path, root));
    }
    outcome.matches += 1;
    outcome
}
