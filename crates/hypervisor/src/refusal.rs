//! What cannot be done, by the path of the field that asked for it.

use std::fmt;

/// A field that cannot be honoured.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Refusal {
    /// Where, as in `spec.domain.devices.gpus[0]`.
    pub path: String,
    /// Why, and what to do instead.
    pub problem: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}
