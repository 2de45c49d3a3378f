//! The guest's serial port over gRPC.

use launcher_api::rpc::{ConsoleInput, ConsoleOutput};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Service, Slot};
use crate::console::{Cut, Viewer};

type Output = Result<ConsoleOutput, Status>;

impl Service {
    /// Opens the port for a caller. Its first message says how it looks; who sends none for now looks from now on.
    pub(super) async fn look(&self, mut typed: Streaming<ConsoleInput>) -> Result<ReceiverStream<Output>, Status> {
        let console = match &*self.inner.slot.lock().await {
            Slot::Taken { console: Some(console), .. } => console.clone(),
            Slot::Taken { console: None, .. } => return Err(Status::not_found("the guest has no serial port")),
            Slot::Empty | Slot::Failed { .. } => return Err(Status::failed_precondition("there is no guest")),
        };
        let first = typed.message().await?.ok_or_else(|| Status::invalid_argument("nobody says how to look"))?;
        let viewer = console.look(first.replay);
        let keyboard = viewer.keyboard();
        tokio::spawn(async move {
            let mut next = first.data;
            loop {
                if !next.is_empty() && !keyboard.type_in(next).await {
                    return;
                }
                match typed.message().await {
                    Ok(Some(message)) => next = message.data,
                    Ok(None) | Err(_) => return,
                }
            }
        });
        let (messages, stream) = mpsc::channel(1);
        let mut deleted = self.inner.deleted.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = show(viewer, &messages) => {}
                () = messages.closed() => {}
                // A stream that stayed open would hold the launcher up.
                _ = deleted.wait_for(|deleted| *deleted) => {}
            }
        });
        Ok(ReceiverStream::new(stream))
    }
}

async fn show(mut viewer: Viewer, messages: &mpsc::Sender<Output>) {
    loop {
        let message = match viewer.next().await {
            Ok(Some(data)) => Ok(ConsoleOutput { data }),
            Ok(None) => return,
            Err(cut @ Cut::TakenOver) => Err(Status::aborted(cut.to_string())),
            Err(cut @ Cut::TooSlow) => Err(Status::resource_exhausted(cut.to_string())),
        };
        let is_last = message.is_err();
        if messages.send(message).await.is_err() || is_last {
            return;
        }
    }
}
