//! Operators.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::SignedDuration;

use super::ast::Binary;
use super::eval::{Failure, Meter, error, no_overload};
use super::value::{Key, Val};
use crate::node::ListType;

pub(super) fn binary<'a>(
    operator: Binary,
    left: &Val<'a>,
    right: &Val<'a>,
    meter: &mut Meter,
) -> Result<Val<'a>, Failure> {
    match operator {
        Binary::Equal => Ok(Val::Bool(equal(left, right, meter)?)),
        Binary::NotEqual => Ok(Val::Bool(!equal(left, right, meter)?)),
        Binary::In => Ok(Val::Bool(contains(right, left, meter)?)),
        Binary::Less => compare(left, right, meter).map(|order| Val::Bool(order == Some(Ordering::Less))),
        Binary::LessEqual => compare(left, right, meter).map(|order| Val::Bool(order.is_some_and(Ordering::is_le))),
        Binary::Greater => compare(left, right, meter).map(|order| Val::Bool(order == Some(Ordering::Greater))),
        Binary::GreaterEqual => compare(left, right, meter).map(|order| Val::Bool(order.is_some_and(Ordering::is_ge))),
        Binary::Add => add(left, right, meter),
        Binary::Subtract => subtract(left, right),
        Binary::Multiply => whole(left, right, i64::checked_mul, u64::checked_mul, |one, other| one * other),
        Binary::Divide => {
            refuse_zero(right, "division by zero")?;
            whole(left, right, i64::checked_div, u64::checked_div, |one, other| one / other)
        }
        Binary::Modulo => {
            refuse_zero(right, "modulus by zero")?;
            match (left, right) {
                (Val::Int(one), Val::Int(other)) => Ok(Val::Int(one.wrapping_rem(*other))),
                (Val::Uint(one), Val::Uint(other)) => Ok(Val::Uint(one % other)),
                _ => Err(no_overload()),
            }
        }
    }
}

pub(super) fn negate<'a>(value: &Val<'a>) -> Result<Val<'a>, Failure> {
    match value {
        Val::Int(number) => number.checked_neg().map(Val::Int).ok_or_else(|| error("integer overflow")),
        Val::Double(number) => Ok(Val::Double(-number)),
        _ => Err(no_overload()),
    }
}

/// A field of an object, or a key of a map.
pub(super) fn field<'a>(of: &Val<'a>, name: &str) -> Result<Option<Val<'a>>, Failure> {
    match of {
        Val::Object(map, node) => {
            let inner = node.and_then(|node| node.field(name)).map(|inner| &**inner);
            Ok(map.get(name).map(|value| Val::of(value, inner)))
        }
        Val::Map(map) => Ok(map.get(&Key::String(name.into())).cloned()),
        _ => Err(no_overload()),
    }
}

pub(super) fn index<'a>(of: &Val<'a>, index: &Val<'a>, optional: bool) -> Result<Val<'a>, Failure> {
    let (of, optional) = match of {
        Val::Optional(None) => return Ok(Val::Optional(None)),
        Val::Optional(Some(inner)) => (&**inner, true),
        other => (other, optional),
    };
    let found = match (of, index) {
        (Val::List(_) | Val::Array(..), Val::Int(position)) => {
            usize::try_from(*position).ok().and_then(|position| of.item(position))
        }
        (Val::Object(..), Val::String(name)) => field(of, name.as_str())?,
        (Val::Map(map), key) => map.get(&key.key().ok_or_else(no_overload)?).cloned(),
        _ => return Err(no_overload()),
    };
    match (found, optional) {
        (Some(value), true) => Ok(Val::some(value)),
        (None, true) => Ok(Val::Optional(None)),
        (Some(value), false) => Ok(value),
        (None, false) => Err(match index {
            Val::Int(position) if matches!(of, Val::List(_) | Val::Array(..)) => {
                error(format!("index out of bounds: {position}"))
            }
            Val::String(name) => error(format!("no such key: {}", name.as_str())),
            Val::Int(number) => error(format!("no such key: {number}")),
            _ => error("no such key"),
        }),
    }
}

/// Deep equality; numbers are equal across their types.
pub(super) fn equal(left: &Val<'_>, right: &Val<'_>, meter: &mut Meter) -> Result<bool, Failure> {
    meter.walk(left.size().min(right.size()))?;
    Ok(match (left, right) {
        (Val::Null, Val::Null) => true,
        (Val::Bool(one), Val::Bool(other)) => one == other,
        (Val::String(one), Val::String(other)) => one.as_str() == other.as_str(),
        (Val::Bytes(one), Val::Bytes(other)) => one == other,
        (Val::Timestamp(one), Val::Timestamp(other)) => one == other,
        (Val::Duration(one), Val::Duration(other)) => one == other,
        (Val::Type(one), Val::Type(other)) => one == other,
        (Val::Ip(one), Val::Ip(other)) => one == other,
        (Val::Cidr(one, length), Val::Cidr(other, other_length)) => one == other && length == other_length,
        (Val::Quantity(one), Val::Quantity(other)) => one == other,
        (Val::Url(one), Val::Url(other)) => one == other,
        (Val::Optional(one), Val::Optional(other)) => match (one, other) {
            (Some(one), Some(other)) => equal(one, other, meter)?,
            (one, other) => one.is_none() && other.is_none(),
        },
        (Val::Array(items, Some(node)), _) | (_, Val::Array(items, Some(node)))
            if node.list != ListType::Atomic && left.item(0).is_some() && right.item(0).is_some() =>
        {
            // Each item of one is looked for in the other.
            meter.charge(items.len())?;
            equal_in_any_order(left, right, meter)?
        }
        (Val::List(_) | Val::Array(..), Val::List(_) | Val::Array(..)) => {
            left.size() == right.size() && {
                for position in 0..left.size() {
                    if let (Some(one), Some(other)) = (left.item(position), right.item(position))
                        && !equal(&one, &other, meter)?
                    {
                        return Ok(false);
                    }
                }
                true
            }
        }
        (Val::Map(_) | Val::Object(..), Val::Map(_) | Val::Object(..)) => {
            left.size() == right.size() && {
                for (key, one) in entries(left) {
                    match index(right, &key.value(), true)? {
                        Val::Optional(Some(other)) if equal(&one, &other, meter)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
        }
        _ => numeric(left, right).is_some_and(Ordering::is_eq),
    })
}

/// Sets and maps have no order: each item of one has its match in the other, which holds its key where it has one.
fn equal_in_any_order(left: &Val<'_>, right: &Val<'_>, meter: &mut Meter) -> Result<bool, Failure> {
    if left.size() != right.size() {
        return Ok(false);
    }
    'items: for place in 0..left.size() {
        let Some(one) = left.item(place) else { continue };
        for other_place in 0..right.size() {
            let Some(other) = right.item(other_place) else { continue };
            if equal(&one, &other, meter)? {
                continue 'items;
            }
        }
        return Ok(false);
    }
    Ok(true)
}

/// The order of two values of comparable types; `None` when one is not a number.
pub(super) fn compare(left: &Val<'_>, right: &Val<'_>, meter: &mut Meter) -> Result<Option<Ordering>, Failure> {
    meter.walk(left.size().min(right.size()))?;
    Ok(Some(match (left, right) {
        (Val::Bool(one), Val::Bool(other)) => one.cmp(other),
        (Val::String(one), Val::String(other)) => one.as_str().cmp(other.as_str()),
        (Val::Bytes(one), Val::Bytes(other)) => one.cmp(other),
        (Val::Timestamp(one), Val::Timestamp(other)) => one.cmp(other),
        (Val::Duration(one), Val::Duration(other)) => one.cmp(other),
        (Val::Int(_) | Val::Uint(_) | Val::Double(_), Val::Int(_) | Val::Uint(_) | Val::Double(_)) => {
            return Ok(numeric(left, right));
        }
        _ => return Err(no_overload()),
    }))
}

/// All entries of a map or an object.
pub(super) fn entries<'a>(map: &Val<'a>) -> Vec<(Key, Val<'a>)> {
    match map {
        Val::Map(map) => map.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        Val::Object(map, node) => map
            .iter()
            .map(|(name, value)| {
                let inner = node.and_then(|node| node.field(name)).map(|inner| &**inner);
                (Key::String(name.as_str().into()), Val::of(value, inner))
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn contains(within: &Val<'_>, value: &Val<'_>, meter: &mut Meter) -> Result<bool, Failure> {
    match within {
        Val::List(_) | Val::Array(..) => {
            for position in 0..within.size() {
                meter.charge(1)?;
                if let Some(item) = within.item(position)
                    && equal(&item, value, meter)?
                {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Val::Map(map) => Ok(value.key().is_some_and(|key| map.contains_key(&key))),
        Val::Object(map, _) => match value {
            Val::String(name) => Ok(map.contains_key(name.as_str())),
            _ => Ok(false),
        },
        _ => Err(no_overload()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of different types are compared as floats")]
fn numeric(left: &Val<'_>, right: &Val<'_>) -> Option<Ordering> {
    match (left, right) {
        (Val::Int(one), Val::Int(other)) => Some(one.cmp(other)),
        (Val::Uint(one), Val::Uint(other)) => Some(one.cmp(other)),
        (Val::Int(one), Val::Uint(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
        (Val::Uint(one), Val::Int(other)) => Some(i128::from(*one).cmp(&i128::from(*other))),
        (Val::Double(one), Val::Double(other)) => one.partial_cmp(other),
        (Val::Double(one), Val::Int(other)) => one.partial_cmp(&(*other as f64)),
        (Val::Int(one), Val::Double(other)) => (*one as f64).partial_cmp(other),
        (Val::Double(one), Val::Uint(other)) => one.partial_cmp(&(*other as f64)),
        (Val::Uint(one), Val::Double(other)) => (*one as f64).partial_cmp(other),
        _ => None,
    }
}

fn add<'a>(left: &Val<'a>, right: &Val<'a>, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    meter.walk(left.size().saturating_add(right.size()))?;
    match (left, right) {
        (Val::String(one), Val::String(other)) => Ok(Val::text(format!("{}{}", one.as_str(), other.as_str()))),
        (Val::Bytes(one), Val::Bytes(other)) => Ok(Val::Bytes([&**one, &**other].concat().into())),
        (Val::List(_) | Val::Array(..), Val::List(_) | Val::Array(..)) => {
            // Each item is moved, not looked at.
            meter.charge(left.size().saturating_add(right.size()))?;
            let all = [left, right].into_iter().flat_map(|list| (0..list.size()).filter_map(|place| list.item(place)));
            Ok(Val::list(all.collect()))
        }
        (Val::Timestamp(moment), Val::Duration(span)) | (Val::Duration(span), Val::Timestamp(moment)) => {
            moment.checked_add(*span).map(Val::Timestamp).map_err(|_| error("timestamp overflow"))
        }
        (Val::Duration(one), Val::Duration(other)) => sum(one.checked_add(*other)),
        _ => whole(left, right, i64::checked_add, u64::checked_add, |one, other| one + other),
    }
}

fn subtract<'a>(left: &Val<'a>, right: &Val<'a>) -> Result<Val<'a>, Failure> {
    match (left, right) {
        (Val::Timestamp(one), Val::Timestamp(other)) => Ok(Val::Duration(one.duration_since(*other))),
        (Val::Timestamp(moment), Val::Duration(span)) => {
            moment.checked_sub(*span).map(Val::Timestamp).map_err(|_| error("timestamp overflow"))
        }
        (Val::Duration(one), Val::Duration(other)) => sum(one.checked_sub(*other)),
        _ => whole(left, right, i64::checked_sub, u64::checked_sub, |one, other| one - other),
    }
}

fn sum<'a>(duration: Option<SignedDuration>) -> Result<Val<'a>, Failure> {
    duration.map(Val::Duration).ok_or_else(|| error("duration overflow"))
}

/// Arithmetic on two numbers of one type.
fn whole<'a>(
    left: &Val<'a>,
    right: &Val<'a>,
    signed: fn(i64, i64) -> Option<i64>,
    unsigned: fn(u64, u64) -> Option<u64>,
    float: fn(f64, f64) -> f64,
) -> Result<Val<'a>, Failure> {
    match (left, right) {
        (Val::Int(one), Val::Int(other)) => signed(*one, *other).map(Val::Int).ok_or_else(|| error("integer overflow")),
        (Val::Uint(one), Val::Uint(other)) => {
            unsigned(*one, *other).map(Val::Uint).ok_or_else(|| error("unsigned integer overflow"))
        }
        (Val::Double(one), Val::Double(other)) => Ok(Val::Double(float(*one, *other))),
        _ => Err(no_overload()),
    }
}

fn refuse_zero(value: &Val<'_>, problem: &str) -> Result<(), Failure> {
    if matches!(value, Val::Int(0) | Val::Uint(0)) { Err(error(problem)) } else { Ok(()) }
}

/// A map of texts, for functions that make one.
pub(super) fn text_map<'a>(entries: BTreeMap<Rc<str>, Val<'a>>) -> Val<'a> {
    Val::Map(Rc::new(entries.into_iter().map(|(key, value)| (Key::String(key), value)).collect()))
}
