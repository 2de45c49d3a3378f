//! A pod's containers: one attempt each, from being asked for to its end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tokio::process::Command;
use tokio::sync::{Notify, RwLock, watch};
use tokio::task::JoinHandle;

use super::bundle::devices::{self, DeviceError};
use super::bundle::facts::Facts;
use super::bundle::root::{self, RootError};
use super::bundle::{self, BundleError, ContainerPaths};
use super::children::{Born, Children, Exit, LaunchError};
use super::log::Log;
use super::output::Output;
use super::{chain, message, now};
use crate::runtime::cgroup::{self, CgroupError, Cgroups};
use crate::runtime::record::{Folder, Record, is_name};
use crate::runtime::spec::{Container, ContainerState, PodState};

/// How long the output of a container that has ended may take to come in: all writers have ended with it.
const OUTPUT: Duration = Duration::from_secs(5);
/// How long ended containers may take to be recorded.
const END: Duration = Duration::from_secs(10);
/// The exit code of a container that could not be started, as with other runtimes.
const NOT_STARTED: i32 = 128;

/// What a pod is made of before it has containers.
pub(super) struct Frame {
    pub(super) folder: Folder,
    pub(super) record: Record,
    pub(super) cgroups: Cgroups,
    pub(super) facts: Facts,
    pub(super) shared_memory: PathBuf,
    /// What a runtime writes to before it begins, so that it is found if the shim dies.
    pub(super) runtime_group: File,
    pub(super) _lock: File,
}

/// Why something asked of a pod was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum PodError {
    #[error("{0:?} is not a valid container name")]
    Name(String),
    #[error("the pod is ending")]
    Ending,
    #[error("attempt {running} of {name} has not ended")]
    Busy { name: String, running: u32 },
    #[error("{0} is not running")]
    NotRunning(String),
    #[error("write the record")]
    State(#[source] io::Error),
    #[error("start a process in {0}")]
    Exec(String, #[source] LaunchError),
    #[error("{0}")]
    Io(&'static str, #[source] io::Error),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error("containers ended without being noticed")]
    Stuck,
}

/// Why a container could not be started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("prepare its root")]
    Root(#[from] RootError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error("{0}")]
    Io(&'static str, #[source] io::Error),
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// A pod. Clones are the same one.
#[derive(Clone)]
pub(super) struct Pod(Arc<Inner>);

struct Inner {
    frame: Frame,
    states: watch::Sender<PodState>,
    running: Mutex<BTreeMap<String, Arc<Born>>>,
    children: Children,
    /// Held while the runtime is at work, and for writing by the end: then whether it has come.
    is_ending: RwLock<bool>,
    over: Notify,
}

/// A container that runs, and the tasks that copy its output.
struct Started {
    born: Arc<Born>,
    started_at: Timestamp,
    copies: Vec<JoinHandle<()>>,
    log: PathBuf,
}

impl Pod {
    pub(super) fn new(frame: Frame) -> Self {
        Self(Arc::new(Inner {
            frame,
            states: watch::Sender::new(PodState::default()),
            running: Mutex::default(),
            children: Children::default(),
            is_ending: RwLock::new(false),
            over: Notify::new(),
        }))
    }

    pub(super) fn states(&self) -> watch::Receiver<PodState> {
        self.0.states.subscribe()
    }

    pub(super) fn frame(&self) -> &Frame {
        &self.0.frame
    }

    pub(super) fn children(&self) -> &Children {
        &self.0.children
    }

    /// Whether the pod is ending; as long as this is held, it does not begin to.
    pub(super) async fn gate(&self) -> Result<impl Drop, PodError> {
        let gate = self.0.is_ending.read().await;
        if *gate { Err(PodError::Ending) } else { Ok(gate) }
    }

    /// The container's first process and its ID, if it runs.
    pub(super) fn running(&self, name: &str) -> Option<(Arc<Born>, String)> {
        let born = self.0.running.lock().ok()?.get(name).cloned()?;
        match self.0.states.borrow().containers.get(name) {
            Some(ContainerState::Running { id, .. }) => Some((born, id.clone())),
            _ => None,
        }
    }

    /// Starts a container, unless this attempt or a later one was asked for before. How that went is in the state.
    pub(super) async fn start(&self, container: Container) -> Result<(), PodError> {
        if !is_name(&container.name) {
            return Err(PodError::Name(container.name));
        }
        let gate = self.gate().await?;
        if !is_new(&self.0.states.borrow(), &container)? {
            return Ok(());
        }
        let Container { name, attempt, .. } = &container;
        let id = format!("{}-{name}-{attempt}", self.frame().record.sandbox.uid);
        // Nothing is awaited between the question and this, so that one of two who ask is first.
        self.set(name, ContainerState::Created { attempt: *attempt }).map_err(PodError::State)?;
        match self.launch(&container, &id).await {
            Ok(started) => {
                let pid = started.born.pid.cast_unsigned();
                let started_at = started.started_at;
                if let Ok(mut running) = self.0.running.lock() {
                    running.insert(name.clone(), Arc::clone(&started.born));
                }
                let state = ContainerState::Running { attempt: *attempt, id: id.clone(), pid, started_at };
                self.note(name, state);
                tokio::spawn(self.clone().watch(container, id, started));
            }
            Err(error) => {
                self.clean(&container.name, &id).await;
                let message = message::shortened(chain(&error));
                let exit = Exit { code: NOT_STARTED, signal: None };
                self.note(name, exited(*attempt, &id, exit, None, false, message));
            }
        }
        drop(gate);
        Ok(())
    }

    /// Ends all containers, and waits until that is on record.
    pub(super) async fn end(&self) -> Result<(), PodError> {
        *self.0.is_ending.write().await = true;
        let group = cgroup::of_pod(&self.frame().record.sandbox.uid);
        let cgroups = self.frame().cgroups.clone();
        blocking("end the containers", move || Ok(cgroups.end_all(&group)?)).await?;
        let mut states = self.states();
        let ended = states.wait_for(|state| state.containers.values().all(ContainerState::is_over));
        tokio::time::timeout(END, ended).await.map_err(|_| PodError::Stuck)?.map_err(|_| PodError::Stuck)?;
        Ok(())
    }

    /// Lets the process end.
    pub(super) fn finish(&self) {
        self.0.over.notify_one();
    }

    /// Waits until it may.
    pub(super) async fn over(&self) {
        self.0.over.notified().await;
    }

    async fn launch(&self, container: &Container, id: &str) -> Result<Started, StartError> {
        let frame = self.frame();
        let folder = frame.folder.container(id);
        let (root, mounts) = root::prepare(&container.root, &container.user, &folder)?;
        let places = ContainerPaths {
            root,
            shared_memory: frame.shared_memory.clone(),
            cgroup: self.group(&container.name),
            mounts,
        };
        let nodes = if container.privileged { devices::all() } else { devices::find(&container.devices)? };
        let config = bundle::config(container, &nodes, &places, &frame.facts)?;
        let write = std::fs::write(folder.join("config.json"), config.to_string());
        write.map_err(|source| StartError::Io("write the bundle", source))?;
        let log = Log::open(&frame.record.sandbox.logs, &container.name, container.attempt);
        let log = log.map_err(|source| StartError::Io("open the log", source))?;
        let log_path = log.path().to_owned();
        let (pid_file, runtime_log) = (folder.join("pid"), folder.join("runtime.log"));
        let mut command = self.runtime(&runtime_log);
        command.args(["run", "--detach", "--bundle"]).arg(&folder).arg("--pid-file").arg(&pid_file);
        let output = Output::prepare(container.tty, &folder, &mut command);
        let output = output.map_err(|source| StartError::Io("create a pipe for the output", source))?;
        command.arg(id);
        let born = self.children().launch(command, &frame.runtime_group, &pid_file, &runtime_log).await?;
        let started_at = now();
        let copies = output.copy(log).map_err(|source| {
            // It is ended with its cgroup, and is an orphan then.
            self.children().forget(born.pid);
            StartError::Io("read the output", source)
        })?;
        Ok(Started { born: Arc::new(born), started_at, copies, log: log_path })
    }

    /// The OCI runtime, with what all of its commands need.
    pub(super) fn runtime(&self, log: &std::path::Path) -> Command {
        let frame = self.frame();
        let mut command = Command::new(&frame.record.runtime);
        // crun asks systemd for cgroups if there is one, unless it is told not to.
        if frame.record.runtime.ends_with("crun") {
            command.arg("--cgroup-manager=cgroupfs");
        }
        command.arg("--root").arg(frame.folder.runtime());
        command.arg("--log").arg(log).args(["--log-format", "json"]);
        command
    }

    /// Waits for a container's end and writes down all about it.
    async fn watch(self, container: Container, id: String, started: Started) {
        let exit = started.born.exit().await;
        self.children().forget(started.born.pid);
        for copy in started.copies {
            // What does not come in by then never does.
            let _ = tokio::time::timeout(OUTPUT, copy).await;
        }
        let out_of_memory = self.frame().cgroups.memory_kills(&self.group(&container.name)) > 0;
        let log = (container.message_from_log && exit.code != 0).then_some(started.log.as_path());
        let message = message::of(container.termination_message.as_deref(), log);
        self.clean(&container.name, &id).await;
        if let Ok(mut running) = self.0.running.lock() {
            running.remove(&container.name);
        }
        let started_at = Some(started.started_at);
        self.note(&container.name, exited(container.attempt, &id, exit, started_at, out_of_memory, message));
    }

    /// Removes all that an attempt has left but its log and its state.
    async fn clean(&self, name: &str, id: &str) {
        let (group, cgroups) = (self.group(name), self.frame().cgroups.clone());
        let (folder, runtime) = (self.frame().folder.container(id), self.frame().folder.runtime().join(id));
        let cleaned = blocking("clean up", move || {
            cgroups.end_all(&group)?;
            cgroups.remove(&group)?;
            root::remove(&folder);
            // A runtime that failed has left nothing there.
            let _ = std::fs::remove_dir_all(runtime);
            Ok(())
        });
        if let Err(error) = cleaned.await {
            tracing::warn!(container = id, error = chain(&error), "cannot clean up completely");
        }
    }

    fn group(&self, name: &str) -> String {
        format!("{}/{name}", cgroup::of_pod(&self.frame().record.sandbox.uid))
    }

    /// On disk first: what was once seen is not forgotten.
    fn set(&self, name: &str, state: ContainerState) -> io::Result<()> {
        let mut all = self.0.states.borrow().clone();
        all.containers.insert(name.to_owned(), state);
        self.0.frame.folder.set_state(&all)?;
        self.0.states.send_replace(all);
        Ok(())
    }

    /// As [`Self::set`], for what has happened already: seen, even if it cannot be written down.
    fn note(&self, name: &str, state: ContainerState) {
        if let Err(error) = self.set(name, state.clone()) {
            tracing::warn!(container = name, %error, "cannot write the state");
            self.0.states.send_modify(|all| {
                all.containers.insert(name.to_owned(), state);
            });
        }
    }
}

/// Whether this attempt is to be started. An earlier one must be over.
fn is_new(state: &PodState, container: &Container) -> Result<bool, PodError> {
    match state.containers.get(&container.name) {
        None => Ok(true),
        Some(known) if known.attempt() >= container.attempt => Ok(false),
        Some(known) if known.is_over() => Ok(true),
        Some(known) => Err(PodError::Busy { name: container.name.clone(), running: known.attempt() }),
    }
}

fn exited(
    attempt: u32,
    id: &str,
    exit: Exit,
    started_at: Option<Timestamp>,
    out_of_memory: bool,
    message: String,
) -> ContainerState {
    let Exit { code: exit_code, signal } = exit;
    let id = id.to_owned();
    ContainerState::Exited { attempt, id, exit_code, signal, out_of_memory, started_at, finished_at: now(), message }
}

/// Work that may block, in a thread of its own, which shares the shim's namespaces.
async fn blocking(
    what: &'static str,
    work: impl FnOnce() -> Result<(), PodError> + Send + 'static,
) -> Result<(), PodError> {
    let interrupted = |_| PodError::Io(what, io::ErrorKind::Interrupted.into());
    tokio::task::spawn_blocking(work).await.map_err(interrupted)?
}
