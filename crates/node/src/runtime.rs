//! Containers for an agent: pods with a shim each, run by an OCI runtime, and images as they are unpacked.
//!
//! ```text
//! Runtime ── sandbox ──> Shim ── socket ──> the pod's shim process ── runc or crun ──> containers
//!         └─ existing ─> Shims of an earlier agent
//! ```
//!
//! Owns: one directory per pod, as [`record`] describes it, and the pods' cgroups below `/orlop`.
//!
//! # Guarantees
//! - An agent may be killed at any moment. The next one finds all pods, with what happened meanwhile.
//! - A container does not outlive its shim for long: whoever notices that the shim is gone ends what it has left,
//!   and only then calls the pod lost.
//! - No process is signalled by its number alone, which may be another's by now.

pub(crate) mod cgroup;
mod find;
mod handle;
pub(crate) mod process;
pub(crate) mod protocol;
pub(crate) mod record;
pub mod spec;

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::shim;
use cgroup::CgroupError;
use record::{Folder, Record, is_name};
use spec::Sandbox;

pub use handle::Shim;

/// How long a shim may take until it is ready. It takes milliseconds; the rest is for a machine that swaps.
const READY: Duration = Duration::from_secs(30);
/// The most bytes of a shim's answer when it starts.
const MAX_ANSWER: u64 = 4096;
/// Where a shim and its runtime look for programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where things are.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimePaths {
    /// One directory per pod is made below it. Best on a file system that is empty after a start of the machine.
    pub state: PathBuf,
    /// Run as `PROGRAM shim --state FOLDER`.
    pub program: PathBuf,
}

/// Why the runtime did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// No candidate could run a container.
    #[error("no OCI runtime can run containers here: {0}")]
    NoRuntime(String),
    /// A UID or a name cannot be part of a path.
    #[error("{0:?} is not a valid name of a pod or a container")]
    Name(String),
    /// The pod's directory could not be used.
    #[error("{action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// The shim did not start.
    #[error("the shim did not start: {0}")]
    Start(String),
    /// The shim is gone, or does not answer.
    #[error("the shim has ended")]
    Gone,
    /// The shim has refused.
    #[error("{0}")]
    Refused(String),
    /// The pod's cgroup.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A thread ended early.
    #[error("the work was interrupted")]
    Interrupted,
}

/// Runs containers with one OCI runtime. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Runtime {
    places: RuntimePaths,
    binary: PathBuf,
    name: String,
    version: String,
}

impl Runtime {
    /// Its name: `runc`, `crun`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says about its version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Starts the pod's shim, or finds the one that runs already. Returns when it answers. For a pod whose shim is
    /// gone, the handle of the lost one: to be ended before there can be another.
    ///
    /// # Errors
    /// When the shim cannot be started.
    pub async fn sandbox(&self, sandbox: &Sandbox) -> Result<Shim, RuntimeError> {
        let folder = self.folder(&sandbox.uid)?;
        let io = |action| {
            let path = folder.path().to_owned();
            move |source| RuntimeError::Io { action, path, source }
        };
        // One with a record and a process was started before; whether it runs is for the handle to find out.
        if folder.record().map_err(io("read"))?.is_none() || folder.process().map_err(io("read"))?.is_none() {
            folder.create().map_err(io("create"))?;
            let record = Record { sandbox: sandbox.clone(), runtime: self.binary.clone() };
            folder.set_record(&record).map_err(io("write"))?;
            self.start_shim(&folder).await?;
        }
        Shim::attach(folder, sandbox.clone()).await
    }

    /// Shims of an earlier agent: each pod that has a record on disk, running or lost. What is there without a
    /// record is removed.
    ///
    /// # Errors
    /// When the directory cannot be read, or what is left of a lost pod cannot be ended.
    pub async fn existing(&self) -> Result<Vec<(Sandbox, Shim)>, RuntimeError> {
        let path = &self.places.state;
        let list = || match std::fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect(),
        };
        let listed: io::Result<Vec<String>> = list();
        let io = |action| move |source| RuntimeError::Io { action, path: path.clone(), source };
        let mut uids = listed.map_err(io("list"))?;
        uids.sort();
        let mut found = Vec::new();
        for uid in uids.into_iter().filter(|name| is_name(name)) {
            let folder = self.folder(&uid)?;
            match folder.record().map_err(io("read"))? {
                Some(record) if record.sandbox.uid == uid => {
                    let shim = Shim::attach(folder, record.sandbox.clone()).await?;
                    found.push((record.sandbox, shim));
                }
                _ => handle::remove(folder, uid).await?,
            }
        }
        Ok(found)
    }

    fn folder(&self, uid: &str) -> Result<Folder, RuntimeError> {
        if !is_name(uid) {
            return Err(RuntimeError::Name(uid.to_owned()));
        }
        Ok(Folder::new(self.places.state.join(uid)))
    }

    /// A process that goes on without this one: it makes a session of its own, and inherits nothing but a place for
    /// its troubles. Of the environment it gets nothing: there may be secrets in it.
    async fn start_shim(&self, folder: &Folder) -> Result<(), RuntimeError> {
        let io = |source| RuntimeError::Io { action: "start a shim in", path: folder.path().to_owned(), source };
        let log = shim::log(folder.path()).map_err(io)?;
        let mut command = Command::new(&self.places.program);
        command.arg("shim").arg("--state").arg(folder.path());
        command.env_clear().env("PATH", PATH).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().map_err(io)?;
        let mut answer = String::new();
        if let Some(stdout) = child.stdout.take() {
            let read = async {
                // Up to the end of the line: what it says before it lets go of its output is all there is.
                stdout.take(MAX_ANSWER).read_to_string(&mut answer).await
            };
            match tokio::time::timeout(READY, read).await {
                Ok(read) => drop(read.map_err(io)?),
                Err(_) => {
                    // It is this one's own child, not yet waited for.
                    let _ = child.kill().await;
                }
            }
        }
        // So that it is buried when it ends.
        tokio::spawn(async move { child.wait().await });
        match answer.as_str() {
            // Another one may have been faster, or an earlier one has left something: the handle finds out.
            shim::READY | shim::ALREADY => Ok(()),
            "" => Err(RuntimeError::Start("it gave no reason".to_owned())),
            reason => Err(RuntimeError::Start(reason.to_owned())),
        }
    }
}
