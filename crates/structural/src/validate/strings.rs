//! Limits on strings. The first that fails is told, as in Kubernetes; the format is judged besides.

use serde_json::Value;

use super::outcome::Outcome;
use crate::error::{FieldError, Reason};
use crate::node::{Limits, Node};

pub(super) fn check(node: &Node, text: &str, path: &str) -> Outcome {
    let Some(limits) = &node.limits else { return Outcome::default() };
    let mut outcome = limits_hold(limits, text, path).err().map(Outcome::failed).unwrap_or_default();
    if let Some(format) = &limits.format
        && format.applies_to_strings()
    {
        let fits = format.fits(text);
        outcome.step(if fits { Outcome::default() } else { Outcome::failed(misformed(format.name(), text, path)) });
    }
    outcome
}

fn limits_hold(limits: &Limits, text: &str, path: &str) -> Result<(), FieldError> {
    let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let invalid = |detail: String| FieldError::invalid(path, &Value::from(text), detail);
    if let Some(most) = limits.max_length
        && length() > most
    {
        return Err(FieldError::plain(path, Reason::TooLong, format_args!("may not be more than {most} bytes")));
    }
    if let Some(least) = limits.min_length
        && length() < least
    {
        return Err(invalid(format!("{path} in body should be at least {least} chars long")));
    }
    let Some(pattern) = &limits.pattern else { return Ok(()) };
    match pattern.matches(text) {
        Some(true) => Ok(()),
        Some(false) => Err(invalid(format!("{path} in body should match '{}'", pattern.source))),
        None => Err(invalid(format!("{path} in body should match '{}, but pattern is invalid'", pattern.source))),
    }
}

fn misformed(format: &str, text: &str, path: &str) -> FieldError {
    let quoted = crate::go::quote(text);
    let detail = format!("{path} in body must be of type {format}: {quoted}");
    FieldError::with_value(path, Reason::TypeInvalid, &Value::from(text), detail)
}
