//! Why a guest's network is not there; the variant says whether a retry helps.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Why a guest's network is not there.
#[derive(Debug, thiserror::Error)]
pub enum SetUpError {
    /// Another attempt ends the same way.
    #[error(transparent)]
    Final(#[from] FinalError),
    /// Another attempt may succeed; it goes on where this one stopped.
    #[error(transparent)]
    Retryable(#[from] RetryableError),
}

/// What no retry changes.
#[derive(Debug, thiserror::Error)]
pub enum FinalError {
    /// The record belongs to an earlier sandbox of the pod.
    #[error("according to {}, the network was set up in another namespace than the pod has now", .0.display())]
    OtherNamespace(PathBuf),
    /// The file is there, but its content is not a record.
    #[error("the record {} is damaged", path.display())]
    Damaged { path: PathBuf, source: io::Error },
    /// The child reports a plan that cannot be carried out, or a link that is in the way; with the chain of causes.
    #[error("cannot set up the network: {0}")]
    Refused(String),
}

/// What may pass.
#[derive(Debug, thiserror::Error)]
pub enum RetryableError {
    /// The record cannot be read or written.
    #[error("cannot {action} the record {}", path.display())]
    Record { action: &'static str, path: PathBuf, source: io::Error },
    /// The descriptor is not a network namespace.
    #[error("cannot inspect the pod's network namespace")]
    Namespace(#[source] io::Error),
    /// The child did not start, or its connection broke.
    #[error("cannot talk to {}", program.display())]
    Child { program: PathBuf, source: io::Error },
    /// The child ended without an answer.
    #[error("the process that sets up the network ended without an answer: {0}")]
    NoAnswer(ExitStatus),
    /// The child did not end.
    #[error("setting up the network took too long")]
    TimedOut,
    /// The child reports a failure that may pass; with the chain of causes.
    #[error("cannot set up the network: {0}")]
    Failed(String),
}
