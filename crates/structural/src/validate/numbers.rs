//! Limits on numbers.

use serde_json::{Number, Value};

use super::NOWHERE;
use super::outcome::Outcome;
use crate::error::FieldError;
use crate::go;
use crate::node::{Limits, Node, Type};

/// Which side of a limit is allowed.
#[derive(Clone, Copy)]
enum Side {
    AtMost,
    AtLeast,
}

pub(super) fn check(node: &Node, number: &Number, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let range = Range { kind: node.kind, limits: node.limits.as_deref(), path };
    if let Err(error) = range.holds(number, "Checked") {
        outcome.add(error);
    }
    if let Some(limits) = &node.limits {
        if let Some(factor) = &limits.multiple_of {
            range.bound(&mut outcome, factor, "MultipleOf", |native| multiple(number, factor, native, path));
        }
        if let Some(minimum) = &limits.minimum {
            range.bound(&mut outcome, minimum, "Minimum boundary", |native| {
                limit(number, minimum, limits.exclusive_minimum, Side::AtLeast, native, path)
            });
        }
        if let Some(maximum) = &limits.maximum {
            range.bound(&mut outcome, maximum, "Maximum boundary", |native| {
                limit(number, maximum, limits.exclusive_maximum, Side::AtMost, native, path)
            });
        }
    }
    outcome.matches += 1;
    outcome
}

/// Whether a float stands for a whole number, up to the error of its computation.
pub(super) fn is_whole(number: f64) -> bool {
    const WIDEST: f64 = 9_007_199_254_740_991.0;
    if !number.is_finite() || number.abs() > WIDEST {
        return false;
    }
    let whole = number.trunc();
    number == whole || (number - whole).abs() / (number.abs() + whole.abs()) < 1e-9
}

/// The range of numbers that a type and its format span.
struct Range<'a> {
    kind: Option<Type>,
    limits: Option<&'a Limits>,
    path: &'a str,
}

impl Range<'_> {
    fn holds(&self, number: &Number, what: &str) -> Result<(), FieldError> {
        let format = self.limits.and_then(|limits| limits.format.as_ref()).map_or("", |format| format.name());
        let (kind, fits) = match self.kind {
            Some(Type::Integer) => {
                ("integer", whole(number).is_some_and(|whole| format != "int32" || i32::try_from(whole).is_ok()))
            }
            Some(Type::Number) if format == "float" => {
                ("number", number.as_f64().is_some_and(|number| number.abs() <= f64::from(f32::MAX)))
            }
            _ => return Ok(()),
        };
        if fits {
            return Ok(());
        }
        let format = if format.is_empty() { "(default format)".to_owned() } else { format!("with format {format}") };
        let detail = format!("{what} value must be of type {kind} {format} in {}", self.path);
        Err(FieldError::invalid(NOWHERE, &Value::from(""), detail))
    }

    /// Checks one bound. A bound that its own type cannot hold is an error, and is then compared as a float.
    fn bound(&self, outcome: &mut Outcome, bound: &Number, what: &str, check: impl FnOnce(bool) -> Option<FieldError>) {
        let held = self.holds(bound, what);
        let native = held.is_ok();
        held.err().into_iter().chain(check(native)).for_each(|error| outcome.add(error));
    }
}

fn limit(number: &Number, bound: &Number, exclusive: bool, side: Side, native: bool, path: &str) -> Option<FieldError> {
    let (order, shown) = match (number.as_i64(), native) {
        (Some(number), true) => {
            let bound = truncated(bound);
            (number.partial_cmp(&bound), bound.to_string())
        }
        _ => {
            let bound = bound.as_f64().unwrap_or_default();
            (number.as_f64().and_then(|number| number.partial_cmp(&bound)), go::float(bound))
        }
    };
    let order = order?;
    let fits = match side {
        Side::AtMost => order.is_lt() || (order.is_eq() && !exclusive),
        Side::AtLeast => order.is_gt() || (order.is_eq() && !exclusive),
    };
    if fits {
        return None;
    }
    let wording = match (side, exclusive) {
        (Side::AtMost, false) => "less than or equal to",
        (Side::AtMost, true) => "less than",
        (Side::AtLeast, false) => "greater than or equal to",
        (Side::AtLeast, true) => "greater than",
    };
    let value = Value::Number(number.clone());
    Some(FieldError::invalid(path, &value, format_args!("{path} in body should be {wording} {shown}")))
}

fn multiple(number: &Number, factor: &Number, native: bool, path: &str) -> Option<FieldError> {
    let (fits, positive, shown) = match (number.as_i64(), native) {
        (Some(number), true) => {
            let factor = truncated(factor);
            (number.checked_rem(factor).is_none_or(|rest| rest == 0), factor > 0, factor.to_string())
        }
        _ => {
            let factor = factor.as_f64().unwrap_or_default();
            let number = number.as_f64().unwrap_or_default();
            let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
            (is_whole(quotient), factor > 0.0, go::float(factor))
        }
    };
    if !positive {
        let detail = format!("factor MultipleOf declared for {path} must be positive: {shown}");
        return Some(FieldError::invalid(path, &Value::Number(factor.clone()), detail));
    }
    let value = Value::Number(number.clone());
    (!fits).then(|| FieldError::invalid(path, &value, format_args!("{path} in body should be a multiple of {shown}")))
}

/// A number as a whole one, if it is one.
fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        (float.trunc() == float && float.abs() < 9.3e18).then(|| truncated(number))
    })
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates, and a limit may be cut to a whole number")]
fn truncated(number: &Number) -> i64 {
    number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as i64)
}
