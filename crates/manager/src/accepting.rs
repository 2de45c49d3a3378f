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

/// A peer that is gone without a word is not waited for longer than this, whether something is to be sent to it or not.
///
/// # Errors
/// When the kernel refuses it.
pub fn mind_silence(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let milliseconds = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, milliseconds)?;
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
