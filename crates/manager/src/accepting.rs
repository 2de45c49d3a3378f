//! Accepts connections until a program ends, and notices peers that are gone.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

/// Connections that are busy when told to stop have this long to end.
pub const SLOWEST_END: Duration = Duration::from_secs(5);

/// Serves each connection in a task of its own, `most` at the same time; the next ones wait to be accepted. When `stop` resolves,
/// nobody is accepted any more, and those that are open are told so and have [`SLOWEST_END`] left.
pub async fn accept<F>(
    listener: TcpListener,
    most: usize,
    stop: impl Future<Output = ()>,
    serve: impl Fn(TcpStream, watch::Receiver<bool>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        // To stop comes first; then ended connections, so that their places are free.
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(ended) = connections.join_next() => tell(ended),
            accepted = listener.accept(), if connections.len() < most => match accepted {
                Ok((stream, _)) => {
                    // Waiting for more to send only adds latency.
                    drop(stream.set_nodelay(true));
                    connections.spawn(serve(stream, stopped.clone()));
                }
                Err(error) => {
                    // Out of file descriptors, most likely: those in use must end first.
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    drop(listener);
    stopping.send_replace(true);
    let ended = async {
        while let Some(ended) = connections.join_next().await {
            tell(ended);
        }
    };
    // Whoever is left after this long is cut with the set of connections.
    drop(timeout(SLOWEST_END, ended).await);
}

/// A peer that is gone without a word is not waited for longer than this, whether something is to be sent to it or not. Nor is one
/// that is there, and takes nothing for so long.
///
/// # Errors
/// When the kernel refuses it.
pub fn mind_silence(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    mind_absence(stream, silence)?;
    let milliseconds = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    Ok(sockopt::set_tcp_user_timeout(stream, milliseconds)?)
}

/// A peer that is gone without a word is noticed after this long. While bytes are on their way to it, that takes as long as the
/// kernel sends them again, a quarter of an hour: only so can a peer that is there take as long as it likes.
///
/// # Errors
/// When the kernel refuses it.
pub fn mind_absence(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, silence / 3)?;
    sockopt::set_tcp_keepintvl(stream, silence / 3)?;
    sockopt::set_tcp_keepcnt(stream, 2)?;
    Ok(())
}

/// A connection that panicked takes only itself down.
fn tell(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection failed");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// The shortest that the kernel can be told: it probes in whole seconds.
    const SILENCE: Duration = Duration::from_secs(3);

    /// Sends more than any socket holds to a peer that begins to read late.
    async fn sent_to_a_late_reader(mind: fn(&TcpStream, Duration) -> io::Result<()>) -> io::Result<usize> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        mind(&sender, SILENCE).unwrap();
        let (mut reader, _) = listener.accept().await.unwrap();
        let sending = tokio::spawn(async move { sender.write_all(&vec![7; 32 << 20]).await });
        sleep(SILENCE * 3).await;
        let mut all = Vec::new();
        let read = reader.read_to_end(&mut all).await;
        sending.await.unwrap()?;
        read
    }

    #[tokio::test]
    async fn a_peer_that_only_stalls_is_cut_where_silence_is_minded_and_nowhere_else() {
        let (strict, patient) = tokio::join!(sent_to_a_late_reader(mind_silence), sent_to_a_late_reader(mind_absence));
        assert_eq!(strict.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(patient.unwrap(), 32 << 20);
    }
}
