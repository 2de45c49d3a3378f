//! Answers: whole, or made piece by piece while they are sent.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::{Body, Frame};
use tokio::sync::mpsc;

/// Pieces that wait for a client that reads slowly.
const WAITING: usize = 4;
/// What one piece has.
pub(crate) const PIECE: usize = 128 << 10;

/// The body of an answer.
pub(crate) enum AnswerBody {
    Whole(Option<Bytes>),
    Pieces(mpsc::Receiver<io::Result<Bytes>>),
}

pub(crate) type Answer = Response<AnswerBody>;

/// An answer without content.
pub(crate) fn empty(status: StatusCode) -> Answer {
    let mut response = Response::new(AnswerBody::Whole(None));
    *response.status_mut() = status;
    response
}

/// An answer with a text.
pub(crate) fn text(content_type: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(AnswerBody::Whole(Some(text.into())));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// An answer that a thread of its own writes. If it fails, the connection is broken off.
pub(crate) fn written(write: impl FnOnce(&mut Pieces) -> io::Result<()> + Send + 'static) -> Answer {
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::task::spawn_blocking(move || {
        let mut pieces = Pieces { sender, piece: Vec::with_capacity(PIECE) };
        let Err(error) = write(&mut pieces).and_then(|()| pieces.flush()) else { return };
        if !pieces.sender.is_closed() {
            tracing::warn!(%error, "cannot send all of a volume; the connection is closed");
        }
        // Whoever has hung up does not need to know.
        let _ = pieces.sender.blocking_send(Err(error));
    });
    Response::new(AnswerBody::Pieces(receiver))
}

/// What is written is sent, piece by piece, as fast as the client takes it.
pub(crate) struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..length]);
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone");
        self.sender.blocking_send(Ok(piece.into())).map_err(gone)
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().filter(|bytes| !bytes.is_empty()).map(Frame::data).map(Ok)),
            Self::Pieces(receiver) => receiver.poll_recv(context).map(|next| next.map(|piece| piece.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match self {
            Self::Whole(bytes) => http_body::SizeHint::with_exact(bytes.as_ref().map_or(0, |it| it.len() as u64)),
            Self::Pieces(_) => http_body::SizeHint::default(),
        }
    }
}
