//! A launcher without a guest: it serves the protocol in a pod's folder and does what a test says.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use launcher_api::rpc::launcher_server::{Launcher, LauncherServer};
use launcher_api::rpc::{self, Domain, Empty, End, State};
use launcher_api::{Greeting, Outcome};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

/// One launcher; it ends when it is dropped.
pub(crate) struct FakeLauncher {
    shared: Arc<Shared>,
    folder: PathBuf,
    serving: AbortHandle,
    network: Option<std::os::unix::net::UnixListener>,
}

struct Shared {
    domain: watch::Sender<Domain>,
    calls: Mutex<Vec<String>>,
    /// What it answers instead of making its guest what it is told.
    outcome: Mutex<Option<Outcome>>,
    /// Whether it answers at all.
    hangs: watch::Sender<bool>,
    /// Whether a guest that is asked to power off does so.
    obeys: Mutex<bool>,
    guest: Mutex<rpc::GuestInfo>,
    /// It is of the release before: it knows neither greeting nor model, and answers with a status.
    is_old: bool,
    /// What its guest sees, if it can tell.
    model: Mutex<Option<String>>,
    /// Its connections, to be cut when it ends.
    connections: Mutex<Vec<std::os::unix::net::UnixStream>>,
}

impl Drop for FakeLauncher {
    fn drop(&mut self) {
        self.end();
    }
}

impl FakeLauncher {
    /// A launcher that listens in a folder.
    pub(crate) fn start(folder: &Path) -> Self {
        Self::of_release(folder, false)
    }

    /// One of the first release.
    pub(crate) fn start_old(folder: &Path) -> Self {
        Self::of_release(folder, true)
    }

    fn of_release(folder: &Path, is_old: bool) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let shared = Arc::new(Shared {
            domain: watch::Sender::new(Domain { state: State::Absent.into(), ..Domain::default() }),
            calls: Mutex::default(),
            outcome: Mutex::default(),
            hangs: watch::Sender::new(false),
            obeys: Mutex::new(true),
            guest: Mutex::default(),
            is_old,
            model: Mutex::new(Some(r#"{"version":1}"#.to_owned())),
            connections: Mutex::default(),
        });
        let network = std::os::unix::net::UnixListener::bind(folder.join("network-sock")).unwrap();
        let listener = UnixListener::bind(folder.join("starting")).unwrap();
        std::fs::rename(folder.join("starting"), folder.join("launcher-sock")).unwrap();
        let accepting = shared.clone();
        let incoming = UnixListenerStream::new(listener).map(move |stream| {
            let stream = stream?;
            let copy = stream.as_fd().try_clone_to_owned()?;
            accepting.connections.lock().unwrap().push(copy.into());
            Ok::<_, std::io::Error>(stream)
        });
        let server = tonic::transport::Server::builder()
            .add_service(LauncherServer::new(Fake(shared.clone())))
            .serve_with_incoming(incoming);
        let serving = tokio::spawn(async move { server.await.unwrap() }).abort_handle();
        Self { shared, folder: folder.to_owned(), serving, network: Some(network) }
    }

    /// It ends at once, as if killed.
    pub(crate) fn end(&mut self) {
        self.serving.abort();
        self.network = None;
        for connection in self.shared.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        for name in ["launcher-sock", "network-sock"] {
            let _ = std::fs::remove_file(self.folder.join(name));
        }
    }

    /// What was asked of it since the last time.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.calls.lock().unwrap())
    }

    pub(crate) fn tell(&self, state: State, end: End) {
        self.shared.tell(state, end);
    }

    /// From now on it answers this.
    pub(crate) fn answer_with(&self, outcome: Option<Outcome>) {
        *self.shared.outcome.lock().unwrap() = outcome;
    }

    /// From now on its guest sees this, or it does not answer.
    pub(crate) fn has_model(&self, model: Option<&str>) {
        *self.shared.model.lock().unwrap() = model.map(str::to_owned);
    }

    pub(crate) fn hang(&self) {
        self.shared.hangs.send_replace(true);
    }

    pub(crate) fn disobey(&self) {
        *self.shared.obeys.lock().unwrap() = false;
    }

    pub(crate) fn agent(&self, guest: rpc::GuestInfo) {
        *self.shared.guest.lock().unwrap() = guest;
        self.shared.domain.send_modify(|domain| {
            domain.sequence += 1;
            domain.agent_connected = true;
        });
    }

    pub(crate) fn state(&self) -> State {
        self.shared.domain.borrow().state()
    }
}

impl Shared {
    fn tell(&self, state: State, end: End) {
        self.domain.send_modify(|domain| {
            domain.sequence += 1;
            domain.state = state.into();
            domain.end = end.into();
        });
    }

    fn called(&self, call: &str) {
        self.calls.lock().unwrap().push(call.to_owned());
    }

    fn domain(&self) -> Result<Response<Domain>, Status> {
        Ok(Response::new(self.domain.borrow().clone()))
    }
}

struct Fake(Arc<Shared>);

impl Fake {
    /// Waits for ever, if it hangs.
    async fn answer(&self) {
        let _ = self.0.hangs.subscribe().wait_for(|hangs| !hangs).await;
    }
}

fn absent<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("not needed"))
}

#[tonic::async_trait]
impl Launcher for Fake {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Domain, Status>> + Send>>;

    async fn hello(&self, _: Request<rpc::HelloRequest>) -> Result<Response<rpc::Greeting>, Status> {
        self.answer().await;
        if self.0.is_old { absent() } else { Ok(Response::new(Greeting::of_this_release(1..=1).into())) }
    }

    async fn get_guest(&self, _: Request<Empty>) -> Result<Response<rpc::GuestModel>, Status> {
        if self.0.is_old {
            return absent();
        }
        let model = self.0.model.lock().unwrap().clone().ok_or_else(|| Status::unavailable("busy"))?;
        Ok(Response::new(rpc::GuestModel { version: 1, guest: model.into_bytes() }))
    }

    async fn sync(&self, request: Request<rpc::SyncRequest>) -> Result<Response<Domain>, Status> {
        let rpc::SyncRequest { instance, mark, incoming, .. } = request.into_inner();
        let instance: serde_json::Value = serde_json::from_slice(&instance).unwrap();
        self.0.called(&format!("sync {}", instance["metadata"]["name"].as_str().unwrap()));
        let outcome = self.0.outcome.lock().unwrap().clone();
        match &outcome {
            Some(Outcome::Retry { why }) if self.0.is_old => return Err(Status::unavailable(why)),
            Some(never @ Outcome::Never(_)) if self.0.is_old => {
                return Err(Status::invalid_argument(never.to_string()));
            }
            Some(Outcome::Retry { .. } | Outcome::Never(_)) => {}
            _ if self.0.domain.borrow().state() == State::Absent => {
                let state = if incoming.is_some() { State::Awaiting } else { State::Running };
                self.0.tell(state, End::Unspecified);
            }
            _ => {}
        }
        if !self.0.is_old && !matches!(outcome, Some(Outcome::Retry { .. })) {
            self.0.domain.send_modify(|domain| domain.mark = mark);
        }
        let outcome = (!self.0.is_old).then(|| outcome.unwrap_or(Outcome::Done).into());
        Ok(Response::new(Domain { outcome, ..self.0.domain.borrow().clone() }))
    }

    async fn unpause(&self, _: Request<Empty>) -> Result<Response<Domain>, Status> {
        self.0.called("unpause");
        self.0.domain()
    }

    async fn shutdown(&self, request: Request<rpc::ShutdownRequest>) -> Result<Response<Domain>, Status> {
        let seconds = request.into_inner().grace_ms.unwrap().div_ceil(1000);
        self.0.called(&format!("shutdown {seconds}"));
        if *self.0.obeys.lock().unwrap() {
            self.0.tell(State::Ended, End::PoweredOff);
        } else {
            self.0.tell(State::Stopping, End::Unspecified);
        }
        self.0.domain()
    }

    async fn kill(&self, _: Request<Empty>) -> Result<Response<Domain>, Status> {
        self.0.called("kill");
        self.0.tell(State::Ended, End::Killed);
        self.0.domain()
    }

    async fn delete(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        self.0.called("delete");
        if !matches!(self.0.domain.borrow().state(), State::Absent | State::Ended) {
            return Err(Status::failed_precondition("the guest still runs"));
        }
        Ok(Response::new(Empty {}))
    }

    async fn get_domain(&self, _: Request<Empty>) -> Result<Response<Domain>, Status> {
        self.answer().await;
        self.0.domain()
    }

    async fn watch(&self, _: Request<Empty>) -> Result<Response<Self::WatchStream>, Status> {
        self.answer().await;
        Ok(Response::new(Box::pin(WatchStream::new(self.0.domain.subscribe()).map(Ok))))
    }

    async fn get_guest_info(&self, _: Request<Empty>) -> Result<Response<rpc::GuestInfo>, Status> {
        Ok(Response::new(self.0.guest.lock().unwrap().clone()))
    }

    async fn pause(&self, _: Request<Empty>) -> Result<Response<Domain>, Status> {
        absent()
    }
    async fn reset(&self, _: Request<Empty>) -> Result<Response<Domain>, Status> {
        absent()
    }
    async fn get_local_disks(&self, _: Request<Empty>) -> Result<Response<rpc::LocalDisks>, Status> {
        absent()
    }
    async fn migrate(&self, _: Request<rpc::MigrateRequest>) -> Result<Response<Domain>, Status> {
        absent()
    }
    async fn cancel_migration(&self, _: Request<rpc::MigrationName>) -> Result<Response<Domain>, Status> {
        absent()
    }
    async fn give(&self, _: Request<rpc::MigrationName>) -> Result<Response<Domain>, Status> {
        absent()
    }
    async fn returned(&self, _: Request<rpc::MigrationName>) -> Result<Response<Domain>, Status> {
        absent()
    }
    async fn take(&self, _: Request<rpc::TakeRequest>) -> Result<Response<Domain>, Status> {
        absent()
    }
    async fn renounce(&self, _: Request<Empty>) -> Result<Response<Domain>, Status> {
        absent()
    }
    async fn soft_reboot(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        absent()
    }
    async fn freeze(&self, _: Request<rpc::FreezeRequest>) -> Result<Response<Empty>, Status> {
        absent()
    }
    async fn unfreeze(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        absent()
    }
    async fn get_stats(&self, _: Request<Empty>) -> Result<Response<rpc::Stats>, Status> {
        absent()
    }
    async fn get_users(&self, _: Request<Empty>) -> Result<Response<rpc::Users>, Status> {
        absent()
    }
    async fn get_filesystems(&self, _: Request<Empty>) -> Result<Response<rpc::Filesystems>, Status> {
        absent()
    }
    async fn exec(&self, _: Request<rpc::ExecRequest>) -> Result<Response<rpc::ExecResponse>, Status> {
        absent()
    }
    async fn guest_ping(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        absent()
    }
    async fn screenshot(
        &self,
        _: Request<rpc::ScreenshotRequest>,
    ) -> Result<Response<rpc::ScreenshotResponse>, Status> {
        absent()
    }

    type ConsoleStream = Pin<Box<dyn Stream<Item = Result<rpc::ConsoleOutput, Status>> + Send>>;

    async fn console(
        &self,
        _: Request<tonic::Streaming<rpc::ConsoleInput>>,
    ) -> Result<Response<Self::ConsoleStream>, Status> {
        absent()
    }
}
