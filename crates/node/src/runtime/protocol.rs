//! What an agent and a shim say to each other: JSON, each message behind its length.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::spec::{Container, Executed, PodState};

/// A container with all its environment and mounts is far smaller.
const MAX_MESSAGE: u32 = 8 << 20;

/// From the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    /// Chosen by the agent; the reply has it too.
    pub(crate) id: u64,
    pub(crate) request: Request,
}

/// What is asked of a shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Start(Box<Container>),
    Signal {
        container: String,
        signal: i32,
    },
    Exec {
        container: String,
        command: Vec<String>,
        timeout_ms: u64,
    },
    /// Ends all containers, then the shim.
    End,
}

/// From the shim. The first one is a state, and every change brings another.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    State(PodState),
    Reply { id: u64, answer: Result<Answer, String> },
}

/// What a request brought.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Executed(Executed),
}

/// One message, or none if the other side is gone.
pub(crate) async fn read<T: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let length = u32::from_be_bytes(length);
    if length > MAX_MESSAGE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await?;
    Ok(Some(serde_json::from_slice(&bytes)?))
}

/// One message, whole.
pub(crate) async fn write(stream: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).ok().filter(|length| *length <= MAX_MESSAGE);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"))?;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    stream.write_all(&bytes).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read_and_the_end_is_told() {
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        let message = Message::Reply { id: 7, answer: Err("no such container".to_owned()) };
        write(&mut near, &message).await.unwrap();
        drop(near);
        let read_back = read::<Message>(&mut far).await.unwrap();
        assert!(matches!(read_back, Some(Message::Reply { id: 7, answer: Err(_) })), "{read_back:?}");
        assert!(read::<Message>(&mut far).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_length_beyond_all_reason_takes_no_memory() {
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0];
        assert_eq!(read::<Call>(&mut bytes).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
