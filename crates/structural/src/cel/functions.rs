//! Functions: the standard ones, and those that Kubernetes adds.

mod convert;
mod lists;
mod net;
mod quantity;
mod strings;
mod time;

pub(super) use self::strings::with_pattern;

use std::rc::Rc;

use super::eval::{Failure, Meter, error, no_overload};
use super::value::Val;

/// The names before a dot that are no variables.
pub(super) fn is_space(name: &str) -> bool {
    matches!(name, "sets" | "optional" | "base64" | "ip")
}

/// The types that have names of their own in expressions.
pub(super) fn type_name(name: &str) -> Option<&'static str> {
    ["null_type", "bool", "int", "uint", "double", "string", "bytes", "list", "map", "type"]
        .into_iter()
        .find(|known| *known == name)
}

/// Calls a function. `values` begins with the receiver when `member` is set.
pub(super) fn call<'a>(
    space: Option<&str>,
    name: &str,
    member: bool,
    values: &[Val<'a>],
    meter: &mut Meter,
) -> Result<Val<'a>, Failure> {
    if let Some(space) = space {
        return in_space(space, name, values, meter);
    }
    // Whatever a function does, it walks its arguments at most a few times.
    for value in values {
        meter.walk(value.size())?;
    }
    let result = match values {
        [Val::String(text), rest @ ..] if member => strings::call(text.as_str(), name, rest, meter),
        [list @ (Val::List(_) | Val::Array(..)), rest @ ..] if member => lists::call(list, name, rest, meter),
        [value @ (Val::Timestamp(_) | Val::Duration(_)), rest @ ..] if member => time::call(value, name, rest),
        [value @ (Val::Ip(_) | Val::Cidr(..)), rest @ ..] if member => net::call(value, name, rest),
        [Val::Quantity(amount), rest @ ..] if member => quantity::call(*amount, name, rest),
        [Val::Url(text), rest @ ..] if member => net::url_part(text, name, rest),
        [Val::Optional(inner), rest @ ..] if member => optional(inner.as_deref(), name, rest),
        _ if member => None,
        _ => convert::call(name, values),
    };
    match (result, name, values) {
        (Some(result), ..) => result,
        (None, "size", [value]) => size(value),
        _ => Err(no_overload()),
    }
}

fn size<'a>(value: &Val<'a>) -> Result<Val<'a>, Failure> {
    let size = match value {
        Val::String(text) => text.as_str().chars().count(),
        Val::Bytes(_) | Val::List(_) | Val::Array(..) | Val::Map(_) | Val::Object(..) => value.size(),
        _ => return Err(no_overload()),
    };
    Ok(Val::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn in_space<'a>(space: &str, name: &str, values: &[Val<'a>], meter: &mut Meter) -> Result<Val<'a>, Failure> {
    match (space, name, values) {
        ("optional", "none", []) => Ok(Val::Optional(None)),
        ("optional", "of", [value]) => Ok(Val::some(value.clone())),
        ("optional", "ofNonZeroValue", [value]) => {
            let zero = match value {
                Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0) => true,
                Val::Double(number) => *number == 0.0,
                Val::String(_) | Val::Bytes(_) | Val::List(_) | Val::Array(..) | Val::Map(_) | Val::Object(..) => {
                    value.size() == 0
                }
                _ => false,
            };
            Ok(if zero { Val::Optional(None) } else { Val::some(value.clone()) })
        }
        ("sets", _, [one, other]) => lists::sets(name, one, other, meter),
        ("base64", _, [value]) => {
            meter.walk(value.size())?;
            convert::base64(name, value)
        }
        ("ip", "isCanonical", [Val::String(text)]) => net::is_canonical(text.as_str()),
        _ => Err(no_overload()),
    }
}

fn optional<'a>(inner: Option<&Val<'a>>, name: &str, rest: &[Val<'a>]) -> Option<Result<Val<'a>, Failure>> {
    Some(match (name, rest, inner) {
        ("hasValue", [], inner) => Ok(Val::Bool(inner.is_some())),
        ("value", [], Some(inner)) => Ok(inner.clone()),
        ("value", [], None) => Err(error("optional.none() dereference")),
        _ => return None,
    })
}

fn truth<'a>(truth: bool) -> Option<Result<Val<'a>, Failure>> {
    Some(Ok(Val::Bool(truth)))
}

fn int<'a>(number: usize) -> Val<'a> {
    Val::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn text<'a>(text: impl Into<Rc<str>>) -> Option<Result<Val<'a>, Failure>> {
    Some(Ok(Val::text(text)))
}
