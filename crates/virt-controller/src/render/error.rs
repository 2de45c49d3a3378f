//! Why an instance has no launcher pod.

use virt_rules::support::Refusal;

/// Why an instance has no launcher pod, by the field that is the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// It asks for what nobody does, here or yet.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The field makes no sense, or contradicts another one.
    #[error("{path}: {problem}")]
    Invalid {
        /// The field.
        path: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The claim is not in the namespace.
    #[error("{path}: persistent volume claim {claim:?} does not exist; waiting for it")]
    ClaimMissing {
        /// The field that names it.
        path: String,
        /// Its name.
        claim: String,
    },
    /// The instance was never stored, and so cannot own a pod.
    #[error("metadata.{field}: is empty; only a stored instance can have a pod")]
    NotStored {
        /// What it lacks.
        field: &'static str,
    },
}

impl RenderError {
    /// Whether the same instance can have a pod later, without an edit.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::ClaimMissing { .. } | Self::Refused(Refusal::Gated { .. }) => true,
            Self::Refused(Refusal::Unsupported { .. } | Refusal::Value { .. })
            | Self::Invalid { .. }
            | Self::NotStored { .. } => false,
        }
    }

    pub(super) fn invalid(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), problem: problem.into() }
    }
}
