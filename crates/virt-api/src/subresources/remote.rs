//! Guests of another process: what virt-api says to virt-handler, and hears from it, on a connection that both trust.
//!
//! ```text
//! virt-api ──Asked──> virt-handler        one JSON text each, with its length before it
//!          <─Answer──
//!          <─frames─>                     after `Opened`: bytes, an end, or why it broke (`framed`)
//! ```
//! A connection carries one question, or one way into a guest.
//!
//! # Guarantees
//! - A node does only what is asked of its own guests.
//! - Bytes keep their order, and those that were sent before an end arrive. An end has its reason on both sides.
//!
//! Absent on purpose: who is on the other side, which whoever connects and accepts has made sure of.

mod framed;

use std::fmt::Display;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::guests::{Connection, GuestError, GuestName, Guests, Question, Reply, Way};
use framed::{PIECE, Reading, Writing};

/// The longest question.
const LONGEST_QUESTION: u32 = 64 << 10;
/// The longest answer: what a guest's agent tells, or a picture of its screen.
const LONGEST_ANSWER: u32 = 64 << 20;
/// How long the other side may take for its question.
const ASKING: Duration = Duration::from_secs(10);
/// How long it may take for its answer: longer than a node gives a launcher.
const ANSWERING: Duration = Duration::from_secs(60);

/// What is asked.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
enum Asked {
    Ask { guest: GuestName, question: Question },
    Open { guest: GuestName, way: Way },
}

impl Asked {
    fn guest(&self) -> &GuestName {
        match self {
            Self::Ask { guest, .. } | Self::Open { guest, .. } => guest,
        }
    }
}

/// What is answered.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
enum Answer {
    Done,
    Object(Value),
    /// So many bytes follow.
    Picture(u32),
    /// Frames follow.
    Opened,
    Error(GuestError),
}

/// Asks a guest, over a connection to its node.
///
/// # Errors
/// What the node answers, or that it does not.
pub async fn ask<S>(mut stream: S, guest: GuestName, question: Question) -> Result<Reply, GuestError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let asked = Asked::Ask { guest, question };
    let replied = async {
        write(&mut stream, &asked).await?;
        Ok(match read(&mut stream, LONGEST_ANSWER).await? {
            Answer::Done => Ok(Reply::Done),
            Answer::Object(object) => Ok(Reply::Object(object)),
            Answer::Picture(length) => Ok(Reply::Picture(read_bytes(&mut stream, length, LONGEST_ANSWER).await?)),
            Answer::Error(error) => Err(error),
            Answer::Opened => return Err(io::Error::from(io::ErrorKind::InvalidData)),
        })
    };
    within(asked.guest(), replied).await
}

/// Opens a way into a guest, over a connection to its node.
///
/// # Errors
/// What the node answers, or that it does not.
pub async fn open<S>(mut stream: S, guest: GuestName, way: Way) -> Result<Connection, GuestError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let asked = Asked::Open { guest, way };
    let answered = async {
        write(&mut stream, &asked).await?;
        match read(&mut stream, LONGEST_ANSWER).await? {
            Answer::Opened => Ok(Ok(())),
            Answer::Error(error) => Ok(Err(error)),
            Answer::Done | Answer::Object(_) | Answer::Picture(_) => Err(io::ErrorKind::InvalidData.into()),
        }
    };
    within(asked.guest(), answered).await?;
    let (from, to) = tokio::io::split(stream);
    Ok(Box::new(tokio::io::join(reading(from, way), Writing::new(to))))
}

/// What comes by a way: a datagram stays one.
fn reading<R: AsyncRead>(from: R, way: Way) -> Reading<R> {
    match way {
        Way::Datagrams { .. } => Reading::datagrams(from),
        Way::Console { .. } | Way::Vnc { .. } | Way::Port { .. } => Reading::new(from),
    }
}

async fn within<T>(
    guest: &GuestName,
    answered: impl Future<Output = io::Result<Result<T, GuestError>>>,
) -> Result<T, GuestError> {
    let failed = |why: &dyn Display| GuestError::Failed(format!("virt-handler on node {:?}: {why}", guest.node));
    match timeout(ANSWERING, answered).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => Err(failed(&format_args!("no answer within {} s", ANSWERING.as_secs()))),
    }
}

/// Answers a connection of virt-api's, on the node of this name, until it ends or `stopping` resolves.
///
/// # Errors
/// When the connection breaks.
pub async fn serve<S>(
    mut stream: S,
    node: &str,
    guests: &dyn Guests,
    stopping: impl Future<Output = ()>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let asked: Asked = timeout(ASKING, read(&mut stream, LONGEST_QUESTION)).await.map_err(io::Error::from)??;
    let GuestName { namespace, name, node: its_node, .. } = asked.guest();
    if its_node != node {
        let why = format!("VMI {namespace}/{name} is on node {its_node:?}, not on {node:?}");
        return last(stream, &Answer::Error(GuestError::Unknown(why))).await;
    }
    match asked {
        Asked::Ask { guest, question } => match guests.ask(guest, question).await {
            Ok(Reply::Done) => last(stream, &Answer::Done).await,
            Ok(Reply::Object(object)) => last(stream, &Answer::Object(object)).await,
            Ok(Reply::Picture(bytes)) => {
                write(&mut stream, &Answer::Picture(length(&bytes)?)).await?;
                stream.write_all(&bytes).await?;
                stream.shutdown().await
            }
            Err(error) => last(stream, &Answer::Error(error)).await,
        },
        Asked::Open { guest, way } => match guests.open(guest, way).await {
            Ok(opened) => {
                write(&mut stream, &Answer::Opened).await?;
                carry(stream, (opened, way), stopping).await
            }
            Err(error) => last(stream, &Answer::Error(error)).await,
        },
    }
}

/// How one direction of a stream ended.
enum End {
    /// Whoever was read from has no more to say, and the other side knows.
    Said,
    /// virt-api is gone.
    Gone(io::Error),
    /// The guest's side broke.
    Broken(String),
}

/// Carries bytes between virt-api and a guest. Each direction ends by itself, and both when something breaks.
async fn carry<S>(stream: S, (guest, way): (Connection, Way), stopping: impl Future<Output = ()>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (from, to) = tokio::io::split(stream);
    let (mut from_api, mut to_api) = (reading(from, way), Writing::new(to));
    let (mut from_guest, mut to_guest) = tokio::io::split(guest);
    let reason = {
        let mut inwards = std::pin::pin!(to_the_guest(&mut from_api, &mut to_guest));
        let mut outwards = std::pin::pin!(to_the_api(&mut from_guest, &mut to_api));
        let mut stopping = std::pin::pin!(stopping);
        let (mut is_open, mut is_told) = (true, true);
        loop {
            // What virt-api still has to say comes before the reason to end.
            let end = tokio::select! {
                biased;
                end = &mut inwards, if is_open => {
                    is_open = false;
                    end
                }
                end = &mut outwards, if is_told => {
                    is_told = false;
                    end
                }
                () = &mut stopping => End::Broken("virt-handler stops".to_owned()),
            };
            match end {
                End::Said if !is_open && !is_told => return Ok(()),
                End::Said => {}
                End::Gone(error) => return Err(error),
                End::Broken(reason) => break reason,
            }
        }
    };
    to_api.break_off(&reason).await
}

async fn to_the_guest(from: &mut (impl AsyncRead + Unpin), guest: &mut (impl AsyncWrite + Unpin)) -> End {
    let mut buffer = BytesMut::with_capacity(PIECE);
    loop {
        buffer.clear();
        let read = match from.read_buf(&mut buffer).await {
            Ok(read) => read,
            Err(error) => return End::Gone(error),
        };
        let passed = if read == 0 { guest.shutdown().await } else { pass_on(&buffer, guest).await };
        match passed {
            Err(error) => return End::Broken(error.to_string()),
            Ok(()) if read == 0 => return End::Said,
            Ok(()) => {}
        }
    }
}

async fn to_the_api(guest: &mut (impl AsyncRead + Unpin), to: &mut (impl AsyncWrite + Unpin)) -> End {
    let mut buffer = BytesMut::with_capacity(PIECE);
    loop {
        buffer.clear();
        let read = match guest.read_buf(&mut buffer).await {
            Ok(read) => read,
            Err(error) => return End::Broken(error.to_string()),
        };
        let passed = if read == 0 { to.shutdown().await } else { pass_on(&buffer, to).await };
        match passed {
            Err(error) => return End::Gone(error),
            Ok(()) if read == 0 => return End::Said,
            Ok(()) => {}
        }
    }
}

/// Writes, and lets nothing wait.
async fn pass_on(bytes: &[u8], to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}

/// The last that is said on a connection.
async fn last(mut stream: impl AsyncWrite + Unpin, answer: &Answer) -> io::Result<()> {
    write(&mut stream, answer).await?;
    stream.shutdown().await
}

async fn read<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin), longest: u32) -> io::Result<T> {
    let length = from.read_u32().await?;
    let text = read_bytes(from, length, longest).await?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

async fn read_bytes(from: &mut (impl AsyncRead + Unpin), length: u32, longest: u32) -> io::Result<Bytes> {
    if length > longest {
        return Err(io::Error::other("the message is too long"));
    }
    // Room is made as the bytes come: a length alone costs nothing.
    let mut bytes = Vec::new();
    from.take(length.into()).read_to_end(&mut bytes).await?;
    if bytes.len() == usize::try_from(length).unwrap_or(usize::MAX) {
        Ok(bytes.into())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

async fn write<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), value: &T) -> io::Result<()> {
    let text = serde_json::to_vec(value)?;
    to.write_u32(length(&text)?).await?;
    to.write_all(&text).await?;
    to.flush().await
}

fn length(bytes: &[u8]) -> io::Result<u32> {
    u32::try_from(bytes.len()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
