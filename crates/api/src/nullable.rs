//! Fields that may be `null`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A field that the schema calls nullable: an API server keeps its `null`, so a client must get it back.
///
/// To a reader `Absent` and `Null` mean the same; [`Nullable::as_ref`] gives the value or nothing. A field of this type
/// needs `#[serde(default, skip_serializing_if = "Nullable::is_absent")]`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Nullable<T> {
    /// The field is not there.
    #[default]
    Absent,
    /// The field is there and says `null`.
    Null,
    /// The field has a value.
    Value(T),
}

impl<T> Nullable<T> {
    /// The value, if there is one.
    #[must_use]
    pub fn as_ref(&self) -> Option<&T> {
        match self {
            Self::Absent | Self::Null => None,
            Self::Value(value) => Some(value),
        }
    }

    /// The value to change, if there is one.
    #[must_use]
    pub fn as_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Absent | Self::Null => None,
            Self::Value(value) => Some(value),
        }
    }

    /// The value itself, if there is one.
    #[must_use]
    pub fn into_option(self) -> Option<T> {
        match self {
            Self::Absent | Self::Null => None,
            Self::Value(value) => Some(value),
        }
    }

    /// Whether the field is not there at all.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl<T> From<T> for Nullable<T> {
    fn from(value: T) -> Self {
        Self::Value(value)
    }
}

impl<T> From<Option<T>> for Nullable<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Self::Value)
    }
}

impl<T: Serialize> Serialize for Nullable<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_ref().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Nullable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(|value| value.map_or(Self::Null, Self::Value))
    }
}

impl<T: JsonSchema> JsonSchema for Nullable<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Nullable{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = T::json_schema(generator);
        schema.insert("nullable".to_owned(), Value::Bool(true));
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct Holder {
        #[serde(default, skip_serializing_if = "Nullable::is_absent")]
        field: Nullable<u8>,
    }

    #[test]
    fn absent_null_and_value_stay_what_they_are() {
        for (json, field) in
            [("{}", Nullable::Absent), (r#"{"field":null}"#, Nullable::Null), (r#"{"field":7}"#, Nullable::Value(7))]
        {
            let holder: Holder = serde_json::from_str(json).unwrap();
            assert_eq!(holder, Holder { field });
            assert_eq!(serde_json::to_string(&holder).unwrap(), json);
        }
    }
}
