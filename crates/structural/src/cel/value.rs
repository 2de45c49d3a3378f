//! Values while a rule runs. JSON is read in place; only what a rule makes itself is allocated.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use crate::formats::{Check, duration, timestamp};
use crate::node::{Node, Type};

#[derive(Clone, Debug)]
pub(crate) enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Rc<[u8]>),
    List(Rc<Vec<Val<'a>>>),
    Map(Rc<BTreeMap<Key, Val<'a>>>),
    /// A list of the object, with its own schema.
    Array(&'a [Value], Option<&'a Node>),
    /// A part of the object, with its own schema.
    Object(&'a Map<String, Value>, Option<&'a Node>),
    Timestamp(Timestamp),
    Duration(SignedDuration),
    Optional(Option<Rc<Val<'a>>>),
    Type(&'static str),
    Ip(IpAddr),
    Cidr(IpAddr, u8),
    /// A quantity, in billionths.
    Quantity(i128),
    Url(Rc<str>),
}

/// A text of the object or of the rule, or one that the rule made.
#[derive(Clone, Debug)]
pub(crate) enum Text<'a> {
    Borrowed(&'a str),
    Shared(Rc<str>),
}

/// A key of a map that a rule made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Number(i128),
    String(Rc<str>),
}

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl<'a> Val<'a> {
    /// A JSON value as its schema types it.
    pub(crate) fn of(value: &'a Value, node: Option<&'a Node>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Number(number) => match (number.as_i64(), node.and_then(|node| node.kind)) {
                (Some(whole), kind) if kind != Some(Type::Number) => Self::Int(whole),
                (_, Some(Type::Integer)) => Self::Int(truncated(number.as_f64().unwrap_or_default())),
                _ => Self::Double(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => string(text, node),
            Value::Array(items) => Self::Array(items, node),
            Value::Object(map) => Self::Object(map, node),
        }
    }

    pub(crate) fn text(text: impl Into<Rc<str>>) -> Self {
        Self::String(Text::Shared(text.into()))
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(Rc::new(items))
    }

    pub(crate) fn some(value: Self) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) | Self::Array(..) => "list",
            Self::Map(_) | Self::Object(..) => "map",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Url(_) => "kubernetes.URL",
        }
    }

    /// The number of characters, bytes, items or entries; 1 for what has no size.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::String(text) => text.as_str().len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(items) => items.len(),
            Self::Array(items, _) => items.len(),
            Self::Map(map) => map.len(),
            Self::Object(map, _) => map.len(),
            Self::Url(text) => text.len(),
            _ => 1,
        }
    }

    pub(crate) fn key(&self) -> Option<Key> {
        Some(match self {
            Self::Bool(truth) => Key::Bool(*truth),
            Self::Int(number) => Key::Number(i128::from(*number)),
            Self::Uint(number) => Key::Number(i128::from(*number)),
            Self::String(text) => Key::String(text.as_str().into()),
            _ => return None,
        })
    }

    /// The item of a list, whatever it is made of.
    pub(crate) fn item(&self, index: usize) -> Option<Self> {
        match self {
            Self::List(items) => items.get(index).cloned(),
            Self::Array(items, node) => {
                let node = node.and_then(|node| node.items.as_deref());
                items.get(index).map(|item| Self::of(item, node))
            }
            _ => None,
        }
    }
}

impl Key {
    pub(crate) fn value<'a>(&self) -> Val<'a> {
        match self {
            Self::Bool(truth) => Val::Bool(*truth),
            Self::Number(number) => match (i64::try_from(*number), u64::try_from(*number)) {
                (Ok(number), _) => Val::Int(number),
                (_, Ok(number)) => Val::Uint(number),
                _ => Val::Null,
            },
            Self::String(text) => Val::text(Rc::clone(text)),
        }
    }
}

/// Some formats are types of their own; a text that does not have its format stays a text.
fn string<'a>(text: &'a str, node: Option<&'a Node>) -> Val<'a> {
    let format = node.and_then(|node| node.limits.as_ref()).and_then(|limits| limits.format.as_ref());
    let typed = match format.map(crate::formats::Format::check) {
        Some(Check::Date | Check::DateTime) => timestamp(text).map(Val::Timestamp),
        Some(Check::Duration) => duration(text).map(Val::Duration),
        Some(Check::Byte) => STANDARD.decode(text).ok().map(|bytes| Val::Bytes(bytes.into())),
        _ => None,
    };
    typed.unwrap_or(Val::String(Text::Borrowed(text)))
}

#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
pub(crate) fn truncated(number: f64) -> i64 {
    number as i64
}
