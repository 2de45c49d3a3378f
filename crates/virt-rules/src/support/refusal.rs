//! A field that is refused, and why.

use std::fmt;

/// A field that is not acted on as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The field is known and nobody acts on it yet.
    Unsupported {
        /// The field, as in `spec.volumes[0].memoryDump`.
        path: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// The feature is off in this cluster.
    Gated {
        /// The field.
        path: String,
        /// The gate's name.
        gate: &'static str,
    },
    /// The field is acted on, but not with this value.
    Value {
        /// The field.
        path: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
}

impl Refusal {
    /// The field.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Unsupported { path, .. } | Self::Gated { path, .. } | Self::Value { path, .. } => path,
        }
    }

    /// Why it is refused, and what to do.
    #[must_use]
    pub fn problem(&self) -> String {
        match self {
            Self::Unsupported { instead, .. } => format!("is not supported yet; {instead}"),
            Self::Gated { gate, .. } => {
                format!("needs the feature gate {gate}; enable it in the KubeVirt CR or remove the field")
            }
            Self::Value { problem, .. } => problem.clone(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path(), self.problem())
    }
}

impl std::error::Error for Refusal {}
