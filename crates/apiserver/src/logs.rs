//! The logs of pods: where they come from is the embedder's.

use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;
use jiff::Timestamp;

/// What is asked for, of a pod that exists.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogRequest {
    /// The pod's namespace.
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// The container, which the pod has.
    pub container: String,
    pub image: String,
    /// Go on until the container ends.
    pub follow: bool,
    /// Of the container before the last restart.
    pub previous: bool,
    /// With the time of each line.
    pub timestamps: bool,
    /// Only lines since then.
    pub since: Option<Timestamp>,
    /// Only so many lines from the end.
    pub tail_lines: Option<usize>,
    /// Only so many bytes.
    pub limit_bytes: Option<u64>,
    /// Only what was written to one of the two.
    pub stream: Option<StandardStream>,
}

/// Where a container writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardStream {
    /// Standard output.
    Out,
    /// Standard error.
    Error,
}

/// Bytes of a log, as they come.
pub type LogStream = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// Opens logs.
pub trait PodLogs: Send + Sync {
    /// The log of one container, or in words why there is none.
    ///
    /// # Errors
    /// When there is no such log.
    fn open(&self, request: &LogRequest) -> Result<LogStream, String>;
}
