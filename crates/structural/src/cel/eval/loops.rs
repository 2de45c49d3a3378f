//! Loops: the macros that walk lists and maps.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::ast::{Loop, Purpose};
use super::super::value::{Key, Text, Val};
use super::{Evaluator, Failure, no_overload};

impl<'a> Evaluator<'a, '_> {
    pub(super) fn walk(&mut self, walk: &'a Loop) -> Result<Val<'a>, Failure> {
        let range = self.value(&walk.range)?;
        let mut found = Found::default();
        let outer = self.bound.len();
        let mut position = Position::of(&range)?;
        while let Some((key, value)) = position.next(&range) {
            // The loop's own condition and step cost something too, whatever its body does.
            let result = self.meter.charge(3).and_then(|()| {
                match (&walk.second, &range) {
                    (Some(second), _) => self.bound.extend([(&*walk.name, key.clone()), (&**second, value.clone())]),
                    (None, Val::Map(_) | Val::Object(..)) => self.bound.push((&walk.name, key.clone())),
                    (None, _) => self.bound.push((&walk.name, value.clone())),
                }
                self.step(walk, &key, &value, &mut found)
            });
            self.bound.truncate(outer);
            if result? {
                break;
            }
        }
        found.result(walk.purpose)
    }

    /// One round of a loop; true ends it.
    fn step(&mut self, walk: &'a Loop, key: &Val<'a>, value: &Val<'a>, found: &mut Found<'a>) -> Result<bool, Failure> {
        if let Some(filter) = &walk.filter {
            match self.value(filter)? {
                Val::Bool(true) => {}
                Val::Bool(false) => return Ok(false),
                _ => return Err(no_overload()),
            }
        }
        let truth = match (walk.purpose, self.value(&walk.body)) {
            (_, Err(Failure::Exhausted)) => return Err(Failure::Exhausted),
            (Purpose::All | Purpose::Exists, Err(failure)) => {
                found.failure.get_or_insert(failure);
                return Ok(false);
            }
            (_, Err(failure)) => return Err(failure),
            (Purpose::Map, Ok(value)) => {
                found.list.push(value);
                return Ok(false);
            }
            (Purpose::TransformMap, Ok(value)) => {
                found.map.insert(key.key().ok_or_else(no_overload)?, value);
                return Ok(false);
            }
            (_, Ok(Val::Bool(truth))) => truth,
            (_, Ok(_)) => return Err(no_overload()),
        };
        match walk.purpose {
            Purpose::All if !truth => found.decided = true,
            Purpose::Exists if truth => found.decided = true,
            Purpose::ExistsOne if truth => found.count += 1,
            Purpose::Filter if truth => {
                // A filtered map gives its keys.
                let item = self.bound.last().map_or_else(|| value.clone(), |(_, bound)| bound.clone());
                found.list.push(item);
            }
            _ => {}
        }
        Ok(found.decided)
    }
}

/// What a loop has found so far.
#[derive(Default)]
struct Found<'a> {
    decided: bool,
    count: usize,
    failure: Option<Failure>,
    list: Vec<Val<'a>>,
    map: BTreeMap<Key, Val<'a>>,
}

impl<'a> Found<'a> {
    fn result(self, purpose: Purpose) -> Result<Val<'a>, Failure> {
        match (purpose, self.failure) {
            (Purpose::All, _) if self.decided => Ok(Val::Bool(false)),
            (Purpose::Exists, _) if self.decided => Ok(Val::Bool(true)),
            (Purpose::All | Purpose::Exists, Some(failure)) => Err(failure),
            (Purpose::All, None) => Ok(Val::Bool(true)),
            (Purpose::Exists, None) => Ok(Val::Bool(false)),
            (Purpose::ExistsOne, _) => Ok(Val::Bool(self.count == 1)),
            (Purpose::Map | Purpose::Filter, _) => Ok(Val::list(self.list)),
            (Purpose::TransformMap, _) => Ok(Val::Map(Rc::new(self.map))),
        }
    }
}

/// Where a loop stands in its range.
enum Position<'a> {
    Index(usize),
    Keys(std::vec::IntoIter<Key>),
    Fields(serde_json::map::Iter<'a>, Option<&'a crate::node::Node>),
}

impl<'a> Position<'a> {
    fn of(range: &Val<'a>) -> Result<Self, Failure> {
        match range {
            Val::List(_) | Val::Array(..) => Ok(Self::Index(0)),
            Val::Map(map) => Ok(Self::Keys(map.keys().cloned().collect::<Vec<_>>().into_iter())),
            Val::Object(map, node) => Ok(Self::Fields(map.iter(), *node)),
            _ => Err(no_overload()),
        }
    }

    /// The next key or index, and its value.
    fn next(&mut self, range: &Val<'a>) -> Option<(Val<'a>, Val<'a>)> {
        match self {
            Self::Index(index) => {
                let item = range.item(*index)?;
                let key = Val::Int(i64::try_from(*index).unwrap_or(i64::MAX));
                *index += 1;
                Some((key, item))
            }
            Self::Keys(keys) => {
                let key = keys.next()?;
                let Val::Map(map) = range else { return None };
                Some((key.value(), map.get(&key)?.clone()))
            }
            Self::Fields(fields, node) => {
                let (name, field) = fields.next()?;
                let inner = node.and_then(|node| node.field(name)).map(|inner| &**inner);
                Some((Val::String(Text::Borrowed(name)), Val::of(field, inner)))
            }
        }
    }
}
