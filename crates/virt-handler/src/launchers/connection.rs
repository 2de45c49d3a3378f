//! One launcher's connection, kept until the launcher is gone.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use manager::errors::chain;
use tokio::net::UnixStream;
use tokio::time::{interval_at, sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use virt_launcher::rpc::launcher_client::LauncherClient;
use virt_launcher::rpc::{Empty, State};

use super::{ConnectError, Entry, Reach, Session, connect};
use crate::isolation::{IsolationError, Peer};

/// Between two questions whether a launcher still answers, and how long it has to.
const PING: Duration = Duration::from_secs(10);
/// So many questions without an answer, and it is gone.
const MISSES: u32 = 2;
/// Between two questions to the guest's agent; it tells nothing by itself.
const ASK: Duration = Duration::from_secs(120);
/// An agent that has just come may not know its addresses yet.
const ASK_SOON: Duration = Duration::from_secs(10);
/// How long an agent may take.
const ANSWER: Duration = Duration::from_secs(15);
/// Between a broken connection and the next.
const BREATH: Duration = Duration::from_millis(200);

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("connect to the launcher")]
    Connect(#[source] ConnectError),
    #[error("find out who the launcher is")]
    Isolation(#[source] IsolationError),
    #[error("speak with the launcher")]
    Speak(#[source] tonic::transport::Error),
    #[error("the launcher does not answer")]
    Silent,
    #[error("the connection to the launcher broke")]
    Broken,
}

impl SessionError {
    /// Whether the launcher may be as well as before.
    fn is_passing(&self) -> bool {
        match self {
            Self::Connect(source) => source.is_passing(),
            Self::Isolation(source) => source.is_passing(),
            Self::Broken => true,
            Self::Speak(_) | Self::Silent => false,
        }
    }
}

/// Connects and listens; connects again when a connection breaks, as long as somebody listens there.
pub(super) async fn keep(entry: Arc<Entry>, mut patience: Duration) {
    loop {
        let error = session(&entry, patience).await;
        *entry.session() = None;
        tracing::debug!(
            name = entry.owner.key.name,
            uid = entry.owner.uid,
            error = chain(&error),
            "the connection to the launcher is over"
        );
        if !error.is_passing() {
            entry.view.send_modify(|view| view.reach = Reach::Gone { why: chain(&error) });
            entry.tell();
            return;
        }
        entry.view.send_modify(|view| view.reach = Reach::Connecting);
        if matches!(error, SessionError::Broken) {
            // It was there: a socket that is not there now will not come back.
            patience = Duration::ZERO;
            sleep(BREATH).await;
        } else {
            tracing::warn!(
                name = entry.owner.key.name,
                uid = entry.owner.uid,
                error = chain(&error),
                "the launcher cannot be reached for now"
            );
            sleep(PING).await;
        }
    }
}

async fn session(entry: &Entry, patience: Duration) -> SessionError {
    let stream = match connect(&entry.pods, &entry.owner.pod, patience).await {
        Ok(stream) => stream,
        Err(error) => return SessionError::Connect(error),
    };
    let peer = match Peer::of(&stream, &entry.owner.pod) {
        Ok(peer) => peer,
        Err(error) => return SessionError::Isolation(error),
    };
    let client = match speak(stream).await {
        Ok(channel) => LauncherClient::new(channel),
        Err(error) => return SessionError::Speak(error),
    };
    *entry.session() = Some(Session { client: client.clone(), peer });
    tokio::select! {
        biased;
        error = listen(entry, client.clone()) => error,
        error = ping(client.clone()) => error,
        never = ask_guest(entry, client) => never,
    }
}

/// A channel over this one connection: one that breaks is not replaced behind our back.
async fn speak(stream: UnixStream) -> Result<Channel, tonic::transport::Error> {
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotConnected));
        async move { stream }
    });
    Endpoint::from_static("http://launcher").connect_with_connector(connector).await
}

async fn listen(entry: &Entry, mut client: LauncherClient<Channel>) -> SessionError {
    let Ok(Ok(answer)) = timeout(PING * MISSES, client.watch(Empty {})).await else { return SessionError::Silent };
    let mut domains = answer.into_inner();
    while let Ok(Some(domain)) = domains.message().await {
        let news = entry.take(domain);
        let came = entry
            .view
            .send_if_modified(|view| std::mem::replace(&mut view.reach, Reach::Connected) != Reach::Connected);
        if news || came {
            entry.tell();
        }
    }
    SessionError::Broken
}

async fn ping(mut client: LauncherClient<Channel>) -> SessionError {
    let mut missed = 0;
    loop {
        sleep(PING).await;
        match timeout(PING, client.get_domain(Empty {})).await {
            Ok(Ok(_)) => missed = 0,
            Ok(Err(_)) | Err(_) => missed += 1,
        }
        if missed >= MISSES {
            return SessionError::Silent;
        }
    }
}

/// Asks the guest's agent for what changes in a guest, as long as there is one.
async fn ask_guest(entry: &Entry, mut client: LauncherClient<Channel>) -> SessionError {
    let mut views = entry.view.subscribe();
    loop {
        let has_agent = |view: &super::View| {
            view.domain.as_ref().is_some_and(|domain| domain.agent_connected && domain.state() == State::Running)
        };
        if views.wait_for(has_agent).await.is_err() {
            return SessionError::Broken;
        }
        let mut next = interval_at(tokio::time::Instant::now() + ASK_SOON, ASK);
        while has_agent(&views.borrow()) {
            if let Ok(Ok(answer)) = timeout(ANSWER, client.get_guest_info(Empty {})).await {
                let guest = Some(super::words::bounded(answer.into_inner()));
                let news = entry.view.send_if_modified(|view| {
                    let news = view.guest != guest;
                    view.guest.clone_from(&guest);
                    news
                });
                if news {
                    entry.tell();
                }
            }
            next.tick().await;
        }
        entry.view.send_modify(|view| view.guest = None);
    }
}
