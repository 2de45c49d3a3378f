//! Tells the node's agent what becomes of the guest.
//!
//! # Guarantees
//! - The first message on every connection is the current state: an agent that was restarted misses nothing it needs.
//! - Every message carries the domain's sequence: what was seen before can be told.
//! - An agent that is gone, slow or not yet there never holds the guest up; states in between are skipped, the last one
//!   is not.

use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::rpc;
use crate::rpc::notify_client::NotifyClient;

/// How long to wait before the next try, at first and at most. An agent that restarts is back within seconds.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Sends every state to the agent behind `socket`, over as many connections as it takes. Ends when the guest's service
/// does.
pub async fn notify(socket: PathBuf, instance_uid: String, mut domain: watch::Receiver<Option<rpc::Domain>>) {
    let mut wait = FIRST_WAIT;
    loop {
        match session(&socket, &instance_uid, &mut domain).await {
            Ok(Over::GuestGone) => return,
            Ok(Over::AgentGone) => wait = FIRST_WAIT,
            Err(error) => {
                tracing::debug!(%error, "the node's agent cannot be told yet");
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
        tokio::time::sleep(wait).await;
    }
}

/// Why a session ended.
enum Over {
    GuestGone,
    AgentGone,
}

async fn session(
    socket: &std::path::Path,
    instance_uid: &str,
    domain: &mut watch::Receiver<Option<rpc::Domain>>,
) -> Result<Over, tonic::Status> {
    let channel = connect(socket).await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    // One message under way: while the agent is slow, newer states replace older ones in the watch.
    let (messages, stream) = mpsc::channel(1);
    let mut client = NotifyClient::new(channel);
    let call = client.events(ReceiverStream::new(stream));
    let feed = async {
        loop {
            let now = domain.borrow_and_update().clone();
            if let Some(now) = now {
                let event = rpc::Event { instance_uid: instance_uid.to_owned(), domain: Some(now) };
                if messages.send(event).await.is_err() {
                    return Over::AgentGone;
                }
            }
            if domain.changed().await.is_err() {
                return Over::GuestGone;
            }
        }
    };
    tokio::select! {
        biased;
        // An answer to the call means that the agent has hung up, well or badly.
        answered = call => answered.map(|_| Over::AgentGone),
        over = feed => Ok(over),
    }
}

async fn connect(socket: &std::path::Path) -> Result<Channel, tonic::transport::Error> {
    let socket = socket.to_owned();
    // The address is not used: every connection goes to the socket.
    Endpoint::from_static("http://launcher")
        .connect_with_connector(tower::service_fn(move |_| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
        .await
}
