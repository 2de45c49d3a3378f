//! Columns of the built-in kinds.

use jiff::Timestamp;
use serde_json::Value;

/// A column and what it shows of an object.
pub(crate) struct Cell {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) format: &'static str,
    pub(crate) description: &'static str,
    pub(crate) priority: i32,
    pub(crate) value: fn(&Value, Timestamp) -> Value,
}

/// The columns of a resource; name and time of creation where it has none of its own.
pub(super) fn of(_group: &str, _plural: &str) -> &'static [Cell] {
    PLAIN
}

const PLAIN: &[Cell] = &[
    Cell {
        name: "Name",
        kind: "string",
        format: "name",
        description: "The object's name.",
        priority: 0,
        value: |object, _| object["metadata"]["name"].clone(),
    },
    Cell {
        name: "Created At",
        kind: "date",
        format: "",
        description: "When the object was made.",
        priority: 0,
        value: |object, _| object["metadata"]["creationTimestamp"].clone(),
    },
];
