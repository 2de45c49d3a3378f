//! Whether a client is still there.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// A client without a sign of life for so long is gone.
pub(super) const SILENCE: Duration = Duration::from_secs(60);

/// When a client last showed that it is there.
#[derive(Debug)]
pub(super) struct Life {
    began: Instant,
    /// In milliseconds since the stream began.
    seen: AtomicU64,
    /// Nobody listens to the client.
    is_held: AtomicBool,
}

impl Default for Life {
    fn default() -> Self {
        Self { began: Instant::now(), seen: AtomicU64::new(0), is_held: AtomicBool::new(false) }
    }
}

impl Life {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn sign(&self) {
        self.seen.store(self.now(), Ordering::Relaxed);
    }

    /// Does something during which nobody listens to the client. It then has its whole time again.
    pub(super) async fn held<T>(&self, work: impl Future<Output = T>) -> T {
        self.is_held.store(true, Ordering::Relaxed);
        let done = work.await;
        self.sign();
        self.is_held.store(false, Ordering::Relaxed);
        done
    }

    /// Resolves when there was no sign for too long.
    pub(super) async fn silence(&self) {
        loop {
            let quiet = Duration::from_millis(self.now().saturating_sub(self.seen.load(Ordering::Relaxed)));
            let left = match self.is_held.load(Ordering::Relaxed) {
                true => SILENCE,
                false => SILENCE.saturating_sub(quiet),
            };
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

/// A client's connection, which shows the client's life: bytes came from it, or it made room where there was none. That bytes could be
/// sent says nothing: this machine keeps them for a client that is gone.
#[derive(Debug)]
pub(super) struct Showing<C> {
    connection: C,
    life: Arc<Life>,
    is_full: bool,
    is_unflushed: bool,
}

impl<C> Showing<C> {
    pub(super) fn new(connection: C, life: Arc<Life>) -> Self {
        Self { connection, life, is_full: false, is_unflushed: false }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Showing<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.connection).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.life.sign();
        }
        read
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Showing<C> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.connection).poll_write(context, bytes);
        let was_full = std::mem::replace(&mut self.is_full, written.is_pending());
        if was_full && matches!(written, Poll::Ready(Ok(1..))) {
            self.life.sign();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.connection).poll_flush(context);
        let was_unflushed = std::mem::replace(&mut self.is_unflushed, flushed.is_pending());
        if was_unflushed && matches!(flushed, Poll::Ready(Ok(()))) {
            self.life.sign();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}
