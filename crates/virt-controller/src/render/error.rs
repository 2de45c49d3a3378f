//! Why an instance has no launcher pod.

/// Why an instance has no launcher pod, by the field that is the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The field is known and nobody acts on it yet.
    #[error("{path}: is not supported yet; {instead}")]
    Unsupported {
        /// The field, as in `spec.volumes[0].memoryDump`.
        path: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// The feature is off in this cluster.
    #[error("{path}: needs the feature gate {gate}; add it to the KubeVirt CR or remove the field")]
    Gated {
        /// The field.
        path: String,
        /// The gate's name.
        gate: &'static str,
    },
    /// The field makes no sense, or contradicts another one.
    #[error("{path}: {problem}")]
    Invalid {
        /// The field.
        path: String,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The claim is not in the namespace.
    #[error("{path}: there is no persistent volume claim {claim:?}; it is waited for")]
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
            Self::ClaimMissing { .. } | Self::Gated { .. } => true,
            Self::Unsupported { .. } | Self::Invalid { .. } | Self::NotStored { .. } => false,
        }
    }

    pub(super) fn invalid(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), problem: problem.into() }
    }
}
