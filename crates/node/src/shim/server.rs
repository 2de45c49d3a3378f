//! The shim's socket: requests in, replies and every change of state out.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use super::pod::{Pod, PodError};
use super::{ShimError, chain};
use crate::runtime::protocol::{self, Answer, Call, Message, Request};
use crate::runtime::record::Folder;

/// Replies on their way to one agent.
const REPLIES: usize = 64;

/// A socket that agents connect to.
pub(super) struct Server {
    listener: UnixListener,
}

/// A reply, and who is told when it was sent.
type Outgoing = (Message, Option<oneshot::Sender<()>>);

impl Server {
    pub(super) fn bind(folder: &Folder) -> io::Result<Self> {
        let socket = folder.socket()?;
        match std::fs::remove_file(socket.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(socket.path())?;
        std::fs::set_permissions(socket.path(), Permissions::from_mode(0o600))?;
        Ok(Self { listener })
    }

    /// Serves until the pod is over.
    pub(super) async fn run(self, pod: Pod) -> Result<(), ShimError> {
        let listen = |kind| signal(kind).map_err(|source| ShimError::Setup("listen for signals", source));
        let mut ended = listen(SignalKind::child())?;
        let mut told_to_end = listen(SignalKind::terminate())?;
        loop {
            tokio::select! {
                biased;
                () = pod.over() => return Ok(()),
                _ = told_to_end.recv() => {
                    // Containers must not outlive their shim. Their ends are on record for the agent.
                    if let Err(error) = pod.end().await {
                        tracing::warn!(error = chain(&error), "some containers may still be running");
                    }
                    return Ok(());
                }
                _ = ended.recv() => pod.children().bury_orphans(),
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => drop(tokio::spawn(connection(stream, pod.clone()))),
                    // Such as too many open files: some are closed soon.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
            }
        }
    }
}

async fn connection(stream: UnixStream, pod: Pod) {
    let (reader, writer) = stream.into_split();
    let (replies, outgoing) = mpsc::channel(REPLIES);
    let sending = tokio::spawn(send(writer, outgoing, pod.clone()));
    receive(reader, &replies, &pod).await;
    // The agent is gone. What it asked for goes on; nobody hears the replies.
    sending.abort();
}

/// Requests are worked on side by side: a command in a container may take long.
async fn receive(mut reader: OwnedReadHalf, replies: &mpsc::Sender<Outgoing>, pod: &Pod) {
    while let Ok(Some(Call { id, request })) = protocol::read(&mut reader).await {
        let (pod, replies) = (pod.clone(), replies.clone());
        tokio::spawn(async move {
            let is_end = matches!(request, Request::End);
            let answer = handle(&pod, request).await.map_err(|error| chain(&error));
            let is_over = is_end && answer.is_ok();
            let (sent, was_sent) = oneshot::channel();
            if replies.send((Message::Reply { id, answer }, Some(sent))).await.is_ok() {
                let _ = was_sent.await;
            }
            if is_over {
                pod.finish();
            }
        });
    }
}

/// States before replies: who gets a reply has seen what came of its request.
async fn send(mut writer: OwnedWriteHalf, mut outgoing: mpsc::Receiver<Outgoing>, pod: Pod) {
    let mut states = pod.states();
    states.mark_changed();
    loop {
        let (message, sent) = tokio::select! {
            biased;
            changed = states.changed() => match changed {
                Ok(()) => (Message::State(states.borrow_and_update().clone()), None),
                Err(_) => return,
            },
            next = outgoing.recv() => match next {
                Some(next) => next,
                None => return,
            },
        };
        if protocol::write(&mut writer, &message).await.is_err() {
            return;
        }
        if let Some(sent) = sent {
            // Whoever waited may have gone.
            let _ = sent.send(());
        }
    }
}

async fn handle(pod: &Pod, request: Request) -> Result<Answer, PodError> {
    match request {
        Request::Start(container) => pod.start(*container).await.map(|()| Answer::Done),
        Request::Signal { container, signal } => {
            // One that is not there any more has no need of it.
            let sent = pod.running(&container).map_or(Ok(()), |(born, _)| born.signal(signal));
            sent.map(|()| Answer::Done).map_err(|source| PodError::Io("send the signal", source))
        }
        Request::Exec { container, command, timeout_ms } => {
            let timeout = Duration::from_millis(timeout_ms);
            pod.exec(&container, &command, timeout).await.map(Answer::Executed)
        }
        Request::End => pod.end().await.map(|()| Answer::Done),
    }
}
