//! Schemas of custom resources, which have fields that hold a schema or something else.

use serde_json::{Map, Value};

use super::{ProtobufError, Type, Wire, each, message_into, text};

/// The schemas of custom resources.
pub(super) const SCHEMA: &str = "apiextensions.v1.JSONSchemaProps";

/// What a field of a schema may hold instead of a schema; JSON has just the one or the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    Flag,
    Schemas,
    Names,
}

impl Other {
    pub(super) fn of(field: &str) -> Option<Self> {
        match field {
            "additionalItems" | "additionalProperties" => Some(Self::Flag),
            "items" => Some(Self::Schemas),
            "dependencies" => Some(Self::Names),
            _ => None,
        }
    }

    /// Reads the message that holds both.
    pub(super) fn read(self, schema: &Type, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
        let whole = |wire: Wire<'_>| -> Result<Value, ProtobufError> {
            let mut object = Map::new();
            message_into(&mut object, schema, &mut Vec::new(), wire.bytes("a schema")?, depth + 1)?;
            Ok(Value::Object(object))
        };
        let (mut one, mut flag, mut several) = (None, false, Vec::new());
        each(bytes, |number, wire| {
            match (self, number) {
                (Self::Flag, 1) => flag = wire.varint("a flag")? != 0,
                (Self::Flag, 2) | (Self::Schemas | Self::Names, 1) => one = Some(whole(wire)?),
                (Self::Schemas, 2) => several.push(whole(wire)?),
                (Self::Names, 2) => several.push(text(wire.bytes("a name")?)?.into()),
                _ => {}
            }
            Ok(())
        })?;
        let instead = if self == Self::Flag { flag.into() } else { Value::Array(several) };
        Ok(one.unwrap_or(instead))
    }
}
