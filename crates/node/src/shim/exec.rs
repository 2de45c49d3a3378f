//! Commands in a container that runs.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout_at};

use super::children::{Born, Exit};
use super::pod::{Pod, PodError};
use crate::runtime::spec::Executed;

/// How much of a command's output is kept: as much as Kubernetes keeps of a probe's.
const MAX_OUTPUT: usize = 16 << 10;
/// SIGKILL.
const KILL: i32 = 9;

/// Tells the files of commands that run at the same time apart.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Pod {
    /// Runs a command and waits for its end, or ends it when its time is over.
    pub(super) async fn exec(
        &self,
        container: &str,
        command: &[String],
        timeout: Duration,
    ) -> Result<Executed, PodError> {
        let deadline = Instant::now() + timeout;
        let (_, id) = self.running(container).ok_or_else(|| PodError::NotRunning(container.to_owned()))?;
        let gate = self.gate().await?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = self.frame().folder.container(&id);
        let (pid_file, log) = (folder.join(format!("exec-{number}.pid")), folder.join(format!("exec-{number}.log")));
        let pipe = || {
            let (reader, writer) = io::pipe()?;
            Ok((pipe::Receiver::from_owned_fd(reader.into())?, writer.try_clone()?, writer))
        };
        let (reader, out, error) = pipe().map_err(|source| PodError::Io("create a pipe", source))?;
        let mut runtime = self.runtime(&log);
        runtime.args(["exec", "--detach", "--pid-file"]).arg(&pid_file).arg(&id).args(command);
        runtime.stdin(std::process::Stdio::null()).stdout(out).stderr(error);
        let launched = self.children().launch(runtime, &self.frame().runtime_group, &pid_file, &log).await;
        drop(gate);
        for path in [&pid_file, &log] {
            // They go with the container otherwise.
            let _ = std::fs::remove_file(path);
        }
        let born = launched.map_err(|source| PodError::Exec(container.to_owned(), source))?;
        let executed = finish(&born, &reader, deadline).await;
        self.children().forget(born.pid);
        Ok(executed)
    }
}

/// Collects output until the process ends. What it has left running in the container may write on, unheard.
async fn finish(born: &Born, reader: &pipe::Receiver, deadline: Instant) -> Executed {
    let mut output = Vec::new();
    let mut is_open = true;
    let ended = timeout_at(deadline, async {
        let exit = born.exit();
        tokio::pin!(exit);
        loop {
            tokio::select! {
                biased;
                exit = &mut exit => return exit,
                ready = reader.readable(), if is_open => is_open = ready.is_ok() && take(reader, &mut output),
            }
        }
    });
    let (Exit { code, .. }, timed_out) = match ended.await {
        Ok(exit) => (exit, false),
        Err(_) => {
            // It may have ended by itself just now.
            let _ = born.signal(KILL);
            (born.exit().await, true)
        }
    };
    if is_open {
        take(reader, &mut output);
    }
    Executed { exit_code: code, output, timed_out }
}

/// Takes what is there, and says whether more may come.
fn take(reader: &pipe::Receiver, output: &mut Vec<u8>) -> bool {
    let mut piece = [0; 4096];
    // A command that writes faster than this reads must not hold up the others.
    for _ in 0..64 {
        match reader.try_read(&mut piece) {
            Ok(0) => return false,
            Ok(length) => {
                let room = MAX_OUTPUT.saturating_sub(output.len());
                output.extend_from_slice(&piece[..length.min(room)]);
            }
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}
