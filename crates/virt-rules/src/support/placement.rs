//! What becomes of a field.

use std::fmt;

use crate::config::Gate;

/// A field and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The field, as in `spec.domain.devices.disks[].cache`.
    pub path: String,
    /// What becomes of it.
    pub placement: Placement,
}

/// What becomes of a field that is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It does what it says.
    Works,
    /// It does what it says for these values; others are refused.
    Values(&'static [&'static str]),
    /// It does what it says within these bounds; the rest is refused.
    Within(&'static str),
    /// It does what it says where a node has what it takes, which only the node knows.
    NeedsNode(&'static str),
    /// It does what it says where the feature is on; else it is refused.
    WorksWith(Gate),
    /// `orlop run` does it; in a cluster it is refused, with what to do instead.
    InRunOnly(&'static str),
    /// It is accepted, and it does no harm that nobody acts on it, for this reason.
    NotActedOn(&'static str),
    /// It is refused, with what to do instead.
    Unsupported(&'static str),
}

impl Placement {
    /// In one or two words.
    #[must_use]
    pub fn state(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Values(_) => "works with these values",
            Self::Within(_) => "works within bounds",
            Self::NeedsNode(_) => "works if the node can",
            Self::WorksWith(_) => "works with a feature gate",
            Self::InRunOnly(_) => "works in `orlop run` only",
            Self::NotActedOn(_) => "accepted and ignored",
            Self::Unsupported(_) => "refused",
        }
    }
}

/// The rest of what is to be said.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => Ok(()),
            Self::Values(values) => f.write_str(&values.join(", ")),
            Self::WorksWith(gate) => f.write_str(gate.name()),
            Self::Within(text)
            | Self::NeedsNode(text)
            | Self::InRunOnly(text)
            | Self::NotActedOn(text)
            | Self::Unsupported(text) => f.write_str(text),
        }
    }
}
