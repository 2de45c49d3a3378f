//! The shim: one process per pod, which outlives the agent.
//!
//! ```text
//! agent ── socket ──> server ──> pod ──> children ── OCI runtime ──> containers
//!            states, exit codes  <──┘ └─> log: their output
//! ```
//!
//! Owns: the pod's namespaces (network, IPC, host name, mounts), its containers, their output and their exit codes.
//!
//! # Guarantees
//! - An attempt at a container is started at most once, whoever asks how often: it is on record before it is started.
//! - What is known of a container is on disk, so that it survives the shim's own death.
//! - What a container mounts or leaves mounted is gone with the pod: all mounts are in a namespace of their own.
//!
//! Deliberately absent: restarts, probes, images and networks: those are the agent's.

mod bundle;
mod children;
mod console;
mod exec;
mod log;
mod message;
mod output;
mod pod;
mod server;
mod setup;

use std::io;
use std::path::Path;

use crate::runtime::cgroup::CgroupError;
use crate::runtime::record::Folder;

pub(crate) use setup::log;

/// What a shim says when it is ready. Anything else is why it is not.
pub(crate) const READY: &str = "ready\n";
/// What a shim says when the pod has one already.
pub(crate) const ALREADY: &str = "already\n";

/// Why a shim ended, or could not start.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// Something of the process itself could not be set up.
    #[error("{0}")]
    Setup(&'static str, #[source] io::Error),
    /// The pod's directory has no record.
    #[error("{} has no pod record", .0.display())]
    Record(std::path::PathBuf),
    /// The pod has a shim already.
    #[error("the pod already has a shim")]
    Already,
    /// The pod's cgroup could not be made.
    #[error("create the pod's cgroup")]
    Cgroup(#[from] CgroupError),
}

/// Runs a pod's shim until it is told to end. The first thing that a process does: it must have one thread only, and
/// all files but the standard ones are closed. `beside` is done meanwhile, by the same thread.
///
/// # Errors
/// When the shim cannot be set up, or its socket cannot be used any more.
pub fn run(state: &Path, beside: impl Future<Output = ()>) -> Result<(), ShimError> {
    let folder = Folder::new(state.to_owned());
    let started = setup::start(&folder);
    match &started {
        Ok(_) => {}
        Err(ShimError::Already) => setup::tell(ALREADY),
        Err(error) => setup::tell(&chain(error)),
    }
    let pod = started?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| ShimError::Setup("start the event loop", source))?;
    runtime.block_on(async {
        let served = server::Server::bind(&folder);
        match &served {
            Ok(_) => setup::tell(READY),
            Err(error) => setup::tell(&chain(error)),
        }
        setup::leave_the_starter().map_err(|source| ShimError::Setup("close the standard files", source))?;
        let served = served.map_err(|source| ShimError::Setup("listen", source))?.run(pod);
        tokio::select! {
            biased;
            ended = served => ended,
            never = async { beside.await; std::future::pending().await } => never,
        }
    })
}

/// An error and what caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text += ": ";
        text += &source.to_string();
        next = source.source();
    }
    text
}

/// The time, for logs and states.
#[expect(clippy::disallowed_methods, reason = "a shim is a process of its own, and this is its only clock")]
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}
