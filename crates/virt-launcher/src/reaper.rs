//! Reaps orphaned processes, which the launcher inherits as the first process of a pod; QEMU is left to the driver.

use std::collections::BTreeSet;
use std::sync::Mutex;

use rustix::process::{Pid, WaitOptions, waitpid};
use tokio::signal::unix::{SignalKind, signal};

/// Children that somebody waits for. One set for the process, as children are the process'.
static AWAITED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Leaves this child to whoever started it. To be called before anything else can run on this thread.
pub(crate) fn leave(pid: u32) {
    if let Ok(mut awaited) = AWAITED.lock() {
        awaited.insert(pid);
    }
}

/// Buries orphans until the process ends.
///
/// # Errors
/// When the signal cannot be listened for.
pub async fn bury_orphans() -> std::io::Result<()> {
    let mut ended = signal(SignalKind::child())?;
    loop {
        for orphan in orphans() {
            // Only what has ended is buried; what runs on is asked again when it ends.
            if let Ok(Some(_)) = waitpid(Some(orphan), WaitOptions::NOHANG) {
                tracing::debug!(pid = orphan.as_raw_nonzero().get(), "reaped an orphaned process");
            }
        }
        if ended.recv().await.is_none() {
            return Ok(());
        }
    }
}

/// Children of this process that nobody waits for.
fn orphans() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let Ok(awaited) = AWAITED.lock() else { return Vec::new() };
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()).collect::<Vec<_>>())
        .filter(|pid| !awaited.contains(pid))
        .filter_map(|pid| i32::try_from(pid).ok().and_then(Pid::from_raw))
        .collect()
}
