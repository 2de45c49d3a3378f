//! Columns of the built-in kinds, as kube-apiserver prints them. What is recorded from it is in `tests/tables`.

mod admission;
mod autoscalers;
mod cluster;
mod core;
mod events;
mod networking;
mod nodes;
mod parts;
mod pods;
mod resources;
mod selectors;
mod services;
mod storage;
mod workloads;

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

impl Cell {
    const fn text(name: &'static str, description: &'static str, value: fn(&Value, Timestamp) -> Value) -> Self {
        Self { name, kind: "string", format: "", description, priority: 0, value }
    }

    const fn integer(name: &'static str, description: &'static str, value: fn(&Value, Timestamp) -> Value) -> Self {
        Self { kind: "integer", ..Self::text(name, description, value) }
    }

    const fn boolean(name: &'static str, description: &'static str, value: fn(&Value, Timestamp) -> Value) -> Self {
        Self { kind: "boolean", ..Self::text(name, description, value) }
    }

    /// What clients may take for the name of the object.
    const fn named(self) -> Self {
        Self { format: "name", ..self }
    }

    /// Shown only if asked for more.
    const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }
}

const NAME: Cell = Cell::text("Name", "Name of the object.", |object, _| parts::text(object, "/metadata/name")).named();
const AGE: Cell = Cell::text("Age", "Time since the object was created.", |object, now| {
    parts::ago(object, "/metadata/creationTimestamp", now).into()
});

/// The columns of a resource; name and time of creation where it has none of its own.
pub(super) fn of(group: &str, plural: &str) -> &'static [Cell] {
    let own = match group {
        "" => core::of(plural),
        "events.k8s.io" => events::of(plural),
        "apps" | "batch" | "policy" => workloads::of(plural),
        "autoscaling" => autoscalers::of(plural),
        "storage.k8s.io" => storage::of(plural),
        "networking.k8s.io" | "discovery.k8s.io" => networking::of(plural),
        "admissionregistration.k8s.io" => admission::of(plural),
        "resource.k8s.io" => resources::of(plural),
        _ => cluster::of(group, plural),
    };
    own.unwrap_or(PLAIN)
}

const PLAIN: &[Cell] = &[
    NAME,
    Cell {
        kind: "date",
        ..Cell::text("Created At", "Time when the object was created.", |object, _| {
            object["metadata"]["creationTimestamp"].clone()
        })
    },
];

/// Kinds of which there is nothing to tell but that they are there.
const AGED: &[Cell] = &[NAME, AGE];
