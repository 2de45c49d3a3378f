//! Connections into a guest's network. When the guest goes, nobody is left there to say so: they would stay open for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection that ends with the launcher of its guest, after all that has arrived until then.
pub(super) struct Attached<S> {
    gone: BoxFuture<'static, ()>,
    stream: S,
}

impl<S> Attached<S> {
    /// Ends it when `gone` resolves.
    pub(super) fn new(stream: S, gone: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { gone: Box::pin(gone), stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Attached<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, to) {
            return Poll::Ready(read);
        }
        self.gone.as_mut().poll(context).map(|()| Err(io::Error::other("the guest has ended or moved")))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Attached<S> {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_has_arrived_is_read_before_the_end_is_told() {
        let (mut far, near) = tokio::io::duplex(64);
        let (end, ended) = oneshot::channel::<()>();
        let mut attached = Attached::new(near, async move { drop(ended.await) });
        far.write_all(b"last words").await.unwrap();
        end.send(()).unwrap();
        let mut heard = [0; 10];
        attached.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"last words");
        let error = attached.read_u8().await.unwrap_err();
        assert_eq!(error.to_string(), "the guest has ended or moved");
    }

    #[tokio::test]
    async fn a_guest_that_hangs_up_is_told_as_that() {
        let (far, near) = tokio::io::duplex(64);
        let mut attached = Attached::new(near, std::future::pending());
        drop(far);
        assert_eq!(attached.read(&mut [0; 8]).await.unwrap(), 0);
    }
}
