//! QMP messages as they are sent.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The first line of every QMP server.
#[derive(Debug, Deserialize)]
pub(super) struct Greeting {
    #[serde(rename = "QMP")]
    _qmp: Value,
}

/// A command. An object without arguments is left out: old agents take exception to it.
#[derive(Serialize)]
pub(super) struct Request {
    pub(super) execute: &'static str,
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) arguments: Value,
    pub(super) id: u64,
}

pub(super) fn is_empty(arguments: &Value) -> bool {
    arguments.as_object().is_none_or(serde_json::Map::is_empty)
}

/// Anything that QEMU says after its greeting.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Message {
    Event(Event),
    Return {
        #[serde(rename = "return")]
        answer: Value,
        id: u64,
    },
    Error {
        error: Failure,
        // Absent when QEMU could not even read the command.
        #[serde(default)]
        id: Option<u64>,
    },
}

/// Something that happened to the guest.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Event {
    /// What happened, as in `SHUTDOWN`.
    #[serde(rename = "event")]
    pub name: String,
    /// Details, different for each event.
    #[serde(default)]
    pub data: Value,
    /// When, by QEMU's clock.
    pub timestamp: Timestamp,
}

/// A moment, by QEMU's clock.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub struct Timestamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// And microseconds.
    pub microseconds: i64,
}

/// A refusal in QEMU's own words.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Failure {
    /// The kind of error; nearly always `GenericError`.
    pub class: String,
    pub desc: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.desc)
    }
}
