//! The launcher's gRPC server: translates calls, decides nothing.

mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use hypervisor::accelerator::Accelerator;
use hypervisor::wiring::Attachment;
use tokio::net::UnixListener;
use tokio::sync::{Mutex, mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status};

use crate::boot::{self, BootError, Started, Workbench};
use crate::domain::{Domain, State};
use crate::driver::RequestError;
use crate::guest::{GuestError, Questions};
use crate::machine::Request as Wish;
use crate::rpc::launcher_server::{Launcher, LauncherServer};
use crate::rpc::{self, Empty};
use wire::{accelerator, failed, to_wire};

/// Makes the last preparations: tells how each interface is attached, which only the caller knows, and settles what the
/// instance leaves open. What it cannot do yet, it says; the caller of `Sync` tries again.
pub type Attach = dyn Fn(&mut VirtualMachineInstance) -> Result<BTreeMap<String, Attachment>, String> + Send + Sync;

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
    /// Set when the launcher may end.
    deleted: watch::Sender<bool>,
}

enum Slot {
    Empty,
    Taken {
        uid: String,
        guest: Started,
        questions: Questions,
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

    /// Asks the guest to power off, as SIGTERM does. True if there is one.
    pub async fn shut_down(&self) -> bool {
        match &*self.inner.slot.lock().await {
            Slot::Taken { guest, .. } => guest.handle.request(Wish::Shutdown { grace: guest.grace }).await.is_ok(),
            Slot::Empty | Slot::Failed { .. } => false,
        }
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
            Slot::Empty => return Err(Status::failed_precondition("there is no guest yet")),
        };
        handle.request(wish).await.map_err(|error| request_status(&error))?;
        Ok(Response::new(to_wire(&handle.domain().borrow())))
    }

    async fn questions(&self) -> Result<Questions, Status> {
        match &*self.inner.slot.lock().await {
            Slot::Taken { questions, .. } => Ok(questions.clone()),
            Slot::Empty | Slot::Failed { .. } => Err(Status::failed_precondition("there is no guest")),
        }
    }

    /// Starts the guest unless it was started before.
    async fn start_once(
        &self,
        wanted: String,
        vmi: &mut VirtualMachineInstance,
        told: Option<Accelerator>,
    ) -> Result<rpc::Domain, Status> {
        let mut slot = self.inner.slot.lock().await;
        match &*slot {
            Slot::Empty => self.start(wanted, vmi, told, &mut slot).await.inspect_err(|_| {
                self.inner.domain.send_replace(None);
            }),
            Slot::Taken { uid, .. } | Slot::Failed { uid, .. } if *uid != wanted => {
                Err(Status::already_exists(format!("this launcher belongs to instance {uid}")))
            }
            Slot::Taken { guest, .. } => Ok(to_wire(&guest.handle.domain().borrow())),
            Slot::Failed { domain, .. } => Ok(domain.clone()),
        }
    }

    /// Starts the guest and follows it to its end.
    async fn start(
        &self,
        uid: String,
        vmi: &mut VirtualMachineInstance,
        told: Option<Accelerator>,
        slot: &mut Slot,
    ) -> Result<rpc::Domain, Status> {
        let owner = api::owner::controller_of(&vmi.metadata).map_or("", |owner| owner.uid.as_str());
        tracing::info!(owner, "starting the guest");
        let interfaces = (self.inner.attach)(vmi).map_err(Status::failed_precondition)?;
        self.inner.domain.send_replace(Some(rpc::Domain { state: rpc::State::Starting.into(), ..Default::default() }));
        match boot::boot(vmi, interfaces, told, &self.inner.workbench).await {
            Ok(guest) => {
                let watched = guest.handle.domain();
                let now = to_wire(&watched.borrow());
                tokio::spawn(follow(watched, self.inner.clone()));
                let questions = Questions::new(guest.handle.clone());
                *slot = Slot::Taken { uid, guest, questions };
                Ok(now)
            }
            // What a retry cannot help is the end of this VM; what it can, such as a registry that is down, is not.
            Err(BootError::Start(error)) => {
                tracing::warn!(error = chain(&error), "QEMU did not start");
                let domain = failed(&error);
                self.inner.domain.send_replace(Some(domain.clone()));
                *slot = Slot::Failed { uid, domain: domain.clone() };
                Ok(domain)
            }
            Err(error) if error.is_final() => Err(Status::invalid_argument(chain(&error))),
            Err(error) => Err(Status::unavailable(chain(&error))),
        }
    }
}

/// Passes every change on.
async fn follow(mut domain: watch::Receiver<Domain>, inner: Arc<Inner>) {
    loop {
        let now = to_wire(&domain.borrow_and_update());
        inner.domain.send_replace(Some(now));
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
    async fn sync(&self, request: Request<rpc::SyncRequest>) -> Result<Response<rpc::Domain>, Status> {
        let request = request.into_inner();
        let told = accelerator(request.accelerator());
        let json =
            serde_json::from_slice(&request.instance).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let mut vmi = api::decode::object::<VirtualMachineInstance>(json)
            .map_err(|error| Status::invalid_argument(error.to_string()))?
            .object;
        let wanted = vmi.metadata.uid.clone().unwrap_or_default();
        if self.inner.uid.as_ref().is_some_and(|own| *own != wanted) {
            return Err(Status::already_exists("this launcher belongs to another instance"));
        }
        // A start goes on when its caller does not: whoever calls next must find a guest or none, not half of one.
        let service = self.clone();
        let started = tokio::spawn(async move { service.start_once(wanted, &mut vmi, told).await }).await;
        started.unwrap_or_else(|error| Err(Status::internal(error.to_string()))).map(Response::new)
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
            return Err(Status::failed_precondition("the guest still runs; shut it down or kill it first"));
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
        Ok(Response::new(self.inner.domain.borrow().clone().unwrap_or_else(absent)))
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

    async fn screenshot(&self, _: Request<Empty>) -> Result<Response<rpc::ScreenshotResponse>, Status> {
        let folder: PathBuf = self.inner.workbench.folder.clone();
        let png = self.questions().await?.screenshot(&folder).await.map_err(|error| guest_status(&error))?;
        Ok(Response::new(rpc::ScreenshotResponse { png }))
    }
}

fn absent() -> rpc::Domain {
    rpc::Domain { state: rpc::State::Absent.into(), ..rpc::Domain::default() }
}

fn request_status(error: &RequestError) -> Status {
    match error {
        RequestError::Denied(_) | RequestError::Gone => Status::failed_precondition(error.to_string()),
        RequestError::Qemu(_) => Status::internal(error.to_string()),
    }
}

fn guest_status(error: &GuestError) -> Status {
    match error {
        GuestError::Agent(_) => Status::unavailable(chain(error)),
        GuestError::Timeout(_) => Status::deadline_exceeded(error.to_string()),
        GuestError::Qemu(_) | GuestError::Screenshot(_) => Status::internal(chain(error)),
    }
}

/// An error and its causes, on one line each.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    std::iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}
