//! The bytes of a stream, from its first to its last.
//!
//! A client shows life by what it sends, pongs among it, and by taking what waited for it. While a guest takes nothing of what the
//! client sent, the client is not read and therefore not judged.

mod life;

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::CapacityError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use super::Lasting;
use life::{Life, Showing};

/// What is read of a guest at once, and so the longest message that is sent.
const PIECE: usize = 64 << 10;
/// The longest message that a client may send.
const LONGEST: usize = 1 << 20;
/// Between two signs of life that a client is asked for.
const PING: Duration = Duration::from_secs(10);
/// How long a client may take to say goodbye.
const FAREWELL: Duration = Duration::from_secs(3);
/// What a close frame has room for.
const LONGEST_REASON: usize = 123;

/// How a stream ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The client said goodbye.
    Client,
    /// The client went without a word.
    Gone,
    /// The guest hung up.
    Guest,
    /// Something on the guest's side broke.
    Broken(String),
    /// The client sent a message that is longer than what is taken.
    TooLong(usize),
    /// The server ends.
    Stopping,
}

/// Copies until one of both ends it, the server stops, or the client is silent for too long.
pub(super) async fn between<C, G>(client: C, guest: G, lasting: Option<Lasting>)
where
    C: AsyncRead + AsyncWrite + Unpin,
    G: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(PIECE)
        .write_buffer_size(0)
        .max_write_buffer_size(4 * PIECE)
        .max_message_size(Some(LONGEST))
        .max_frame_size(Some(LONGEST));
    let life = Arc::new(Life::default());
    let client = Showing::new(client, life.clone());
    let socket = WebSocketStream::from_raw_socket(client, Role::Server, Some(config)).await;
    let (mut to_client, mut from_client) = socket.split();
    let (mut from_guest, mut to_guest) = tokio::io::split(guest);
    let stopping = async {
        match &lasting {
            Some(lasting) => lasting.stopping().await,
            None => std::future::pending().await,
        }
        End::Stopping
    };
    // What a client still has to say comes before the reason to end.
    let end = tokio::select! {
        biased;
        end = to_the_guest(&mut from_client, &mut to_guest, &life) => end,
        end = to_the_client(&mut from_guest, &mut to_client) => end,
        end = stopping => end,
        () = life.silence() => End::Gone,
    };
    tracing::debug!(?end, "a stream ended");
    // The guest learns that nobody writes any more, after all that was written.
    let _ = timeout(FAREWELL, to_guest.shutdown()).await;
    let (code, reason) = match end {
        End::Gone => return,
        End::Client | End::Guest => (CloseCode::Normal, String::new()),
        End::Broken(reason) => (CloseCode::Error, reason),
        End::TooLong(size) => {
            (CloseCode::Size, format!("a message has {size} bytes; at most {LONGEST} are taken at once"))
        }
        End::Stopping => (CloseCode::Away, "the server stops".to_owned()),
    };
    let farewell = async {
        let frame = CloseFrame { code, reason: shortened(&reason).into() };
        // Whoever has closed already gets the answer that the protocol has for it.
        if to_client.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = from_client.next().await {}
            // What a socket still holds unread would take the reason along when it closes.
            if code == CloseCode::Size
                && let Ok(mut socket) = to_client.reunite(from_client)
            {
                let _ = tokio::io::copy(socket.get_mut(), &mut tokio::io::sink()).await;
            }
        }
    };
    let _ = timeout(FAREWELL, farewell).await;
}

/// Passes on what a client says, until it says goodbye or is gone.
async fn to_the_guest<C>(from: &mut C, guest: &mut (impl AsyncWrite + Unpin), life: &Life) -> End
where
    C: Stream<Item = Result<Message, SocketError>> + Unpin,
{
    while let Some(message) = from.next().await {
        match message {
            Ok(Message::Binary(bytes)) => {
                let written = async {
                    guest.write_all(&bytes).await?;
                    // A way over the network may hold back what is not flushed.
                    guest.flush().await
                };
                if let Err(error) = life.held(written).await {
                    return End::Broken(error.to_string());
                }
            }
            Ok(Message::Close(_)) | Err(SocketError::ConnectionClosed) => return End::Client,
            // Text is not ours, and the rest is answered by the protocol itself.
            Ok(_) => {}
            Err(SocketError::Capacity(CapacityError::MessageTooLong { size, .. })) => return End::TooLong(size),
            Err(_) => return End::Gone,
        }
    }
    End::Gone
}

/// Passes on what a guest says, until it hangs up; and asks the client for signs of life.
async fn to_the_client<C>(guest: &mut (impl AsyncRead + Unpin), to: &mut C) -> End
where
    C: Sink<Message, Error = SocketError> + Unpin,
{
    let mut pings = interval_at(Instant::now() + PING, PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut buffer = BytesMut::with_capacity(PIECE);
    loop {
        buffer.reserve(PIECE);
        // A guest that always has something to say keeps no client from being asked.
        let message = tokio::select! {
            biased;
            _ = pings.tick() => Message::Ping(bytes::Bytes::new()),
            read = guest.read_buf(&mut buffer) => match read {
                Ok(0) => return End::Guest,
                Ok(_) => Message::Binary(buffer.split().freeze()),
                Err(error) => return End::Broken(error.to_string()),
            },
        };
        if to.send(message).await.is_err() {
            return End::Gone;
        }
    }
}

/// As much of a text as a close frame has room for.
fn shortened(reason: &str) -> &str {
    let mut end = reason.len().min(LONGEST_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests;
