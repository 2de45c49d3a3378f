//! Processes: those of the runtime, and the containers' that it leaves to the shim.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, pidfd_open, pidfd_send_signal, waitid, waitpid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::Command;

use crate::runtime::process::awaitable;

/// A runtime that takes longer is ended. It takes a tenth of a second; the rest is for a machine that swaps.
const LAUNCH: Duration = Duration::from_secs(60);

/// Why a process could not be started in a container.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error("run the OCI runtime")]
    Io(#[from] io::Error),
    /// What the runtime wrote about it.
    #[error("{0}")]
    Runtime(String),
    #[error("the OCI runtime did not answer within {} s", LAUNCH.as_secs())]
    Timeout,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exit {
    pub(super) code: i32,
    pub(super) signal: Option<i32>,
}

/// A process that the runtime has started and left to this one.
#[derive(Debug)]
pub(super) struct Born {
    pub(super) pid: i32,
    process: AsyncFd<OwnedFd>,
}

impl Born {
    /// Sends a signal. One that has ended already is no error.
    pub(super) fn signal(&self, signal: i32) -> io::Result<()> {
        let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("{signal} is not a valid signal"));
        let signal = Signal::from_named_raw(signal).ok_or_else(unknown)?;
        match pidfd_send_signal(self.process.get_ref(), signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            sent => Ok(sent?),
        }
    }

    /// Waits for the end. To be called once.
    pub(super) async fn exit(&self) -> Exit {
        loop {
            // The descriptor of a process becomes readable when the process ends.
            if let Ok(mut ready) = self.process.ready(Interest::READABLE).await {
                let id = WaitId::PidFd(rustix::fd::AsFd::as_fd(self.process.get_ref()));
                match waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
                    Ok(Some(status)) => {
                        let signal = status.terminating_signal();
                        let code = status.exit_status().or(signal.map(|it| 128 + it));
                        return Exit { code: code.unwrap_or(255), signal };
                    }
                    Ok(None) => ready.clear_ready(),
                    Err(rustix::io::Errno::INTR) => {}
                    // Someone else has buried it, which nobody should: how it ended is not known.
                    Err(_) => return Exit { code: 255, signal: None },
                }
            }
        }
    }
}

/// Which children somebody waits for. Others are orphans, and are buried.
#[derive(Debug, Default)]
pub(super) struct Children {
    known: Mutex<Processes>,
}

#[derive(Debug, Default)]
struct Processes {
    awaited: BTreeSet<i32>,
    /// Runtimes at work: what they leave is not known yet, and must not be taken for an orphan.
    launching: usize,
}

impl Children {
    /// Runs the runtime, which starts a process, writes its number to a file, and leaves it to the shim.
    pub(super) async fn launch(
        &self,
        mut command: Command,
        group: &File,
        pid_file: &Path,
        log: &Path,
    ) -> Result<Born, LaunchError> {
        let _launch = Launch::begin(&self.known);
        bind(&mut command, group.try_clone()?);
        let mut runtime = command.spawn()?;
        // Files that are passed on are closed here: who reads the other end waits for them.
        drop(command);
        let number = runtime.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
        self.with(|known| known.awaited.insert(number));
        let waited = tokio::time::timeout(LAUNCH, runtime.wait()).await;
        if waited.is_err() {
            let _ = runtime.kill().await;
        }
        self.with(|known| known.awaited.remove(&number));
        let status: ExitStatus = waited.map_err(|_| LaunchError::Timeout)??;
        if !status.success() {
            return Err(LaunchError::Runtime(last_message(log).unwrap_or_else(|| status.to_string())));
        }
        let text = std::fs::read_to_string(pid_file)?;
        let pid =
            text.trim().parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the PID is not a number"))?;
        self.with(|known| known.awaited.insert(pid));
        let opened = Pid::from_raw(pid).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData));
        let process = pidfd_open(opened?, PidfdFlags::empty()).map_err(io::Error::from)?;
        Ok(Born { pid, process: awaitable(process)? })
    }

    /// Nobody waits for it any more.
    pub(super) fn forget(&self, pid: i32) {
        self.with(|known| known.awaited.remove(&pid));
    }

    /// Buries children that nobody waits for, unless some are still to be told from those.
    pub(super) fn bury_orphans(&self) {
        let Some(awaited) = self.with(|known| (known.launching == 0).then(|| known.awaited.clone())).flatten() else {
            return;
        };
        for orphan in children().into_iter().filter(|pid| !awaited.contains(pid)).filter_map(Pid::from_raw) {
            // Only what has ended is buried; what runs on is looked at when it ends.
            let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
    }

    /// None only if a thread has panicked while it held the lock.
    fn with<T>(&self, work: impl FnOnce(&mut Processes) -> T) -> Option<T> {
        self.known.lock().ok().map(|mut known| work(&mut known))
    }
}

/// All children, whichever thread they belong to.
fn children() -> Vec<i32> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

struct Launch<'a>(&'a Mutex<Processes>);

impl<'a> Launch<'a> {
    fn begin(known: &'a Mutex<Processes>) -> Self {
        if let Ok(mut known) = known.lock() {
            known.launching += 1;
        }
        Self(known)
    }
}

impl Drop for Launch<'_> {
    fn drop(&mut self) {
        if let Ok(mut known) = self.0.lock() {
            known.launching -= 1;
        }
    }
}

/// A runtime that outlived its shim could start a container that nobody knows of. So it dies with it, and what it
/// has started by then is found by its group.
#[expect(unsafe_code, reason = "the only way to do it in the child; the closure makes two system calls")]
fn bind(command: &mut Command, group: File) {
    // SAFETY: the closure only makes system calls, which are allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            rustix::io::write(&group, b"0")?;
            Ok(())
        });
    }
}

/// The last that the runtime wrote to its log: lines of JSON.
fn last_message(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    messages.filter_map(|line| Some(line.get("msg")?.as_str()?.to_owned())).next_back()
}
