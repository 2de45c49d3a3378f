//! The one deserializer that the types of this crate are compiled for.
//!
//! `serde` compiles a type anew for every format it is read from, and each time in every crate that reads it; the types
//! here are so many that most of the program was that. So a root type is read from a tree of JSON alone, whatever the
//! format was (see `resource!`). The tree knows where it is: errors and unknown fields have a path for nothing.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::{StrDeserializer, StringDeserializer};
use serde::de::{self, DeserializeSeed, IntoDeserializer as _, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

/// A value, and where it is in its object.
pub struct Tree<'a> {
    value: Value,
    place: Place<'a>,
    /// Where fields are noted that no type knows.
    unknown: &'a RefCell<Vec<String>>,
}

/// Where a value is.
#[derive(Clone, Copy)]
enum Place<'a> {
    Root,
    Field(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

/// Why a tree does not fit a type.
#[derive(Debug)]
pub struct Misfit {
    /// Where, as in `spec.volumes[0].name`; empty for the object itself. Not known until the error has left the value.
    pub(super) place: Option<String>,
    /// What is wrong, in the words of `serde`.
    pub(super) problem: String,
}

impl<'a> Tree<'a> {
    /// A whole object.
    pub(super) fn new(value: Value, unknown: &'a RefCell<Vec<String>>) -> Self {
        Self { value, place: Place::Root, unknown }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Place::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl Misfit {
    /// The innermost value that an error comes from is where it is.
    fn at(mut self, place: &Place<'_>) -> Self {
        self.place.get_or_insert_with(|| place.to_string());
        self
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_deref() {
            None | Some("") => f.write_str(&self.problem),
            Some(place) => write!(f, "{place}: {}", self.problem),
        }
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self { place: None, problem: problem.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        match found {
            Unexpected::Unit => Self::custom(format_args!("invalid type: null, expected {expected}")),
            _ => Self::custom(format_args!("invalid type: {found}, expected {expected}")),
        }
    }
}

impl<'de> de::Deserializer<'de> for Tree<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        let Self { value, place, unknown } = self;
        let read = match value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(flag),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (.., Some(number)) => visitor.visit_f64(number),
                (None, None, None) => Err(de::Error::custom(format_args!("{number} is out of range"))),
            },
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => {
                visitor.visit_seq(Items { rest: items.into_iter(), next: 0, place: &place, unknown })
            }
            Value::Object(fields) => visitor.visit_map(Fields::new(fields, &place, unknown)),
        };
        read.map_err(|error| error.at(&place))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    /// Of a text: no type here has other variants.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let Self { value, place, .. } = self;
        let read = match value {
            Value::String(text) => {
                let variant: StringDeserializer<Misfit> = text.into_deserializer();
                visitor.visit_enum(variant)
            }
            other => Err(de::Error::invalid_type(unexpected(&other), &"a string")),
        };
        read.map_err(|error| error.at(&place))
    }

    /// Of a field that the type does not have.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.unknown.borrow_mut().push(self.place.to_string());
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(flag) => Unexpected::Bool(*flag),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), ..) => Unexpected::Unsigned(number),
            (_, Some(number), _) => Unexpected::Signed(number),
            (.., number) => Unexpected::Float(number.unwrap_or(f64::NAN)),
        },
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

/// The rest of a list.
struct Items<'a> {
    rest: std::vec::IntoIter<Value>,
    next: usize,
    place: &'a Place<'a>,
    unknown: &'a RefCell<Vec<String>>,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Misfit;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        let Some(value) = self.rest.next() else {
            return Ok(None);
        };
        let place = Place::Item(self.place, self.next);
        self.next += 1;
        let read = seed.deserialize(Tree { value, place, unknown: self.unknown });
        read.map(Some).map_err(|error| error.at(&place))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// The rest of an object.
struct Fields<'a> {
    rest: serde_json::map::IntoIter,
    /// Of the field whose name was read last.
    name: String,
    value: Value,
    place: &'a Place<'a>,
    unknown: &'a RefCell<Vec<String>>,
}

impl<'a> Fields<'a> {
    fn new(fields: Map<String, Value>, place: &'a Place<'a>, unknown: &'a RefCell<Vec<String>>) -> Self {
        Self { rest: fields.into_iter(), name: String::new(), value: Value::Null, place, unknown }
    }
}

impl<'de> de::MapAccess<'de> for Fields<'_> {
    type Error = Misfit;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Misfit> {
        let Some((name, value)) = self.rest.next() else {
            return Ok(None);
        };
        (self.name, self.value) = (name, value);
        let name: StrDeserializer<'_, Misfit> = self.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|error| error.at(&Place::Field(self.place, &self.name)))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Misfit> {
        let place = Place::Field(self.place, &self.name);
        let read = seed.deserialize(Tree { value: self.value.take(), place, unknown: self.unknown });
        read.map_err(|error| error.at(&place))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}
