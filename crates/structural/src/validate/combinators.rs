//! `anyOf`, `oneOf`, `allOf` and `not`.

use serde_json::Value;

use super::NOWHERE;
use super::outcome::Outcome;
use crate::error::FieldError;
use crate::go;
use crate::node::{Node, Shared};

pub(super) fn check(node: &Node, value: &Value, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if let Some(junctors) = &node.junctors {
        if !junctors.any_of.is_empty() {
            outcome.merge(any_of(&junctors.any_of, value, path));
        }
        if !junctors.one_of.is_empty() {
            outcome.merge(one_of(&junctors.one_of, value, path));
        }
        if !junctors.all_of.is_empty() {
            outcome.merge(all_of(&junctors.all_of, value, path));
        }
        if let Some(not) = &junctors.not
            && alternative(not, value, path).is_valid()
        {
            outcome.add(unmet(path, "must not validate the schema (not)"));
        }
    }
    outcome.matches += 1;
    outcome
}

fn any_of(schemas: &[Shared], value: &Value, path: &str) -> Outcome {
    let mut best: Option<Outcome> = None;
    for schema in schemas {
        let outcome = alternative(schema, value, path);
        if outcome.is_valid() {
            return outcome;
        }
        best = better(best, outcome);
    }
    let mut outcome = Outcome::default();
    outcome.add(unmet(path, "must validate at least one schema (anyOf)"));
    outcome.merge(best.unwrap_or_default());
    outcome
}

fn one_of(schemas: &[Shared], value: &Value, path: &str) -> Outcome {
    let mut best: Option<Outcome> = None;
    let mut valid: Option<Outcome> = None;
    let mut count = 0;
    for schema in schemas {
        let outcome = alternative(schema, value, path);
        if outcome.is_valid() {
            count += 1;
            valid.get_or_insert(outcome);
        } else if count == 0 {
            best = better(best, outcome);
        }
    }
    let mut outcome = Outcome::default();
    match (count, valid) {
        (1, Some(valid)) => outcome.merge(valid),
        (0, _) => {
            outcome.add(unmet(path, "must validate one and only one schema (oneOf). Found none valid"));
            outcome.merge(best.unwrap_or_default());
        }
        _ => {
            let detail = format!("must validate one and only one schema (oneOf). Found {count} valid alternatives");
            outcome.add(unmet(path, &detail));
        }
    }
    outcome
}

fn all_of(schemas: &[Shared], value: &Value, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let mut valid = 0;
    for schema in schemas {
        let one = alternative(schema, value, path);
        valid += usize::from(one.is_valid());
        outcome.merge(one);
    }
    if valid == 0 {
        outcome.add(unmet(path, "must validate all the schemas (allOf). None validated"));
    } else if valid < schemas.len() {
        outcome.add(unmet(path, "must validate all the schemas (allOf)"));
    }
    outcome
}

/// Nothing inside a junctor is tolerated for being old: which alternative it met before cannot be told.
fn alternative(schema: &Shared, value: &Value, path: &str) -> Outcome {
    super::value(schema, value, None, path, false)
}

/// The failure of the alternative that came furthest.
fn better(best: Option<Outcome>, outcome: Outcome) -> Option<Outcome> {
    match best {
        Some(best) if best.matches >= outcome.matches => Some(best),
        _ => Some(outcome),
    }
}

fn unmet(path: &str, detail: &str) -> FieldError {
    FieldError::invalid(NOWHERE, &Value::from(""), format_args!("{} {detail}", go::quote(path)))
}
