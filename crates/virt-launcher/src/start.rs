//! Starting QEMU, in phases. Each phase is a type that undoes itself when it is dropped; a start that fails anywhere
//! leaves nothing behind.
//!
//! ```text
//! Bound ──spawn──> Spawned ──connect──> Up ──boots────> Ready (its first step is `cont`)
//!                                        └──arrives──> Ready (nothing runs before its state has come and was given)
//! ```

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use hypervisor::process;
use hypervisor::qmp::{self, Events, Qmp, QmpError};
use hypervisor::render::{AGENT_SOCKET, CommandLine, MONITOR_SOCKET};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;

use crate::grant;
use crate::lifecycle::Lifecycle;
use crate::migrate::target::{self, Export};
use crate::reaper;

/// How long QEMU may take from its start to its greeting: it opens images and builds a machine, and a busy machine may
/// be slow at both.
const GREETING: Duration = Duration::from_secs(60);
/// How much of what QEMU says is kept: the last lines say why it ended.
const LAST_LINES: usize = 20;

/// Why QEMU did not come up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket could not be made.
    #[error("listen on {path}")]
    Listen { path: PathBuf, source: io::Error },
    /// The program could not be started.
    #[error("start {program}")]
    Spawn { program: PathBuf, source: io::Error },
    /// QEMU started and did not connect.
    #[error("QEMU did not connect to its monitor socket within {GREETING:?}")]
    Silent,
    /// QEMU ended before it was up.
    #[error("QEMU ended with {status}")]
    Ended { status: ExitStatus, words: String },
    /// QEMU connected and did not speak.
    #[error("talk to QEMU")]
    Monitor(#[source] QmpError),
    /// The guest comes from elsewhere, and knows another CPU.
    #[error(
        "the CPU that this node and its QEMU have for the model {0:?} differs from the one that the guest has; move it to another node"
    )]
    Cpu(String),
    /// What the guest sees could not be written down.
    #[error(transparent)]
    Model(#[from] crate::model::ModelError),
    /// Who may write could not be written down.
    #[error(transparent)]
    Grant(#[from] grant::StoreError),
    /// The process could not be watched.
    #[error("wait for QEMU")]
    Wait(#[source] io::Error),
}

impl StartError {
    /// Whether QEMU had everything and did not start. Whatever else failed is of this machine, and may pass.
    #[must_use]
    pub fn is_qemus(&self) -> bool {
        match self {
            Self::Silent | Self::Ended { .. } | Self::Monitor(_) => true,
            Self::Listen { .. }
            | Self::Spawn { .. }
            | Self::Cpu(_)
            | Self::Model(_)
            | Self::Grant(_)
            | Self::Wait(_) => false,
        }
    }
}

/// The first phase: sockets that QEMU will connect to.
pub(crate) struct Bound {
    monitor: Socket,
    agent: Socket,
}

/// A listening socket whose file goes with it.
struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The directory may be gone already, and the file with it.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Socket {
    fn listen(path: PathBuf) -> Result<Self, StartError> {
        let failed = |path: &Path, source| StartError::Listen { path: path.to_owned(), source };
        let listener = UnixListener::bind(&path).map_err(|source| failed(&path, source))?;
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, owner_only).map_err(|source| failed(&path, source))?;
        Ok(Self { listener, path })
    }
}

impl Bound {
    pub(crate) fn bind(runtime: &Path) -> Result<Self, StartError> {
        let monitor = Socket::listen(runtime.join(MONITOR_SOCKET))?;
        let agent = Socket::listen(runtime.join(AGENT_SOCKET))?;
        Ok(Self { monitor, agent })
    }

    /// Starts QEMU, under guard of the calling thread.
    pub(crate) fn spawn(self, this: &Path, qemu: &Path, line: &CommandLine) -> Result<Spawned, StartError> {
        let mut command = Command::from(process::guarded(this, qemu, line));
        command.kill_on_drop(true);
        let mut child = command.spawn().map_err(|source| StartError::Spawn { program: this.to_owned(), source })?;
        if let Some(pid) = child.id() {
            reaper::leave(pid);
        }
        let words = tokio::spawn(last_words(child.stderr.take()));
        Ok(Spawned { bound: self, child, words })
    }
}

/// The second phase: a process that may or may not come up.
pub(crate) struct Spawned {
    bound: Bound,
    child: Child,
    words: JoinHandle<String>,
}

impl Spawned {
    /// Waits until QEMU has connected and greeted, or has ended.
    pub(crate) async fn connect(mut self) -> Result<Up, StartError> {
        let Bound { monitor, agent } = &self.bound;
        let connected = async {
            // QEMU connects in the order of its arguments: the monitor before the agent.
            let (monitor, _) = monitor.listener.accept().await?;
            let (agent, _) = agent.listener.accept().await?;
            io::Result::Ok((monitor, agent))
        };
        let (monitor, agent) = tokio::select! {
            biased;
            // A connection is a connection even if QEMU has ended since; then its end is seen on it.
            connected = connected => connected.map_err(StartError::Wait)?,
            status = self.child.wait() => {
                let status = status.map_err(StartError::Wait)?;
                let words = self.words.await.unwrap_or_default();
                return Err(StartError::Ended { status, words });
            }
            () = tokio::time::sleep(GREETING) => return Err(StartError::Silent),
        };
        match qmp::connect(monitor).await {
            Ok((qmp, events)) => Ok(Up { qmp, events, agent, child: self.child, words: self.words }),
            Err(QmpError::Closed | QmpError::Greeting(_)) => {
                let status = self.child.wait().await.map_err(StartError::Wait)?;
                let words = self.words.await.unwrap_or_default();
                Err(StartError::Ended { status, words })
            }
            Err(error) => Err(StartError::Monitor(error)),
        }
    }
}

/// The third phase: a QEMU that listens, with a guest that has not run.
pub(crate) struct Up {
    pub(crate) qmp: Qmp,
    events: Events,
    agent: UnixStream,
    child: Child,
    words: JoinHandle<String>,
}

impl Up {
    /// Its guest will boot; it stays paused if its start strategy says so.
    pub(crate) fn boots(self, paused: bool) -> Ready {
        self.ready(Lifecycle::boot(paused))
    }

    /// Its guest's state will come from another launcher. QEMU listens for it, and serves the disks that come with it.
    pub(crate) async fn arrives(self, from: &str, runtime: &Path, exports: &[Export]) -> Result<Ready, StartError> {
        target::listen(&self.qmp, runtime, exports).await.map_err(StartError::Monitor)?;
        Ok(self.ready(Lifecycle::arrival(from)))
    }

    fn ready(self, lifecycle: Lifecycle) -> Ready {
        let Self { qmp, events, agent, child, words } = self;
        Ready { qmp, events, agent, child, words, lifecycle }
    }
}

/// The last phase: everything that a driver needs.
pub(crate) struct Ready {
    pub(crate) qmp: Qmp,
    pub(crate) events: Events,
    pub(crate) agent: UnixStream,
    pub(crate) child: Child,
    pub(crate) words: JoinHandle<String>,
    pub(crate) lifecycle: Lifecycle,
}

/// The last lines that QEMU wrote; each is logged as it comes.
async fn last_words(stderr: Option<ChildStderr>) -> String {
    let Some(stderr) = stderr else { return String::new() };
    let mut kept = std::collections::VecDeque::new();
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tracing::info!(qemu = line);
        if kept.len() == LAST_LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }
    Vec::from(kept).join("\n")
}
