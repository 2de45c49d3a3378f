//! The objects and devices that arguments and commands are made of.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::qmp::Command;

/// A piece of a device: something behind it, or the device itself.
#[derive(Clone, Debug)]
pub enum Part {
    /// A backend of QEMU's.
    Object(Value),
    /// A chain of block nodes.
    Block(Value),
    /// A way out of the guest for bytes, as an argument: it is there from the start, or not at all.
    Character(String),
    /// A way out of the guest for packets, as an argument and as a command takes it.
    Network(String, Value),
    /// What the guest sees.
    Device(Value),
}

/// A command to a QEMU that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub name: &'static str,
    pub arguments: Value,
}

impl Serialize for Call {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.arguments.serialize(serializer)
    }
}

impl Command for Call {
    const NAME: &'static str = "";
    type Answer = Value;

    fn name(&self) -> &'static str {
        self.name
    }
}

impl Part {
    /// Its option, with its value.
    pub(super) fn argument(&self) -> (&'static str, String) {
        match self {
            Self::Object(value) => ("-object", value.to_string()),
            Self::Block(value) => ("-blockdev", value.to_string()),
            Self::Character(value) => ("-chardev", value.clone()),
            Self::Network(value, _) => ("-netdev", value.clone()),
            Self::Device(value) => ("-device", value.to_string()),
        }
    }

    /// How it comes into a QEMU that runs, if it can.
    #[must_use]
    pub fn add(&self) -> Option<Call> {
        let (name, arguments) = match self {
            Self::Object(value) => ("object-add", value),
            Self::Block(value) => ("blockdev-add", value),
            Self::Character(_) => return None,
            Self::Network(_, value) => ("netdev_add", value),
            Self::Device(value) => ("device_add", value),
        };
        Some(Call { name, arguments: arguments.clone() })
    }

    /// How it goes again. A device has gone only when QEMU says so, and what is behind it can go only then.
    #[must_use]
    pub fn remove(&self) -> Option<Call> {
        let (name, value, key) = match self {
            Self::Object(value) => ("object-del", value, "id"),
            Self::Block(value) => ("blockdev-del", value, "node-name"),
            Self::Character(_) => return None,
            Self::Network(_, value) => ("netdev_del", value, "id"),
            Self::Device(value) => ("device_del", value, "id"),
        };
        Some(Call { name, arguments: json!({ key: value[key] }) })
    }
}
