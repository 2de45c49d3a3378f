//! A stream's bytes in frames: so that its end, and why it ended, are told from a connection that was lost.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::io::{AsyncBufRead as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, ReadBuf};

/// What is read at once, and so the longest frame that is sent.
pub(super) const PIECE: usize = 64 << 10;
/// A kind and a length.
const HEAD: usize = 5;
/// Bytes of the stream.
const DATA: u8 = 0;
/// There are no more.
const END: u8 = 1;
/// Why there are no more, in words.
const BROKEN: u8 = 2;
/// The longest reason that is listened to.
const LONGEST_REASON: usize = 4096;

/// Frames of the other side as bytes. A reason to end is an error in its words; so is a connection that is lost.
pub(super) struct Reading<R> {
    from: BufReader<R>,
    state: State,
    /// A frame as far as it has come, where each read is a whole one.
    gathered: Option<Vec<u8>>,
}

enum State {
    /// The head of a frame, as far as it has come.
    Head(BytesMut),
    /// So many bytes of the stream.
    Data(usize),
    /// A reason, as far as it has come, and what is left of it.
    Reason(Vec<u8>, usize),
    Ended,
}

impl<R: AsyncRead> Reading<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from: BufReader::with_capacity(PIECE + HEAD, from), state: State::Head(BytesMut::new()), gathered: None }
    }

    /// The same for datagrams: each read is a whole frame. Whoever reads has room for a piece.
    pub(super) fn datagrams(from: R) -> Self {
        Self { gathered: Some(Vec::new()), ..Self::new(from) }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Reading<R> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { from, state, gathered } = self.get_mut();
        if to.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            match state {
                State::Ended => return Poll::Ready(Ok(())),
                State::Data(0) => *state = State::Head(BytesMut::new()),
                State::Reason(reason, 0) => {
                    let reason = String::from_utf8_lossy(reason).into_owned();
                    *state = State::Ended;
                    return Poll::Ready(Err(io::Error::other(reason)));
                }
                State::Head(head) if head.len() == HEAD => {
                    *state = next(head)?;
                    if matches!(state, State::Data(length) if gathered.is_some() && *length > PIECE) {
                        return Poll::Ready(Err(strange()));
                    }
                }
                State::Data(_) | State::Reason(..) | State::Head(_) => {}
            }
            if matches!(state, State::Ended | State::Data(0) | State::Reason(_, 0)) {
                continue;
            }
            let here = ready!(Pin::new(&mut *from).poll_fill_buf(context))?;
            if here.is_empty() {
                let lost = io::Error::new(io::ErrorKind::UnexpectedEof, "the connection to the node was lost");
                return Poll::Ready(Err(lost));
            }
            let taken = match state {
                State::Head(head) => {
                    let taken = here.len().min(HEAD - head.len());
                    head.extend(here.iter().take(taken));
                    taken
                }
                State::Data(left) => {
                    let room = if gathered.is_some() { *left } else { to.remaining() };
                    let taken = here.len().min(*left).min(room);
                    let bytes = here.get(..taken).unwrap_or_default();
                    match gathered {
                        Some(gathered) => gathered.extend_from_slice(bytes),
                        None => to.put_slice(bytes),
                    }
                    *left -= taken;
                    taken
                }
                State::Reason(reason, left) => {
                    let taken = here.len().min(*left);
                    reason.extend(here.iter().take(taken));
                    *left -= taken;
                    taken
                }
                State::Ended => 0,
            };
            Pin::new(&mut *from).consume(taken);
            let is_done = match (&*state, &mut *gathered) {
                (State::Data(_), None) => true,
                (State::Data(0), Some(whole)) => {
                    put_whole(whole, to);
                    true
                }
                _ => false,
            };
            if is_done {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// Hands on a datagram; what has no room in it is lost, as with a socket.
fn put_whole(whole: &mut Vec<u8>, to: &mut ReadBuf<'_>) {
    let room = to.remaining().min(whole.len());
    to.put_slice(whole.get(..room).unwrap_or_default());
    whole.clear();
}

/// What follows a head.
fn next(head: &mut BytesMut) -> io::Result<State> {
    let (kind, length) = (head.get_u8(), usize::try_from(head.get_u32()).map_err(io::Error::other)?);
    match kind {
        DATA => Ok(State::Data(length)),
        END => Ok(State::Ended),
        BROKEN if length <= LONGEST_REASON => Ok(State::Reason(Vec::new(), length)),
        _ => Err(strange()),
    }
}

fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the node sent something that is not a frame")
}

/// Bytes as frames. Holds one frame at most.
pub(super) struct Writing<W> {
    to: W,
    frame: BytesMut,
    is_ended: bool,
}

impl<W: AsyncWrite + Unpin> Writing<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, frame: BytesMut::new(), is_ended: false }
    }

    /// Ends the stream with a reason, after all that was written.
    pub(super) async fn break_off(&mut self, reason: &str) -> io::Result<()> {
        self.flush().await?;
        if !self.is_ended {
            self.is_ended = true;
            let end = reason.floor_char_boundary(LONGEST_REASON);
            self.put(BROKEN, reason.get(..end).unwrap_or_default().as_bytes());
        }
        self.shutdown().await
    }

    fn put(&mut self, kind: u8, content: &[u8]) {
        self.frame.put_u8(kind);
        // No content is longer than a piece.
        self.frame.put_u32(u32::try_from(content.len()).unwrap_or_default());
        self.frame.put_slice(content);
    }

    /// Sends what waits.
    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.frame.has_remaining() {
            let sent = ready!(Pin::new(&mut self.to).poll_write(context, &self.frame))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.frame.advance(sent);
        }
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Writing<W> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_sent(context))?;
        if this.is_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let piece = bytes.get(..bytes.len().min(PIECE)).unwrap_or_default();
        if piece.is_empty() {
            return Poll::Ready(Ok(0));
        }
        this.put(DATA, piece);
        // It is taken, whether or not it can be sent at once.
        match this.poll_sent(context) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(piece.len())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_sent(context))?;
        Pin::new(&mut this.to).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_ended {
            // Behind what waits.
            this.is_ended = true;
            this.put(END, &[]);
        }
        ready!(this.poll_sent(context))?;
        Pin::new(&mut this.to).poll_shutdown(context)
    }
}
