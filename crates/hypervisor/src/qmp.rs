//! A conversation with QEMU's monitor: typed commands with deadlines, events in order.
//!
//! One task owns the connection. Commands may be sent from anywhere and may be dropped at any time; an answer nobody
//! waits for any more is thrown away. Answers are read tolerantly: only the fields that are used, and an unknown event
//! is passed on like any other.

pub mod commands;
mod wire;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};

pub use wire::{Event, Failure};
use wire::{Greeting, Message, Request};

/// How long QEMU may take to answer, unless a command says otherwise. Its monitor answers within milliseconds; what
/// takes longer is a machine in trouble, or a QEMU that hangs.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest message that is read. Answers have a few kilobytes; this bounds what a broken peer can make us hold.
const LONGEST: u64 = 4 << 20;
/// Commands that wait to be sent, and events that wait to be read. QEMU holds back noisy events itself, so that a full
/// queue means a reader that has stopped.
const WAITING: usize = 1024;

/// A command of QMP, or of the guest agent, which speaks the same language.
pub trait Command: Serialize + Send {
    /// Its name on the wire.
    const NAME: &'static str;
    /// What is read of its answer.
    type Answer: DeserializeOwned;

    /// Its name on the wire, for those that have one only when they are made.
    fn name(&self) -> &'static str {
        Self::NAME
    }

    /// How long the answer may take.
    fn deadline(&self) -> Duration {
        DEADLINE
    }
}

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// QEMU is gone, or has closed the connection.
    #[error("the connection to QEMU is closed")]
    Closed,
    /// QEMU did not answer in time. Whether it acted is unknown.
    #[error("QEMU did not answer {command} within {limit:?}")]
    Deadline {
        command: &'static str,
        /// How long it had.
        limit: Duration,
    },
    /// QEMU refused.
    #[error("QEMU refused {command}: {failure}")]
    Refused {
        command: &'static str,
        /// In QEMU's own words.
        failure: Failure,
    },
    /// The answer is not what it should be.
    #[error("QEMU's answer to {command} is invalid")]
    Answer {
        command: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The peer does not speak QMP.
    #[error("QEMU sent no QMP greeting")]
    Greeting(#[source] std::io::Error),
}

impl QmpError {
    /// Whether the same command may succeed when it is sent again to the same QEMU.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Deadline { .. })
    }
}

/// A handle to send commands with; cheap to clone.
#[derive(Clone, Debug)]
pub struct Qmp {
    requests: mpsc::Sender<Outgoing>,
}

/// Events in the order QEMU sent them; ends when the connection does.
#[derive(Debug)]
pub struct Events(mpsc::Receiver<Event>);

impl Events {
    /// The next event, or `None` when the connection has ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }
}

/// A command on its way, and who waits for its answer.
#[derive(Debug)]
struct Outgoing {
    name: &'static str,
    arguments: Value,
    answer: oneshot::Sender<Result<Value, Failure>>,
}

/// Greets QEMU over a connected stream and starts the task that owns it.
///
/// # Errors
/// When the peer does not greet, or refuses to leave negotiation mode.
pub async fn connect<S>(stream: S) -> Result<(Qmp, Events), QmpError>
where
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let (read, write) = tokio::io::split(stream);
    let mut lines = BufReader::new(read);
    let mut greeting = Vec::new();
    tokio::time::timeout(DEADLINE, read_line(&mut lines, &mut greeting))
        .await
        .map_err(|_| QmpError::Deadline { command: "the connection", limit: DEADLINE })?
        .map_err(QmpError::Greeting)?;
    let _: Greeting = serde_json::from_slice(&greeting).map_err(|error| QmpError::Greeting(error.into()))?;
    let (qmp, events) = start(lines, write);
    qmp.execute(commands::Capabilities {}).await?;
    Ok((qmp, events))
}

/// Starts the task that owns a connection past its greeting.
fn start<R, W>(lines: BufReader<R>, write: W) -> (Qmp, Events)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (requests, outgoing) = mpsc::channel(WAITING);
    let (events, incoming) = mpsc::channel(WAITING);
    tokio::spawn(converse(lines, write, outgoing, events));
    (Qmp { requests }, Events(incoming))
}

impl Qmp {
    /// Sends a command and waits for its answer.
    ///
    /// Dropping the future gives the wait up, not the command.
    ///
    /// # Errors
    /// When QEMU refuses, does not answer in time, or is gone.
    pub async fn execute<C: Command>(&self, command: C) -> Result<C::Answer, QmpError> {
        let name = command.name();
        let arguments = serde_json::to_value(&command).map_err(|source| QmpError::Answer { command: name, source })?;
        let (answer, answered) = oneshot::channel();
        let limit = command.deadline();
        let exchange = async {
            self.requests.send(Outgoing { name, arguments, answer }).await.map_err(|_| QmpError::Closed)?;
            answered.await.map_err(|_| QmpError::Closed)
        };
        let answer = tokio::time::timeout(limit, exchange)
            .await
            .map_err(|_| QmpError::Deadline { command: name, limit })??
            .map_err(|failure| QmpError::Refused { command: name, failure })?;
        serde_json::from_value(answer).map_err(|source| QmpError::Answer { command: name, source })
    }
}

/// Owns the connection until either side ends it. Dropping the waiting senders tells everyone that it is closed.
async fn converse<R, W>(
    mut lines: BufReader<R>,
    mut write: W,
    mut outgoing: mpsc::Receiver<Outgoing>,
    events: mpsc::Sender<Event>,
) where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin,
{
    let mut waiting = BTreeMap::new();
    let mut next_id = 0u64;
    let mut buffer = Vec::new();
    loop {
        tokio::select! {
            biased;
            // What QEMU says comes first: an event that was sent before an answer is delivered before it. Reading into
            // a buffer that outlives the select loses nothing when the other branch wins.
            read = read_line(&mut lines, &mut buffer) => {
                if read.is_err() || !deliver(&buffer, &mut waiting, &events) {
                    return;
                }
                buffer.clear();
            }
            request = outgoing.recv() => {
                let Some(Outgoing { name, arguments, answer }) = request else { return };
                next_id += 1;
                let Ok(mut line) = serde_json::to_vec(&Request { execute: name, arguments, id: next_id }) else { continue };
                line.push(b'\n');
                waiting.insert(next_id, answer);
                if write.write_all(&line).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Hands a message to whoever it is for. False if the conversation cannot go on.
fn deliver(
    line: &[u8],
    waiting: &mut BTreeMap<u64, oneshot::Sender<Result<Value, Failure>>>,
    events: &mpsc::Sender<Event>,
) -> bool {
    match serde_json::from_slice(line) {
        Ok(Message::Event(event)) => match events.try_send(event) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => true,
            Err(mpsc::error::TrySendError::Full(event)) => {
                tracing::error!(event = event.name, "nothing reads QEMU's events; closing the connection");
                false
            }
        },
        Ok(Message::Return { answer, id }) => {
            if let Some(waiter) = waiting.remove(&id) {
                // The waiter may have given up; then the answer is for nobody.
                let _ = waiter.send(Ok(answer));
            }
            true
        }
        Ok(Message::Error { error, id }) => {
            if let Some(waiter) = id.and_then(|id| waiting.remove(&id)) {
                let _ = waiter.send(Err(error));
            }
            true
        }
        Err(error) => {
            tracing::warn!(%error, "skipped an invalid message from QEMU");
            true
        }
    }
}

/// Reads up to the end of a line. What was read of it stays in the buffer if the future is dropped.
async fn read_line<R: AsyncRead + Unpin>(lines: &mut BufReader<R>, buffer: &mut Vec<u8>) -> std::io::Result<()> {
    let room = LONGEST.saturating_sub(buffer.len() as u64);
    lines.take(room).read_until(b'\n', buffer).await?;
    if buffer.ends_with(b"\n") { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}
