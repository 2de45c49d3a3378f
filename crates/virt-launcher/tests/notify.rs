//! The stream of events to the node's agent, across restarts of the agent.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, Streaming};
use virt_launcher::notify::notify;
use virt_launcher::rpc::notify_server::{Notify, NotifyServer};
use virt_launcher::rpc::{Domain, Empty, Event};

struct Agent(mpsc::Sender<Event>);

#[tonic::async_trait]
impl Notify for Agent {
    async fn events(&self, request: Request<Streaming<Event>>) -> Result<Response<Empty>, Status> {
        let mut stream = request.into_inner();
        while let Some(event) = stream.next().await {
            let event = event?;
            if self.0.send(event).await.is_err() {
                break;
            }
        }
        Ok(Response::new(Empty {}))
    }
}

/// An agent that runs until the returned sender is dropped.
fn agent(socket: &Path) -> (mpsc::Receiver<Event>, oneshot::Sender<()>) {
    let _ = std::fs::remove_file(socket);
    let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
    let (send, events) = mpsc::channel(16);
    let (running, stop) = oneshot::channel::<()>();
    let server = tonic::transport::Server::builder().add_service(NotifyServer::new(Agent(send)));
    tokio::spawn(async move {
        let serving = server.serve_with_incoming(incoming);
        tokio::select! {
            biased;
            // Dropping the server cuts its connections, as a crash does.
            _ = stop => {}
            served = serving => served.unwrap(),
        }
    });
    (events, running)
}

fn domain(sequence: u64) -> Option<Domain> {
    Some(Domain { sequence, ..Default::default() })
}

async fn next(events: &mut mpsc::Receiver<Event>) -> u64 {
    let event = events.recv().await.unwrap();
    assert_eq!(event.instance_uid, "uid");
    event.domain.unwrap().sequence
}

#[tokio::test]
async fn an_agent_that_comes_back_gets_the_current_state_first() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let (states, watched) = watch::channel(domain(1));
    tokio::spawn(notify(socket.clone(), "uid".into(), watched));

    // The agent comes late, and misses nothing that still matters.
    states.send_replace(domain(2));
    let (mut events, running) = agent(&socket);
    assert_eq!(next(&mut events).await, 2);
    states.send_replace(domain(3));
    assert_eq!(next(&mut events).await, 3);

    // It is gone while two things happen; the last one is told when it is back.
    drop((events, running));
    states.send_replace(domain(4));
    states.send_replace(domain(5));
    let (mut events, _running) = agent(&socket);
    assert_eq!(next(&mut events).await, 5);
    states.send_replace(domain(6));
    assert_eq!(next(&mut events).await, 6);
}
