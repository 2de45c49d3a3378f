//! Who looks at a guest's screen: one at a time, as in KubeVirt. A new one takes over, unless it asks not to.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use virt_api::subresources::GuestError;

/// Those who look, by the guest. One whose receiver is gone looks no more.
#[derive(Clone, Debug, Default)]
pub(super) struct Screens(Arc<Mutex<BTreeMap<String, oneshot::Sender<()>>>>);

/// The right to look, for as long as nobody takes over.
#[derive(Debug)]
struct Seat(oneshot::Receiver<()>);

impl Screens {
    /// Opens the screen of a guest, and takes it. Whoever has it keeps it when it cannot be opened once more.
    ///
    /// # Errors
    /// When it cannot be opened, or somebody else has it and is to be left in peace.
    pub(super) async fn open<S>(
        &self,
        uid: &str,
        preserve: bool,
        opening: impl Future<Output = Result<S, GuestError>>,
    ) -> Result<Watched<S>, GuestError> {
        let stream = opening.await?;
        Ok(self.take(uid, preserve)?.over(stream))
    }

    /// Takes the screen of a guest.
    ///
    /// # Errors
    /// When somebody else has it and is to be left in peace.
    fn take(&self, uid: &str, preserve: bool) -> Result<Seat, GuestError> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, looking| !looking.is_closed());
        if preserve && all.contains_key(uid) {
            // KubeVirt's words.
            return Err(GuestError::Refused("Active VNC connection. Request denied.".to_owned()));
        }
        let (taken, seat) = oneshot::channel();
        // Whoever had it learns that by the other end.
        drop(all.insert(uid.to_owned(), taken));
        Ok(Seat(seat))
    }
}

impl Seat {
    fn over<S>(self, stream: S) -> Watched<S> {
        Watched { seat: self.0, stream }
    }
}

/// A connection to a screen, which ends when another takes over.
pub(super) struct Watched<S> {
    seat: oneshot::Receiver<()>,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.seat.poll_unpin(context).is_ready() {
            return Poll::Ready(Err(io::Error::other("another VNC connection took over")));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
