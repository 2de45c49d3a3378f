//! Functions of lists.

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::super::eval::{Failure, Meter, error, no_overload};
use super::super::ops::{binary, compare, equal};
use super::super::value::Val;
use super::super::{ast::Binary, functions::convert};
use super::int;

pub(super) fn call<'a>(
    this: &Val<'a>,
    name: &str,
    rest: &[Val<'a>],
    meter: &mut Meter,
) -> Option<Result<Val<'a>, Failure>> {
    Some(match (name, rest) {
        ("isSorted", []) => is_sorted(this, meter),
        ("sum", []) => sum(this, meter),
        ("min" | "max", []) => extreme(&items(this), name == "max", meter),
        ("indexOf", [value]) => position(this, value, 0..this.size(), meter),
        ("lastIndexOf", [value]) => position(this, value, (0..this.size()).rev(), meter),
        ("join", []) => join(this, "", meter),
        ("join", [Val::String(separator)]) => join(this, separator.as_str(), meter),
        ("reverse", []) => meter.charge(this.size()).map(|()| Val::list(items(this).into_iter().rev().collect())),
        ("slice", [Val::Int(from), Val::Int(to)]) => slice(this, *from, *to, meter),
        ("distinct", []) => distinct(this, meter),
        _ => return None,
    })
}

/// The greatest or least of some values.
fn extreme<'a>(values: &[Val<'a>], greatest: bool, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    let wanted = if greatest { Ordering::Greater } else { Ordering::Less };
    let mut best: Option<Val<'a>> = None;
    for value in values {
        best = match best {
            Some(best) if compare(value, &best, meter)? != Some(wanted) => Some(best),
            _ => Some(value.clone()),
        };
    }
    best.ok_or_else(|| error(format!("{} called on empty list", if greatest { "max" } else { "min" })))
}

pub(super) fn sets<'a>(name: &str, one: &Val<'a>, other: &Val<'a>, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    let holds_all = |within: &Val<'a>, parts: &Val<'a>, meter: &mut Meter| -> Result<bool, Failure> {
        for part in items(parts) {
            if matches!(binary(Binary::In, &part, within, meter)?, Val::Bool(false)) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let truth = match name {
        "contains" => holds_all(one, other, meter)?,
        "equivalent" => holds_all(one, other, meter)? && holds_all(other, one, meter)?,
        "intersects" => {
            let mut found = false;
            for part in items(other) {
                found = found || matches!(binary(Binary::In, &part, one, meter)?, Val::Bool(true));
            }
            found
        }
        _ => return Err(no_overload()),
    };
    Ok(Val::Bool(truth))
}

/// `text.format(list)`.
pub(super) fn format<'a>(template: &str, list: &Val<'a>, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    let mut result = String::new();
    let mut next = 0;
    let mut characters = template.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            result.push(character);
            continue;
        }
        let mut verb = characters.next().ok_or_else(|| error("unexpected end of string"))?;
        if verb == '%' {
            result.push('%');
            continue;
        }
        let mut precision = 6;
        if verb == '.' {
            let digits: String = characters.clone().take_while(char::is_ascii_digit).collect();
            precision =
                digits.parse().ok().filter(|digits| *digits <= 100).ok_or_else(|| error("invalid precision"))?;
            characters.nth(digits.len().saturating_sub(1));
            verb = characters.next().ok_or_else(|| error("unexpected end of string"))?;
        }
        let value = list.item(next).ok_or_else(|| error(format!("index {next} out of range")))?;
        next += 1;
        meter.walk(value.size().saturating_add(result.len()))?;
        // Writing to a string does not fail.
        let _ = match (verb, &value) {
            ('s', value) => write!(result, "{}", convert::shown(value, meter)?),
            ('d', Val::Int(number)) => write!(result, "{number}"),
            ('d', Val::Uint(number)) => write!(result, "{number}"),
            ('f', Val::Double(number)) => write!(result, "{number:.precision$}"),
            ('e', Val::Double(number)) => write!(result, "{number:.precision$e}"),
            ('x', Val::Int(number)) => write!(result, "{number:x}"),
            ('X', Val::Int(number)) => write!(result, "{number:X}"),
            ('o', Val::Int(number)) => write!(result, "{number:o}"),
            ('b', Val::Int(number)) => write!(result, "{number:b}"),
            _ => return Err(error(format!("unrecognized formatting clause \"{verb}\""))),
        };
    }
    Ok(Val::text(result))
}

fn items<'a>(list: &Val<'a>) -> Vec<Val<'a>> {
    (0..list.size()).filter_map(|position| list.item(position)).collect()
}

fn is_sorted<'a>(this: &Val<'a>, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    for pair in items(this).windows(2) {
        if let [one, other] = pair
            && compare(one, other, meter)? == Some(Ordering::Greater)
        {
            return Ok(Val::Bool(false));
        }
    }
    Ok(Val::Bool(true))
}

fn sum<'a>(this: &Val<'a>, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    let mut total: Option<Val<'a>> = None;
    for item in items(this) {
        total = Some(match total {
            Some(total) => binary(Binary::Add, &total, &item, meter)?,
            None => item,
        });
    }
    Ok(total.unwrap_or(Val::Int(0)))
}

fn position<'a>(
    this: &Val<'a>,
    value: &Val<'a>,
    mut places: impl Iterator<Item = usize>,
    meter: &mut Meter,
) -> Result<Val<'a>, Failure> {
    let found = places.find_map(|place| {
        let item = this.item(place)?;
        match equal(&item, value, meter) {
            Ok(true) => Some(Ok(place)),
            Ok(false) => None,
            Err(failure) => Some(Err(failure)),
        }
    });
    found.transpose().map(|place| place.map_or(Val::Int(-1), int))
}

fn join<'a>(this: &Val<'a>, separator: &str, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    let mut joined = String::new();
    for (place, item) in items(this).iter().enumerate() {
        let Val::String(text) = item else { return Err(no_overload()) };
        meter.walk(text.as_str().len().saturating_add(separator.len()))?;
        if place > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text.as_str());
    }
    Ok(Val::text(joined))
}

fn slice<'a>(this: &Val<'a>, from: i64, to: i64, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    meter.charge(this.size())?;
    let bounds = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let items = items(this);
    let part = bounds.and_then(|(from, to)| items.get(from..to)).map(<[_]>::to_vec);
    part.map(Val::list).ok_or_else(|| error(format!("cannot slice({from}, {to}), list is length {}", items.len())))
}

fn distinct<'a>(this: &Val<'a>, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    let mut kept: Vec<Val<'a>> = Vec::new();
    'items: for item in items(this) {
        for known in &kept {
            if equal(known, &item, meter)? {
                continue 'items;
            }
        }
        kept.push(item);
    }
    Ok(Val::list(kept))
}
