//! The way of a node's agent to the API server, which can be cut: a partition of the network, on one machine.
//!
//! # Guarantees
//! - While it is cut, nothing passes in either direction, and nobody learns of it: as with a cable that was pulled out.
//! - What was under way when it was cut goes on when it is mended, if both ends still wait for it.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What is read at once.
const PIECE: usize = 64 << 10;

/// Forwards connections for ever, except while it is cut.
pub(super) async fn run(listener: TcpListener, server: SocketAddr, mut cut: watch::Receiver<bool>) {
    loop {
        mended(&mut cut).await;
        match listener.accept().await {
            Ok((agent, _)) => drop(tokio::spawn(connection(agent, server, cut.clone()))),
            // Out of file descriptors, perhaps; the next one may find some.
            Err(error) => {
                tracing::warn!(%error, "a node's connection to the API server was not accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(mut agent: TcpStream, server: SocketAddr, mut cut: watch::Receiver<bool>) {
    mended(&mut cut).await;
    // An agent whose connection ends at once tries again by itself.
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let (from_agent, to_agent) = agent.split();
    let (from_server, to_server) = server.split();
    tokio::join!(pump(from_agent, to_server, cut.clone()), pump(from_server, to_agent, cut));
}

/// Passes on what comes, until it ends.
async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut cut: watch::Receiver<bool>) {
    let mut piece = vec![0; PIECE];
    loop {
        let read = tokio::select! {
            biased;
            () = severed(&mut cut) => {
                mended(&mut cut).await;
                continue;
            }
            read = from.read(&mut piece) => read,
        };
        // It may have been cut since.
        mended(&mut cut).await;
        match read {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                if to.write_all(piece.get(..count).unwrap_or_default()).await.is_err() {
                    break;
                }
            }
        }
    }
    // The other direction may go on.
    let _ = to.shutdown().await;
}

async fn mended(cut: &mut watch::Receiver<bool>) {
    // Nobody is left who could mend it.
    if cut.wait_for(|cut| !cut).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn severed(cut: &mut watch::Receiver<bool>) {
    if cut.wait_for(|cut| *cut).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay before an echo; where it listens, and what cuts it.
    async fn echoing() -> (SocketAddr, watch::Sender<bool>) {
        let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = echo.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = watch::Sender::new(false);
        tokio::spawn(run(listener, server, cut.subscribe()));
        (address, cut)
    }

    async fn answer(stream: &mut TcpStream) -> u8 {
        stream.read_u8().await.unwrap()
    }

    #[tokio::test]
    async fn while_it_is_cut_nothing_passes_and_then_all_does() {
        let (address, cut) = echoing().await;
        let mut old = TcpStream::connect(address).await.unwrap();
        old.write_u8(1).await.unwrap();
        assert_eq!(answer(&mut old).await, 1);
        cut.send_replace(true);
        old.write_u8(2).await.unwrap();
        let mut new = TcpStream::connect(address).await.unwrap();
        new.write_u8(3).await.unwrap();
        let mut byte = [0];
        for stream in [&mut old, &mut new] {
            // It is there to be read, if it comes at all: the echo needs no time but the kernel's.
            let silent = tokio::time::timeout(std::time::Duration::from_millis(300), stream.peek(&mut byte)).await;
            assert!(silent.is_err(), "{silent:?}");
        }
        cut.send_replace(false);
        assert_eq!((answer(&mut old).await, answer(&mut new).await), (2, 3));
    }

    #[tokio::test]
    async fn an_end_is_passed_on_after_all_that_came_before() {
        let (address, _cut) = echoing().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
        let (mut from, mut to) = stream.split();
        let write = async {
            to.write_all(&sent).await.unwrap();
            to.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let read = from.read_to_end(&mut received);
        let ((), read) = tokio::join!(write, read);
        assert!(read.unwrap() == sent.len() && received == sent);
    }
}
