//! Bodies in Kubernetes' protobuf form, which Go clients send for built-in kinds, read into JSON by the table of facts.
//!
//! A body is the four bytes `k8s\0` and a message `Unknown`: the type, and the object's own message. What the table does not
//! know is skipped, as protobuf has it. Answers stay JSON: every client that sends protobuf takes that as well.

mod schema;
mod unset;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::bounds;
use crate::facts::{Field, Shape, Type, TypeId, facts};
use schema::{Other, SCHEMA};
use unset::is_unset;

/// Messages within messages; schemas in schemas are the deepest that there are.
const DEEPEST: usize = 64;
const MAGIC: &[u8] = b"k8s\0";

/// What is wrong with a body.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix k8s\\0")]
    NoMagic,
    #[error("unexpected end of the message")]
    Truncated,
    #[error("a varint has more than 64 bits")]
    Varint,
    #[error("unknown wire type {0}")]
    WireType(u8),
    #[error("the wire type of {0} does not match the schema")]
    Mismatch(&'static str),
    #[error("a text is not UTF-8")]
    Text,
    #[error("an embedded object is not JSON")]
    Json,
    #[error("a time is out of range")]
    Time,
    #[error("messages are nested too deeply")]
    Depth,
    #[error("unknown kind {kind:?} in version {api_version:?}")]
    Kind { api_version: String, kind: String },
}

/// Reads a body: an object with its type.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let message = body.strip_prefix(MAGIC).ok_or(ProtobufError::NoMagic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    each(message, |number, wire| {
        match number {
            1 => each(wire.bytes("typeMeta")?, |number, wire| {
                match number {
                    1 => api_version = text(wire.bytes("apiVersion")?)?,
                    2 => kind = text(wire.bytes("kind")?)?,
                    _ => {}
                }
                Ok(())
            })?,
            2 => raw = wire.bytes("raw")?,
            _ => {}
        }
        Ok(())
    })?;
    let Some(id) = type_of(&api_version, &kind) else { return Err(ProtobufError::Kind { api_version, kind }) };
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    message_into(&mut object, facts().get(id), &mut Vec::new(), raw, 0)?;
    let object = Value::Object(object);
    // Each embedded object of JSON was read on its own: what is around it counts, too.
    if bounds::depth(&object) > bounds::DEEPEST { Err(ProtobufError::Depth) } else { Ok(object) }
}

fn type_of(api_version: &str, kind: &str) -> Option<TypeId> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    // Options are of every group, and one type.
    facts().of_kind(group, version, kind).or_else(|| facts().named(&format!("meta.v1.{kind}")))
}

/// Puts the fields of a message into an object. `path` are the numbers that lead here from the type's own message: where
/// protobuf nests what JSON has side by side.
fn message_into(
    object: &mut Map<String, Value>,
    of: &Type,
    path: &mut Vec<u32>,
    bytes: &[u8],
    depth: usize,
) -> Result<(), ProtobufError> {
    if depth > DEEPEST {
        return Err(ProtobufError::Depth);
    }
    each(bytes, |number, wire| {
        path.push(number);
        if let Some(field) = of.fields.iter().find(|field| field.numbers == *path) {
            add(object, of, field, wire, depth)?;
        } else if of.fields.iter().any(|field| field.numbers.starts_with(path)) {
            message_into(object, of, path, wire.bytes("an inlined message")?, depth + 1)?;
        }
        path.pop();
        Ok(())
    })
}

/// Adds one occurrence of a field: repeated ones come one by one.
fn add(
    object: &mut Map<String, Value>,
    of: &Type,
    field: &Field,
    wire: Wire<'_>,
    depth: usize,
) -> Result<(), ProtobufError> {
    let name = field.name;
    if of.name == SCHEMA
        && let Some(other) = Other::of(name)
    {
        // The only one of these that is a map.
        if other == Other::Names {
            let (key, value) = entry_of(name, wire, |wire| other.read(of, wire.bytes(name)?, depth))?;
            if let Value::Object(map) = object.entry(name).or_insert_with(|| Value::Object(Map::new())) {
                map.insert(key, value.unwrap_or_default());
            }
        } else {
            object.insert(name.to_owned(), other.read(of, wire.bytes(name)?, depth)?);
        }
        return Ok(());
    }
    match &field.shape {
        Shape::List(inner) => {
            let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(items) = list {
                list_items(items, name, inner, wire, depth)?;
            }
        }
        Shape::Map(inner) => {
            let (key, value) = entry(name, inner, wire, depth)?;
            if let Value::Object(map) = object.entry(name).or_insert_with(|| Value::Object(Map::new())) {
                map.insert(key, value);
            }
        }
        shape => {
            let value = single(name, shape, wire, depth)?;
            if !is_unset(of, field, &value) {
                object.insert(name.to_owned(), value);
            }
        }
    }
    Ok(())
}

fn list_items(
    items: &mut Vec<Value>,
    name: &'static str,
    inner: &Shape,
    wire: Wire<'_>,
    depth: usize,
) -> Result<(), ProtobufError> {
    // Numbers may come packed, many in one.
    if let (Shape::Int32 | Shape::Int64 | Shape::Boolean, Wire::Bytes(mut packed)) = (inner, wire) {
        while !packed.is_empty() {
            items.push(single(name, inner, Wire::Varint(varint(&mut packed)?), depth)?);
        }
        return Ok(());
    }
    items.push(single(name, inner, wire, depth)?);
    Ok(())
}

/// A map is a list of messages, each a key and a value.
fn entry(name: &'static str, inner: &Shape, wire: Wire<'_>, depth: usize) -> Result<(String, Value), ProtobufError> {
    let (key, value) = entry_of(name, wire, |wire| match inner {
        // A list cannot be a map's value; it is in a message of its own.
        Shape::List(inner) => {
            let mut items = Vec::new();
            each(wire.bytes(name)?, |number, wire| match number {
                1 => list_items(&mut items, name, inner, wire, depth),
                _ => Ok(()),
            })?;
            Ok(Value::Array(items))
        }
        inner => single(name, inner, wire, depth),
    })?;
    let value = match (value, inner) {
        (Some(value), _) => value,
        // What is empty may be left out.
        (None, inner) => single(name, inner, Wire::Bytes(&[]), depth)?,
    };
    Ok((key, value))
}

/// A key and, unless it was left out, its value.
fn entry_of<'a>(
    name: &'static str,
    wire: Wire<'a>,
    read: impl Fn(Wire<'a>) -> Result<Value, ProtobufError>,
) -> Result<(String, Option<Value>), ProtobufError> {
    let (mut key, mut value) = (String::new(), None);
    each(wire.bytes(name)?, |number, wire| {
        match number {
            1 => key = text(wire.bytes(name)?)?,
            2 => value = Some(read(wire)?),
            _ => {}
        }
        Ok(())
    })?;
    Ok((key, value))
}

fn single(name: &'static str, shape: &Shape, wire: Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match shape {
        Shape::String => text(wire.bytes(name)?)?.into(),
        Shape::Boolean => (wire.varint(name)? != 0).into(),
        // Negative ones are written as 64 bits, whatever their size.
        Shape::Int32 | Shape::Int64 => wire.varint(name)?.cast_signed().into(),
        Shape::Number => match wire {
            Wire::Fixed64(bits) => f64::from_bits(bits).into(),
            _ => return Err(ProtobufError::Mismatch(name)),
        },
        Shape::Bytes => STANDARD.encode(wire.bytes(name)?).into(),
        Shape::Time | Shape::MicroTime => time(wire.bytes(name)?, *shape == Shape::MicroTime)?,
        Shape::Quantity => text(only(wire.bytes(name)?)?)?.into(),
        Shape::IntOrString => int_or_string(wire.bytes(name)?)?,
        Shape::Object | Shape::Any => match only(wire.bytes(name)?)? {
            [] => Value::Null,
            json => serde_json::from_slice(json).map_err(|_| ProtobufError::Json)?,
        },
        Shape::Struct(id) => {
            let mut object = Map::new();
            message_into(&mut object, facts().get(*id), &mut Vec::new(), wire.bytes(name)?, depth + 1)?;
            Value::Object(object)
        }
        Shape::List(_) | Shape::Map(_) => return Err(ProtobufError::Mismatch(name)),
    })
}

/// The first field of a message that has only that.
fn only(bytes: &[u8]) -> Result<&[u8], ProtobufError> {
    let mut found = &[][..];
    each(bytes, |number, wire| {
        if number == 1 {
            found = wire.bytes("a wrapped value")?;
        }
        Ok(())
    })?;
    Ok(found)
}

fn time(bytes: &[u8], micro: bool) -> Result<Value, ProtobufError> {
    // Go's zero time is no time, and is written as nothing at all.
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    each(bytes, |number, wire| {
        match number {
            1 => seconds = wire.varint("seconds")?.cast_signed(),
            2 => nanos = wire.varint("nanos")?.cast_signed(),
            _ => {}
        }
        Ok(())
    })?;
    if seconds == -62_135_596_800 {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|_| ProtobufError::Time)?;
    let moment = Timestamp::new(seconds, nanos).map_err(|_| ProtobufError::Time)?;
    let form = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(moment.strftime(form).to_string().into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number, mut string) = (false, 0, String::new());
    each(bytes, |field, wire| {
        match field {
            1 => is_text = wire.varint("type")? == 1,
            2 => number = wire.varint("intVal")?.cast_signed(),
            3 => string = text(wire.bytes("strVal")?)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(if is_text { string.into() } else { number.into() })
}

fn text(bytes: &[u8]) -> Result<String, ProtobufError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ProtobufError::Text)
}

/// A field's value as it is on the wire.
#[derive(Clone, Copy, Debug)]
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Wire<'a> {
    fn bytes(self, name: &'static str) -> Result<&'a [u8], ProtobufError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(ProtobufError::Mismatch(name)),
        }
    }

    fn varint(self, name: &'static str) -> Result<u64, ProtobufError> {
        match self {
            Self::Varint(value) => Ok(value),
            // An empty value stands for one that was left out.
            Self::Bytes([]) => Ok(0),
            _ => Err(ProtobufError::Mismatch(name)),
        }
    }
}

/// Calls for each field of a message.
fn each<'a>(
    mut bytes: &'a [u8],
    mut call: impl FnMut(u32, Wire<'a>) -> Result<(), ProtobufError>,
) -> Result<(), ProtobufError> {
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let number = u32::try_from(tag >> 3).map_err(|_| ProtobufError::Varint)?;
        let wire = match tag & 7 {
            0 => Wire::Varint(varint(&mut bytes)?),
            1 => {
                let (value, rest) = bytes.split_first_chunk::<8>().ok_or(ProtobufError::Truncated)?;
                bytes = rest;
                Wire::Fixed64(u64::from_le_bytes(*value))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| ProtobufError::Truncated)?;
                let (value, rest) = bytes.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
                bytes = rest;
                Wire::Bytes(value)
            }
            5 => {
                bytes = bytes.get(4..).ok_or(ProtobufError::Truncated)?;
                Wire::Fixed32
            }
            other => return Err(ProtobufError::WireType(u8::try_from(other).unwrap_or(u8::MAX))),
        };
        call(number, wire)?;
    }
    Ok(())
}

fn varint(bytes: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(ProtobufError::Truncated)?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(ProtobufError::Varint)
}

#[cfg(test)]
mod tests;
