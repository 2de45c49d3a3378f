//! A UDP port of this machine as one of a guest: each sender here has a stream of its own, whose messages are datagrams.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use kube::Client;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::Message;

use super::unwrapped;
use crate::subresource::{self, End, Of, Socket, ended};
use crate::terminal::note;

/// The longest datagram.
const LONGEST: usize = 65_507;
/// Datagrams of one sender that wait for the server; those beyond are lost, as datagrams are.
const WAITING: usize = 64;
/// Senders at a time.
const MOST: usize = 1024;
/// A sender from whom and to whom nothing came for so long has gone.
const SILENCE: Duration = Duration::from_secs(120);

/// Serves one port until the program ends.
pub(super) async fn serve(here: UdpSocket, client: Client, name: String, port: u16) {
    let here = Arc::new(here);
    let mut senders: BTreeMap<SocketAddr, Sender<Bytes>> = BTreeMap::new();
    let mut buffer = vec![0; LONGEST];
    loop {
        let (length, from) = match here.recv_from(&mut buffer).await {
            Ok(received) => received,
            // What somebody did not take is told here, and concerns nobody else.
            Err(error) => {
                tracing::debug!(%error, port, "a datagram was not delivered");
                continue;
            }
        };
        let datagram = Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default());
        if senders.get(&from).is_none_or(Sender::is_closed) {
            senders.retain(|_, sender| !sender.is_closed());
            if senders.len() >= MOST {
                note(&format!("too many senders at a time for port {port}; a datagram from {from} is lost"));
                continue;
            }
            let (sender, waiting) = mpsc::channel(WAITING);
            senders.insert(from, sender);
            let (here, client, name) = (here.clone(), client.clone(), name.clone());
            tokio::spawn(async move {
                if let Err(error) = carry(&here, from, waiting, &client, (&name, port)).await {
                    note(&format!("datagrams from {from} to port {port} of {name}: {error:#}"));
                }
            });
        }
        // One that finds no room is lost.
        let _ = senders.get(&from).map(|sender| sender.try_send(datagram));
    }
}

/// Carries the datagrams of one sender, until there are none for a while.
async fn carry(
    here: &UdpSocket,
    peer: SocketAddr,
    mut waiting: Receiver<Bytes>,
    client: &Client,
    (name, port): (&str, u16),
) -> anyhow::Result<()> {
    let opened = subresource::socket(client, (Of::Instance, name), &format!("portforward/{port}/udp")).await;
    let mut guest: Socket = unwrapped(opened)?;
    // Pings say nothing about the sender.
    let mut last = Instant::now();
    loop {
        let next = async {
            tokio::select! {
                biased;
                datagram = waiting.recv() => (datagram, None),
                message = guest.next() => (None, Some(message)),
            }
        };
        match timeout_at(last + SILENCE, next).await {
            Ok((Some(datagram), _)) => {
                last = Instant::now();
                guest.send(Message::Binary(datagram)).await?;
            }
            Ok((None, Some(Some(Ok(Message::Binary(answer)))))) => {
                last = Instant::now();
                // Whoever asked may have gone.
                let _ = here.send_to(&answer, peer).await;
            }
            Ok((None, Some(Some(Ok(message))))) => match ended(&message) {
                Some(End::Told(reason)) => anyhow::bail!(reason),
                Some(End::Guest | End::Lost) => return Ok(()),
                None => {}
            },
            Ok((None, Some(Some(Err(_)) | None) | None)) => return Ok(()),
            Err(_) => {
                let _ = guest.close(None).await;
                return Ok(());
            }
        }
    }
}
