//! Functions of texts. Positions count characters, as in CEL.

use regex::Regex;

use super::super::eval::{Failure, Meter, error, no_overload};
use super::super::value::Val;
use super::{int, lists, text, truth};
use crate::node::Pattern;

pub(super) fn call<'a>(
    this: &str,
    name: &str,
    rest: &[Val<'a>],
    meter: &mut Meter,
) -> Option<Result<Val<'a>, Failure>> {
    match (name, rest) {
        ("contains", [Val::String(part)]) => truth(this.contains(part.as_str())),
        ("startsWith", [Val::String(part)]) => truth(this.starts_with(part.as_str())),
        ("endsWith", [Val::String(part)]) => truth(this.ends_with(part.as_str())),
        ("matches" | "find" | "findAll", [Val::String(pattern), ..]) => {
            // A pattern that the object brings is compiled anew each time, which takes as long as many steps.
            let length = pattern.as_str().len();
            Some(
                meter
                    .charge(length.saturating_mul(20).saturating_add(1000))
                    .and_then(|()| with_pattern(name, this, &Pattern::new(pattern.as_str()), rest, meter)),
            )
        }
        ("lowerAscii", []) => text(this.to_ascii_lowercase()),
        ("upperAscii", []) => text(this.to_ascii_uppercase()),
        ("trim", []) => text(this.trim()),
        ("reverse", []) => text(this.chars().rev().collect::<String>()),
        ("charAt", [Val::Int(position)]) => Some(char_at(this, *position)),
        ("indexOf", [Val::String(part)]) => Some(Ok(position(this, this.find(part.as_str())))),
        ("lastIndexOf", [Val::String(part)]) => Some(Ok(position(this, this.rfind(part.as_str())))),
        ("indexOf", [Val::String(part), Val::Int(from)]) => Some(
            offset(this, *from).map(|from| position(this, this[from..].find(part.as_str()).map(|found| found + from))),
        ),
        ("lastIndexOf", [Val::String(part), Val::Int(last)]) => Some(offset(this, *last).map(|last| {
            let part = part.as_str();
            let end = last.saturating_add(part.len()).min(this.len());
            position(this, this.get(..end).and_then(|head| head.rfind(part)))
        })),
        ("substring", [Val::Int(from)]) => Some(offset(this, *from).map(|from| Val::text(&this[from..]))),
        ("substring", [Val::Int(from), Val::Int(to)]) => Some(substring(this, *from, *to)),
        ("replace", [Val::String(old), Val::String(new)]) => {
            Some(replace(this, old.as_str(), new.as_str(), usize::MAX, meter))
        }
        ("replace", [Val::String(old), Val::String(new), Val::Int(most)]) => {
            let most = usize::try_from(*most).unwrap_or(usize::MAX);
            Some(replace(this, old.as_str(), new.as_str(), most, meter))
        }
        ("split", [Val::String(separator)]) => Some(split(this, separator.as_str(), usize::MAX, meter)),
        ("split", [Val::String(separator), Val::Int(most)]) => {
            Some(split(this, separator.as_str(), usize::try_from(*most).unwrap_or(usize::MAX), meter))
        }
        ("format", [list @ (Val::List(_) | Val::Array(..))]) => Some(lists::format(this, list, meter)),
        _ => None,
    }
}

/// `matches`, `find` and `findAll`; `rest` is the pattern and what follows it.
pub(in crate::cel) fn with_pattern<'a>(
    name: &str,
    this: &str,
    pattern: &Pattern,
    rest: &[Val<'a>],
    meter: &mut Meter,
) -> Result<Val<'a>, Failure> {
    // Matching takes time in proportion to both the text and the pattern.
    let walked = (this.len() / 10 + 1).saturating_mul(pattern.source.len() / 4 + 1);
    meter.charge(walked)?;
    let regex = pattern.regex().ok_or_else(|| error(format!("error parsing regexp: `{}`", pattern.source)))?;
    match (name, rest) {
        ("matches", [_]) => Ok(Val::Bool(regex.is_match(this))),
        ("find", [_]) => Ok(Val::text(regex.find(this).map_or("", |found| found.as_str()))),
        ("findAll", [_]) => find_all(this, regex, usize::MAX, meter),
        ("findAll", [_, Val::Int(most)]) => find_all(this, regex, usize::try_from(*most).unwrap_or(usize::MAX), meter),
        _ => Err(no_overload()),
    }
}

fn find_all<'a>(this: &str, regex: &Regex, most: usize, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    meter.charge(this.len())?;
    Ok(Val::list(regex.find_iter(this).take(most).map(|found| Val::text(found.as_str())).collect()))
}

fn char_at<'a>(this: &str, position: i64) -> Result<Val<'a>, Failure> {
    let start = offset(this, position)?;
    Ok(Val::text(this[start..].chars().next().map(String::from).unwrap_or_default()))
}

fn substring<'a>(this: &str, from: i64, to: i64) -> Result<Val<'a>, Failure> {
    if from > to {
        return Err(error(format!("invalid substring range. start: {from}, end: {to}")));
    }
    Ok(Val::text(&this[offset(this, from)?..offset(this, to)?]))
}

/// The byte at which a character begins; the end of the text is one too.
fn offset(this: &str, position: i64) -> Result<usize, Failure> {
    let count = usize::try_from(position).map_err(|_| error(format!("index out of range: {position}")))?;
    let mut characters = this.char_indices().map(|(at, _)| at).chain([this.len()]);
    characters.nth(count).ok_or_else(|| error(format!("index out of range: {position}")))
}

/// The character at which a byte lies; `-1` for none.
fn position<'a>(this: &str, at: Option<usize>) -> Val<'a> {
    at.and_then(|at| this.get(..at)).map_or(Val::Int(-1), |head| int(head.chars().count()))
}

fn replace<'a>(this: &str, old: &str, new: &str, most: usize, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    // An empty text is found before every character, so the result may be far longer than all arguments.
    let found = if old.is_empty() { this.len() + 1 } else { this.len() / old.len() }.min(most);
    meter.walk(this.len().saturating_add(found.saturating_mul(new.len())))?;
    Ok(Val::text(this.replacen(old, new, most)))
}

fn split<'a>(this: &str, separator: &str, most: usize, meter: &mut Meter) -> Result<Val<'a>, Failure> {
    meter.charge(this.len().min(most))?;
    let parts: Vec<Val<'a>> = match (separator, most) {
        (_, 0) => Vec::new(),
        ("", _) => {
            let mut characters = this.chars();
            let mut parts: Vec<Val<'a>> =
                characters.by_ref().take(most - 1).map(|character| Val::text(String::from(character))).collect();
            if !characters.as_str().is_empty() {
                parts.push(Val::text(characters.as_str()));
            }
            parts
        }
        _ => this.splitn(most, separator).map(Val::text).collect(),
    };
    Ok(Val::list(parts))
}
