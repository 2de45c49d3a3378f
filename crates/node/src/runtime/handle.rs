//! An agent's end of a shim: requests, and what the shim says by itself.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Signal, pidfd_send_signal};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::RuntimeError;
use super::cgroup::Cgroups;
use super::process::{Process, awaitable};
use super::protocol::{self, Answer, Call, Message, Request};
use super::record::Folder;
use super::spec::{Container, Executed, PodState, Sandbox};

/// How long a shim that holds its lock may take to listen.
const CONNECT: Duration = Duration::from_secs(10);
/// Between two looks whether it listens: there is nothing to wait for before there is a socket.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a shim may take to end its containers; after that it is ended itself.
const END: Duration = Duration::from_secs(20);
/// Requests on their way to one shim.
const REQUESTS: usize = 64;

/// A pod's shim. Clones are the same one; when the last is dropped, the shim goes on.
#[derive(Clone)]
pub struct Shim(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    requests: mpsc::Sender<(Request, oneshot::Sender<Result<Answer, String>>)>,
    next: JoinHandle<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.next.abort();
    }
}

/// What the handle and its task have in common.
struct Shared {
    folder: Folder,
    sandbox: Sandbox,
    process: Option<Process>,
    states: watch::Sender<PodState>,
    /// Its end was asked for: then it is not lost when it is gone.
    is_ending: AtomicBool,
    pending: Mutex<BTreeMap<u64, oneshot::Sender<Result<Answer, String>>>>,
    next_id: AtomicU64,
}

type Requests = mpsc::Receiver<(Request, oneshot::Sender<Result<Answer, String>>)>;

impl Shim {
    /// Connects to a pod's shim. If there is none any more, ends what it has left.
    pub(super) async fn attach(folder: Folder, sandbox: Sandbox) -> Result<Self, RuntimeError> {
        let stream = connect(&folder).await?;
        let io = |source| RuntimeError::Io { action: "read", path: folder.path().to_owned(), source };
        let process = folder.process().map_err(io)?;
        let shared = Arc::new(Shared {
            states: watch::Sender::new(folder.state().map_err(io)?.unwrap_or_default()),
            folder,
            sandbox,
            process,
            is_ending: AtomicBool::new(false),
            pending: Mutex::default(),
            next_id: AtomicU64::new(0),
        });
        let (requests, receiver) = mpsc::channel(REQUESTS);
        let first = match stream {
            Some(stream) => {
                let (mut reader, writer) = stream.into_split();
                // The first message is the state; who gets a handle sees it.
                match timeout(CONNECT, protocol::read(&mut reader)).await {
                    Ok(Ok(Some(Message::State(state)))) => {
                        shared.states.send_replace(state);
                        Some((reader, writer))
                    }
                    _ => None,
                }
            }
            None => None,
        };
        if first.is_none()
            && let Err(error) = shared.lose().await
        {
            // Tried again by the task: one pod that cannot be ended must not keep the others from being found.
            tracing::error!(pod = shared.sandbox.uid, %error, "cannot end the processes of a lost shim");
        }
        let next = tokio::spawn(drive(Arc::clone(&shared), first, receiver));
        Ok(Self(Arc::new(Inner { shared, requests, next })))
    }

    /// The pod's network namespace: `/proc/PID/ns/net` of the shim, the machine's own for the machine's network.
    #[must_use]
    pub fn netns(&self) -> PathBuf {
        match &self.0.shared.process {
            Some(process) if !self.0.shared.sandbox.host_network => {
                PathBuf::from(format!("/proc/{}/ns/net", process.pid))
            }
            _ => PathBuf::from("/proc/self/ns/net"),
        }
    }

    /// What is known about the pod, now and after each change.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<PodState> {
        self.0.shared.states.subscribe()
    }

    /// Starts a container unless this attempt was started already: then the state tells. It tells too if the
    /// container cannot be started: it is `Exited` then without ever having run.
    ///
    /// # Errors
    /// When the shim is gone, the pod is ending, or an earlier attempt is not over.
    pub async fn start(&self, container: &Container) -> Result<(), RuntimeError> {
        self.ask(Request::Start(Box::new(container.clone()))).await.map(drop)
    }

    /// Sends a signal to a container's first process. One that is gone already is fine.
    ///
    /// # Errors
    /// When the shim is gone, or there is no such signal.
    pub async fn signal(&self, container: &str, signal: i32) -> Result<(), RuntimeError> {
        self.ask(Request::Signal { container: container.to_owned(), signal }).await.map(drop)
    }

    /// Runs a command in a container, and ends it when its time is over.
    ///
    /// # Errors
    /// When the shim is gone, the container does not run, or the command cannot be started.
    pub async fn exec(&self, container: &str, command: &[String], timeout: Duration) -> Result<Executed, RuntimeError> {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let request = Request::Exec { container: container.to_owned(), command: command.to_vec(), timeout_ms };
        match self.ask(request).await? {
            Answer::Executed(executed) => Ok(executed),
            Answer::Done => Err(RuntimeError::Gone),
        }
    }

    /// Ends everything of the pod now, lost or not, and removes it: containers, cgroups, mounts, the record. Logs
    /// stay. Repeatable.
    ///
    /// # Errors
    /// When something cannot be ended or removed.
    pub async fn end(&self) -> Result<(), RuntimeError> {
        let shared = &self.0.shared;
        shared.is_ending.store(true, Ordering::SeqCst);
        // Whatever it answers: what counts is that it is gone.
        let asked = timeout(END, self.ask(Request::End)).await;
        if let Some(process) = shared.process.as_ref().and_then(Process::open) {
            if !matches!(asked, Ok(Ok(_))) {
                // Gone by itself just now, or ended by this.
                let _ = pidfd_send_signal(&process, Signal::KILL);
            }
            gone(process).await;
        }
        remove(shared.folder.clone(), shared.sandbox.uid.clone()).await
    }

    async fn ask(&self, request: Request) -> Result<Answer, RuntimeError> {
        let (sender, reply) = oneshot::channel();
        self.0.requests.send((request, sender)).await.map_err(|_| RuntimeError::Gone)?;
        reply.await.map_err(|_| RuntimeError::Gone)?.map_err(RuntimeError::Refused)
    }
}

impl Shared {
    /// The shim is gone. What it has left is ended, then that is told; how much it knew is on disk.
    async fn lose(&self) -> Result<(), RuntimeError> {
        if let Some(process) = self.process.as_ref().and_then(Process::open) {
            // It holds on to a life in which nobody can reach it.
            let _ = pidfd_send_signal(&process, Signal::KILL);
            gone(process).await;
        }
        if self.is_ending.load(Ordering::SeqCst) {
            return Ok(());
        }
        let uid = self.sandbox.uid.clone();
        blocking(move || Ok(Cgroups::find()?.end_pod(&uid)?)).await?;
        let known = self.folder.state().ok().flatten();
        self.states.send_modify(|state| {
            *state = PodState { lost: true, containers: known.unwrap_or_else(|| state.clone()).containers };
        });
        Ok(())
    }

    fn reply(&self, id: u64, answer: Result<Answer, String>) {
        let waiting = self.pending.lock().ok().and_then(|mut pending| pending.remove(&id));
        if let Some(waiting) = waiting {
            // Who asked may have lost interest.
            let _ = waiting.send(answer);
        }
    }
}

/// Serves a handle: as long as the shim is there, then by refusing.
async fn drive(shared: Arc<Shared>, stream: Option<(OwnedReadHalf, OwnedWriteHalf)>, mut requests: Requests) {
    if let Some((reader, writer)) = stream {
        tokio::select! {
            biased;
            () = receive(&shared, reader) => {}
            () = send(&shared, writer, &mut requests) => {}
        }
        // Nobody answers these any more.
        if let Ok(mut pending) = shared.pending.lock() {
            pending.clear();
        }
    }
    // As long as that fails there is something that runs without a shim.
    while !shared.states.borrow().lost
        && let Err(error) = shared.lose().await
    {
        tracing::error!(pod = shared.sandbox.uid, %error, "cannot end the processes of a lost shim");
        sleep(CONNECT).await;
    }
    requests.close();
    // Dropped, so that whoever asked hears of it.
    while requests.recv().await.is_some() {}
}

async fn receive(shared: &Shared, mut reader: OwnedReadHalf) {
    while let Ok(Some(message)) = protocol::read(&mut reader).await {
        match message {
            Message::State(state) => drop(shared.states.send_replace(state)),
            Message::Reply { id, answer } => shared.reply(id, answer),
        }
    }
}

async fn send(shared: &Shared, mut writer: OwnedWriteHalf, requests: &mut Requests) {
    while let Some((request, sender)) = requests.recv().await {
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut pending) = shared.pending.lock() {
            pending.insert(id, sender);
        }
        if let Err(error) = protocol::write(&mut writer, &Call { id, request }).await {
            if error.kind() != std::io::ErrorKind::InvalidInput {
                return;
            }
            // The connection is fine, the request is not.
            shared.reply(id, Err(error.to_string()));
        }
    }
    // All handles are gone, and this task with them.
    std::future::pending::<()>().await;
}

/// The shim's socket; none if no shim holds the pod's lock.
async fn connect(folder: &Folder) -> Result<Option<UnixStream>, RuntimeError> {
    let io = |source| RuntimeError::Io { action: "connect to", path: folder.path().to_owned(), source };
    let deadline = Instant::now() + CONNECT;
    loop {
        let socket = folder.socket().map_err(io)?;
        // Before the lock is tried: a shim that is there listens, or is about to.
        if let Ok(Ok(stream)) = timeout_at(deadline, UnixStream::connect(socket.path())).await {
            return Ok(Some(stream));
        }
        drop(socket);
        if folder.lock().map_err(io)?.is_some() || Instant::now() >= deadline {
            return Ok(None);
        }
        sleep(PAUSE).await;
    }
}

/// Waits for the end of a process. One that cannot be waited for counts as gone: its cgroup is looked at in any case.
async fn gone(process: OwnedFd) {
    if let Ok(process) = awaitable(process) {
        let _ = timeout(END, process.readable()).await;
    }
}

/// Ends and removes whatever there is of a pod without a shim.
pub(super) async fn remove(folder: Folder, uid: String) -> Result<(), RuntimeError> {
    blocking(move || {
        let cgroups = Cgroups::find()?;
        cgroups.end_pod(&uid)?;
        cgroups.remove_pod(&uid)?;
        let path = folder.path().to_owned();
        folder.remove().map_err(|source| RuntimeError::Io { action: "remove", path, source })
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RuntimeError> + Send + 'static,
) -> Result<T, RuntimeError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| RuntimeError::Interrupted)?
}
