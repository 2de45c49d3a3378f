//! The guest agent: a program inside the guest that may or may not be there, and may or may not answer.
//!
//! Nothing it says can be trusted to be true, short or on time; every answer is bounded and has a deadline. The
//! protocol has no ids, so that a late answer could be taken for the answer to the next question: every conversation
//! begins with a synchronisation that throws away what came before.

pub mod commands;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::time::timeout;

use crate::qmp::{Command, Failure};

/// How long an agent may take to answer. It shares its CPU with the guest, which may be busy or stopped.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);
/// The longest answer that is read: output of commands run in the guest comes back whole.
const LONGEST: u64 = 16 << 20;
/// The byte that an agent sends before the answer to a synchronisation, and that no JSON contains.
const SENTINEL: u8 = 0xff;

/// Why the agent has not answered.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There is no answer; most guests have no agent.
    #[error("the guest agent did not answer {command} within {limit:?}")]
    Silent {
        command: &'static str,
        /// How long it had.
        limit: Duration,
    },
    /// The agent refused.
    #[error("the guest agent refused {command}: {failure}")]
    Refused {
        command: &'static str,
        /// In its own words.
        failure: Failure,
    },
    /// The answer is not what it should be.
    #[error("the guest agent's answer to {command} is invalid")]
    Answer {
        command: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The channel is closed.
    #[error("the channel to the guest agent is closed")]
    Closed(#[source] std::io::Error),
}

/// A conversation with a guest agent over its channel. One question at a time.
#[derive(Debug)]
pub struct Agent<S> {
    stream: BufReader<S>,
    /// Grows with each synchronisation; an answer with another number is old.
    round: u64,
    in_sync: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Agent<S> {
    /// Takes over a connected channel. Whether anyone answers shows with the first question.
    pub fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream), round: 0, in_sync: false }
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When there is no agent, it is slow, or it refuses.
    pub async fn execute<C: Command>(&mut self, command: C) -> Result<C::Answer, AgentError> {
        let name = C::NAME;
        let limit = command.deadline();
        if !self.in_sync {
            timeout(limit, self.synchronize()).await.map_err(|_| AgentError::Silent { command: name, limit })??;
        }
        let arguments =
            serde_json::to_value(&command).map_err(|source| AgentError::Answer { command: name, source })?;
        let mut request = json!({ "execute": name });
        if arguments.as_object().is_some_and(|fields| !fields.is_empty()) {
            request["arguments"] = arguments;
        }
        // Until the answer is there, a drop of this future leaves an answer behind that must be thrown away.
        self.in_sync = false;
        let answer = timeout(limit, self.exchange(&request))
            .await
            .map_err(|_| AgentError::Silent { command: name, limit })?
            .map_err(AgentError::Closed)?;
        self.in_sync = true;
        read_answer(name, &answer)
    }

    /// Sends a command that is not answered when it works, as a shutdown is not.
    ///
    /// # Errors
    /// When the channel is closed or the agent silent.
    pub async fn send<C: Command>(&mut self, command: C) -> Result<(), AgentError> {
        let name = C::NAME;
        let limit = command.deadline();
        if !self.in_sync {
            timeout(limit, self.synchronize()).await.map_err(|_| AgentError::Silent { command: name, limit })??;
        }
        let arguments =
            serde_json::to_value(&command).map_err(|source| AgentError::Answer { command: name, source })?;
        self.in_sync = false;
        self.write(&json!({ "execute": name, "arguments": arguments })).await.map_err(AgentError::Closed)
    }

    async fn synchronize(&mut self) -> Result<(), AgentError> {
        self.round += 1;
        let round = self.round;
        let request = json!({ "execute": "guest-sync-delimited", "arguments": { "id": round } });
        // A sentinel before the request ends whatever half a command the agent may have read.
        self.stream.get_mut().write_all(&[SENTINEL]).await.map_err(AgentError::Closed)?;
        self.write(&request).await.map_err(AgentError::Closed)?;
        loop {
            self.skip_to_sentinel().await.map_err(AgentError::Closed)?;
            let line = self.read().await.map_err(AgentError::Closed)?;
            let answer: Value = serde_json::from_slice(&line).unwrap_or_default();
            if answer["return"] == round {
                self.in_sync = true;
                return Ok(());
            }
        }
    }

    async fn exchange(&mut self, request: &Value) -> std::io::Result<Vec<u8>> {
        self.write(request).await?;
        self.read().await
    }

    async fn write(&mut self, request: &Value) -> std::io::Result<()> {
        let mut line = request.to_string().into_bytes();
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).await
    }

    async fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let mut line = Vec::new();
        match (&mut self.stream).take(LONGEST).read_until(b'\n', &mut line).await? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line),
        }
    }

    async fn skip_to_sentinel(&mut self) -> std::io::Result<()> {
        loop {
            let mut skipped = Vec::new();
            match (&mut self.stream).take(LONGEST).read_until(SENTINEL, &mut skipped).await? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                _ if skipped.ends_with(&[SENTINEL]) => return Ok(()),
                _ => {}
            }
        }
    }
}

fn read_answer<T: serde::de::DeserializeOwned>(command: &'static str, line: &[u8]) -> Result<T, AgentError> {
    let broken = |source| AgentError::Answer { command, source };
    let mut answer: Value = serde_json::from_slice(line).map_err(broken)?;
    if let Some(error) = answer.get_mut("error") {
        let failure = serde_json::from_value(error.take()).map_err(broken)?;
        return Err(AgentError::Refused { command, failure });
    }
    serde_json::from_value(answer["return"].take()).map_err(broken)
}
