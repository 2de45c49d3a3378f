//! The launcher's gRPC server: translates calls, decides nothing.

mod bringing;
mod looking;
mod migrating;
mod terminating;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use hypervisor::guest;
use hypervisor::wiring::Attachment;
use launcher_api::rpc::launcher_server::{Launcher, LauncherServer};
use launcher_api::rpc::{self, Empty};
use launcher_api::{Greeting, Outcome};
use tokio::net::UnixListener;
use tokio::sync::{Mutex, mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status};

use crate::boot::{Started, Workbench};
use crate::console::Console;
use crate::domain::{Domain, State};
use crate::driver::RequestError;
use crate::errors::chain;
use crate::guest::{GuestError, Questions};
use crate::lifecycle::Request as Wish;
use bringing::Wanted;
use wire::to_wire;

/// Makes the last preparations: tells how each interface is attached, which only the caller knows, and settles what the
/// instance leaves open. What it cannot do is the outcome of the `Sync`.
pub type Attach = dyn Fn(&mut VirtualMachineInstance) -> Result<BTreeMap<String, Attachment>, Outcome> + Send + Sync;

/// One VM's service.
#[derive(Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

struct Inner {
    workbench: Workbench,
    /// The only instance that this launcher runs, if it was told.
    uid: Option<String>,
    attach: Box<Attach>,
    /// Held while the guest is started, so that two calls cannot start two.
    slot: Mutex<Slot>,
    /// The domain as the node's agent sees it; absent before the first start.
    domain: watch::Sender<Option<rpc::Domain>>,
    /// What the caller of the last `Sync` that was done calls it.
    mark: AtomicU64,
    /// Set when the launcher may end.
    deleted: watch::Sender<bool>,
}

enum Slot {
    Empty,
    Taken {
        uid: String,
        guest: Box<Started>,
        questions: Questions,
        /// Its serial port, if it has one.
        console: Option<Console>,
    },
    /// QEMU did not start; this VM has ended before it began.
    Failed {
        uid: String,
        domain: rpc::Domain,
    },
}

impl Service {
    /// A service without a guest yet; for the instance with this UID alone, if there is one.
    #[must_use]
    pub fn new(workbench: Workbench, uid: Option<String>, attach: Box<Attach>) -> Self {
        let inner = Inner {
            workbench,
            uid,
            attach,
            slot: Mutex::new(Slot::Empty),
            domain: watch::Sender::new(None),
            mark: AtomicU64::new(0),
            deleted: watch::Sender::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The domain, now and after every change.
    #[must_use]
    pub fn domain(&self) -> watch::Receiver<Option<rpc::Domain>> {
        self.inner.domain.subscribe()
    }

    /// Serves until the VM has ended and was deleted.
    ///
    /// # Errors
    /// When the connection cannot be served.
    pub async fn serve(self, listener: UnixListener) -> Result<(), tonic::transport::Error> {
        let mut deleted = self.inner.deleted.subscribe();
        let ended = async move {
            // The sender is in `self` and outlives this.
            let _ = deleted.wait_for(|deleted| *deleted).await;
        };
        tonic::transport::Server::builder()
            .add_service(LauncherServer::new(self))
            .serve_with_incoming_shutdown(UnixListenerStream::new(listener), ended)
            .await
    }

    /// Whether somebody follows the domain, and so will fetch how it ended.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        // One is the server's own.
        self.inner.deleted.receiver_count() > 1
    }

    /// Ends the guest now, if there is one.
    pub async fn kill_now(&self) {
        // It may have ended by itself meanwhile.
        let _ = self.wish(Wish::Kill).await;
    }

    async fn wish(&self, wish: Wish) -> Result<Response<rpc::Domain>, Status> {
        let handle = match &*self.inner.slot.lock().await {
            Slot::Taken { guest, .. } => guest.handle.clone(),
            Slot::Failed { domain, .. } => return Ok(Response::new(domain.clone())),
            Slot::Empty => return Err(Status::failed_precondition("the guest does not exist yet")),
        };
        handle.request(wish).await.map_err(|error| request_status(&error))?;
        Ok(Response::new(to_wire(&handle.domain().borrow())))
    }

    async fn questions(&self) -> Result<Questions, Status> {
        match &*self.inner.slot.lock().await {
            Slot::Taken { questions, .. } => Ok(questions.clone()),
            Slot::Empty | Slot::Failed { .. } => Err(Status::failed_precondition("the guest does not exist")),
        }
    }

    /// Whoever asks from now on is told this mark.
    fn done(&self, mark: u64) {
        self.inner.mark.store(mark, Ordering::Relaxed);
        self.inner.domain.send_if_modified(|domain| match domain {
            Some(domain) if domain.mark != mark => {
                domain.mark = mark;
                true
            }
            _ => false,
        });
    }

    fn now(&self) -> rpc::Domain {
        self.inner.domain.borrow().clone().unwrap_or_else(absent)
    }
}

/// Passes every change on.
async fn follow(mut domain: watch::Receiver<Domain>, inner: Arc<Inner>) {
    loop {
        let now = to_wire(&domain.borrow_and_update());
        inner.domain.send_replace(Some(rpc::Domain { mark: inner.mark.load(Ordering::Relaxed), ..now }));
        if domain.changed().await.is_err() {
            return;
        }
    }
}

/// Tells one reader every state until it hangs up or the launcher ends: a stream that stayed open would hold it up.
async fn tell(
    mut domain: watch::Receiver<Option<rpc::Domain>>,
    mut deleted: watch::Receiver<bool>,
    reader: mpsc::Sender<Result<rpc::Domain, Status>>,
) {
    loop {
        let now = domain.borrow_and_update().clone().unwrap_or_else(absent);
        if reader.send(Ok(now)).await.is_err() {
            return;
        }
        tokio::select! {
            biased;
            // A last change is told even if the end came with it.
            changed = domain.changed() => if changed.is_err() { return },
            _ = deleted.wait_for(|deleted| *deleted) => return,
            () = reader.closed() => return,
        }
    }
}

#[tonic::async_trait]
impl Launcher for Service {
    async fn hello(&self, request: Request<rpc::HelloRequest>) -> Result<Response<rpc::Greeting>, Status> {
        tracing::debug!(release = request.into_inner().release, "greeted");
        Ok(Response::new(Greeting::of_this_release(guest::OLDEST..=guest::VERSION).into()))
    }

    async fn sync(&self, request: Request<rpc::SyncRequest>) -> Result<Response<rpc::Domain>, Status> {
        let request = request.into_inner();
        let mark = request.mark;
        let (domain, outcome) = match Wanted::read(request) {
            Err(outcome) => (self.now(), outcome),
            Ok(wanted) if self.inner.uid.as_ref().is_some_and(|own| *own != wanted.uid) => {
                (self.now(), Outcome::never("metadata.uid", "this launcher belongs to another instance"))
            }
            Ok(wanted) => {
                // A start goes on when its caller does not: whoever calls next must find a guest or none, not half of one.
                let service = self.clone();
                let done = tokio::spawn(async move { service.bring_about(wanted).await }).await;
                done.map_err(|error| Status::internal(error.to_string()))?
            }
        };
        if !matches!(outcome, Outcome::Retry { .. }) {
            self.done(mark);
        }
        let mark = self.inner.mark.load(Ordering::Relaxed);
        Ok(Response::new(rpc::Domain { outcome: Some(outcome.into()), mark, ..domain }))
    }

    async fn get_guest(&self, _: Request<Empty>) -> Result<Response<rpc::GuestModel>, Status> {
        let guest = match &*self.inner.slot.lock().await {
            Slot::Taken { guest, .. } => guest.handle.guest.borrow().clone(),
            Slot::Empty | Slot::Failed { .. } => return Err(Status::not_found("the guest does not exist")),
        };
        let text = guest.to_stored().map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(rpc::GuestModel { version: guest.version, guest: text.into_bytes() }))
    }

    async fn pause(&self, _: Request<Empty>) -> Result<Response<rpc::Domain>, Status> {
        self.wish(Wish::Pause).await
    }

    async fn unpause(&self, _: Request<Empty>) -> Result<Response<rpc::Domain>, Status> {
        self.wish(Wish::Unpause).await
    }

    async fn reset(&self, _: Request<Empty>) -> Result<Response<rpc::Domain>, Status> {
        self.wish(Wish::Reset).await
    }

    async fn soft_reboot(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.questions().await?.soft_reboot().await.map_err(|error| guest_status(&error))?;
        Ok(Response::new(Empty {}))
    }

    async fn shutdown(&self, request: Request<rpc::ShutdownRequest>) -> Result<Response<rpc::Domain>, Status> {
        let given = request.into_inner().grace_ms.map(Duration::from_millis);
        let usual = match &*self.inner.slot.lock().await {
            Slot::Taken { guest, .. } => guest.grace,
            Slot::Empty | Slot::Failed { .. } => Duration::ZERO,
        };
        self.wish(Wish::Shutdown { grace: given.unwrap_or(usual) }).await
    }

    async fn kill(&self, _: Request<Empty>) -> Result<Response<rpc::Domain>, Status> {
        self.wish(Wish::Kill).await
    }

    async fn delete(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        let running = match &*self.inner.slot.lock().await {
            Slot::Taken { guest, .. } => !matches!(guest.handle.domain().borrow().state, State::Ended(_)),
            Slot::Empty | Slot::Failed { .. } => false,
        };
        if running {
            return Err(Status::failed_precondition("the guest is still running; shut it down or kill it first"));
        }
        self.inner.deleted.send_replace(true);
        Ok(Response::new(Empty {}))
    }

    async fn freeze(&self, request: Request<rpc::FreezeRequest>) -> Result<Response<Empty>, Status> {
        let limit = request.into_inner().unfreeze_ms.map(Duration::from_millis);
        self.questions().await?.freeze(limit).await.map_err(|error| guest_status(&error))?;
        Ok(Response::new(Empty {}))
    }

    async fn unfreeze(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.questions().await?.unfreeze().await.map_err(|error| guest_status(&error))?;
        Ok(Response::new(Empty {}))
    }

    async fn get_domain(&self, _: Request<Empty>) -> Result<Response<rpc::Domain>, Status> {
        Ok(Response::new(self.now()))
    }

    type WatchStream = ReceiverStream<Result<rpc::Domain, Status>>;

    async fn watch(&self, _: Request<Empty>) -> Result<Response<Self::WatchStream>, Status> {
        // One message under way: while the reader is slow, newer states replace older ones.
        let (messages, stream) = mpsc::channel(1);
        tokio::spawn(tell(self.inner.domain.subscribe(), self.inner.deleted.subscribe(), messages));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn get_stats(&self, _: Request<Empty>) -> Result<Response<rpc::Stats>, Status> {
        self.questions().await?.stats().await.map(Response::new).map_err(|error| guest_status(&error))
    }

    async fn get_guest_info(&self, _: Request<Empty>) -> Result<Response<rpc::GuestInfo>, Status> {
        self.questions().await?.info().await.map(Response::new).map_err(|error| guest_status(&error))
    }

    async fn get_users(&self, _: Request<Empty>) -> Result<Response<rpc::Users>, Status> {
        self.questions().await?.users().await.map(Response::new).map_err(|error| guest_status(&error))
    }

    async fn get_filesystems(&self, _: Request<Empty>) -> Result<Response<rpc::Filesystems>, Status> {
        self.questions().await?.filesystems().await.map(Response::new).map_err(|error| guest_status(&error))
    }

    async fn exec(&self, request: Request<rpc::ExecRequest>) -> Result<Response<rpc::ExecResponse>, Status> {
        let questions = self.questions().await?;
        questions.exec(request.into_inner()).await.map(Response::new).map_err(|error| guest_status(&error))
    }

    async fn guest_ping(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.questions().await?.ping().await.map_err(|error| guest_status(&error))?;
        Ok(Response::new(Empty {}))
    }

    async fn get_local_disks(&self, _: Request<Empty>) -> Result<Response<rpc::LocalDisks>, Status> {
        self.local_disks().await.map(Response::new)
    }

    async fn migrate(&self, request: Request<rpc::MigrateRequest>) -> Result<Response<rpc::Domain>, Status> {
        Ok(self.leave(request.into_inner()).await)
    }

    async fn cancel_migration(&self, request: Request<rpc::MigrationName>) -> Result<Response<rpc::Domain>, Status> {
        self.wish(Wish::Cancel { to: request.into_inner().uid }).await
    }

    async fn give(&self, request: Request<rpc::MigrationName>) -> Result<Response<rpc::Domain>, Status> {
        Ok(self.step(Wish::Give { to: request.into_inner().uid }).await)
    }

    async fn returned(&self, request: Request<rpc::MigrationName>) -> Result<Response<rpc::Domain>, Status> {
        Ok(self.step(Wish::Returned { by: request.into_inner().uid }).await)
    }

    async fn take(&self, request: Request<rpc::TakeRequest>) -> Result<Response<rpc::Domain>, Status> {
        let request = request.into_inner();
        let paused = wire::paused(request.paused());
        Ok(self.step(Wish::Take { from: request.uid, paused }).await)
    }

    async fn renounce(&self, _: Request<Empty>) -> Result<Response<rpc::Domain>, Status> {
        Ok(self.step(Wish::Renounce).await)
    }

    type ConsoleStream = ReceiverStream<Result<rpc::ConsoleOutput, Status>>;

    async fn console(
        &self,
        request: Request<tonic::Streaming<rpc::ConsoleInput>>,
    ) -> Result<Response<Self::ConsoleStream>, Status> {
        self.look(request.into_inner()).await.map(Response::new)
    }

    async fn screenshot(
        &self,
        request: Request<rpc::ScreenshotRequest>,
    ) -> Result<Response<rpc::ScreenshotResponse>, Status> {
        let (folder, move_cursor) = (self.inner.workbench.folder.clone(), request.into_inner().move_cursor);
        let png = self.questions().await?.screenshot(&folder, move_cursor).await;
        let png = png.map_err(|error| guest_status(&error))?;
        Ok(Response::new(rpc::ScreenshotResponse { png }))
    }
}

fn absent() -> rpc::Domain {
    rpc::Domain { state: rpc::State::Absent.into(), ..rpc::Domain::default() }
}

fn request_status(error: &RequestError) -> Status {
    match error {
        RequestError::Denied(_) | RequestError::Gone => Status::failed_precondition(error.to_string()),
        RequestError::Qemu(_) | RequestError::Grant(_) => Status::internal(chain(error)),
    }
}

fn guest_status(error: &GuestError) -> Status {
    match error {
        GuestError::Agent(_) => Status::unavailable(chain(error)),
        GuestError::Request(error) => request_status(error),
        GuestError::Timeout(_) => Status::deadline_exceeded(error.to_string()),
        GuestError::Qemu(_) | GuestError::Screenshot(_) => Status::internal(chain(error)),
    }
}
