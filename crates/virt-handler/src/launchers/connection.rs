//! One launcher's connection over its socket, kept until the launcher is gone.

use std::sync::Arc;
use std::time::Duration;

use launcher_api::client::{self, Client};
use launcher_api::rpc::{Empty, State};
use manager::errors::chain;
use tokio::time::{interval_at, sleep, timeout};

use super::{ConnectError, Entry, Reach, Session, connect};
use crate::host::speaking::Grpc;
use crate::host::{Machine, Reached};
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
    #[error("talk to the launcher")]
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
pub(crate) async fn keep(machine: Arc<Machine>, entry: Arc<Entry>, mut patience: Duration) {
    loop {
        let error = session(&machine, &entry, patience).await;
        *entry.session() = None;
        machine.lost(&entry.id.pod);
        tracing::debug!(
            name = entry.id.key.name,
            uid = entry.id.uid,
            error = chain(&error),
            "the connection to the launcher is over"
        );
        if !error.is_passing() {
            entry.reach(Reach::Gone { why: chain(&error) });
            entry.tell();
            return;
        }
        entry.reach(Reach::Connecting);
        if matches!(error, SessionError::Broken) {
            // It was there: a socket that is not there now will not come back.
            patience = Duration::ZERO;
            sleep(BREATH).await;
        } else {
            tracing::warn!(
                name = entry.id.key.name,
                uid = entry.id.uid,
                error = chain(&error),
                "cannot reach the launcher; retrying"
            );
            sleep(PING).await;
        }
    }
}

async fn session(machine: &Machine, entry: &Entry, patience: Duration) -> SessionError {
    let stream = match connect(&machine.pods(), &entry.id.pod, patience).await {
        Ok(stream) => stream,
        Err(error) => return SessionError::Connect(error),
    };
    let peer = match Peer::of(&stream, &entry.id.pod) {
        Ok(peer) => peer,
        Err(error) => return SessionError::Isolation(error),
    };
    let mut client = match client::over(stream).await {
        Ok(client) => client,
        Err(error) => return SessionError::Speak(error),
    };
    let greeting = match timeout(PING * MISSES, client::greet(&mut client)).await {
        Ok(Ok(greeting)) => greeting,
        Ok(Err(_)) => return SessionError::Broken,
        Err(_) => return SessionError::Silent,
    };
    machine.reached(Reached {
        instance: entry.id.uid.clone(),
        pod: entry.id.pod.clone(),
        peer,
        client: client.clone(),
        greeting: greeting.clone(),
    });
    *entry.session() = Some(Session { speaker: Arc::new(Grpc::new(client.clone())), greeting });
    tokio::select! {
        biased;
        error = listen(entry, client.clone()) => error,
        error = ping(client.clone()) => error,
        never = ask_guest(entry, client) => never,
    }
}

async fn listen(entry: &Entry, mut client: Client) -> SessionError {
    let Ok(Ok(answer)) = timeout(PING * MISSES, client.watch(Empty {})).await else { return SessionError::Silent };
    let mut domains = answer.into_inner();
    while let Ok(Some(domain)) = domains.message().await {
        let news = entry.take(domain);
        let came = entry.reach(Reach::Connected);
        if news || came {
            entry.tell();
        }
    }
    SessionError::Broken
}

async fn ping(mut client: Client) -> SessionError {
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
async fn ask_guest(entry: &Entry, mut client: Client) -> SessionError {
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
