//! One QEMU that runs the probe's firmware, watched until the result is clear.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::firmware::{PORT, Said, firmware};
use super::{Accelerator, Probe, ProbeError, Reason};
use crate::guest::build::{DEFAULT_BOARD, host_model};
use crate::process;
use crate::qmp::{self, commands};

/// What is kept of QEMU's complaints.
const LONGEST: u64 = 16 << 10;
/// How long QEMU's complaints are read after its end. A program that started QEMU instead of becoming it leaves a process that
/// has the pipe, too.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How many times its limit a probe may take where it hardly gets a processor.
const BUSY: u32 = 4;

/// Runs the probe; without a reason against it, this accelerator runs guests.
pub(super) async fn run(probe: &Probe, accelerator: Accelerator) -> Result<Result<(), Reason>, ProbeError> {
    let rom = tempfile(&probe.folder)?;
    let mut child = spawn(probe, accelerator, &rom.0)?;
    let id = child.id();
    let mut errors = child.stderr.take();
    let over = Notify::new();
    let complaints = async {
        let mut text = Vec::new();
        if let Some(errors) = &mut errors {
            let mut errors = errors.take(LONGEST);
            tokio::select! {
                biased;
                // What can be read counts, even if the time is over. What cannot be read is not told.
                _ = errors.read_to_end(&mut text) => {}
                () = async { over.notified().await; sleep(LAST_WORDS).await } => {}
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    let watched = async {
        let end = tokio::select! {
            biased;
            end = watch(&mut child) => Some(end),
            () = expire(probe.limit, || id.map_or(Duration::ZERO, |id| queued(Path::new("/proc"), id))) => None,
        };
        // It is over, one way or another.
        let _ = child.start_kill();
        let _ = child.wait().await;
        over.notify_one();
        end
    };
    let (end, complaints) = tokio::join!(watched, complaints);
    Ok(match end {
        None => Err(Reason::Silent),
        Some(End::Stopped(state)) => Err(Reason::Stopped(state)),
        Some(End::Exited(code)) => match code.and_then(Said::by_exit) {
            Some(Said::Well) => Ok(()),
            Some(Said::Forgot) => Err(Reason::Forgot),
            Some(Said::Exception(number)) => Err(Reason::Exception(number)),
            None => Err(Reason::Ended(first_complaint(&complaints))),
        },
    })
}

/// How a probe comes to its end by itself.
enum End {
    /// QEMU has ended with this code, or by a signal.
    Exited(Option<i32>),
    /// QEMU has stopped the guest, and is in this state.
    Stopped(String),
}

/// Resolves once a program has had this long to itself. The time in which it was ready and got no processor says something
/// about the machine's load and nothing about its KVM, so it does not count; but nobody waits for ever.
async fn expire(limit: Duration, queued: impl Fn() -> Duration) {
    let (start, longest) = (Instant::now(), limit * BUSY);
    loop {
        let elapsed = start.elapsed();
        let left = limit.saturating_sub(elapsed.saturating_sub(queued()));
        let left = left.min(longest.saturating_sub(elapsed));
        if left.is_zero() {
            return;
        }
        sleep(left).await;
    }
}

/// How long that thread of a program has waited for a processor that has waited longest; zero where the kernel does not say.
fn queued(proc: &Path, id: u32) -> Duration {
    let threads = std::fs::read_dir(proc.join(id.to_string()).join("task")).into_iter().flatten().flatten();
    let waits = threads.filter_map(|thread| {
        let line = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        line.split_whitespace().nth(1)?.parse().ok()
    });
    waits.max().map_or(Duration::ZERO, Duration::from_nanos)
}

/// A file that goes with its name.
struct Rom(std::path::PathBuf);

impl Drop for Rom {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn tempfile(folder: &Path) -> Result<Rom, ProbeError> {
    // Two probes at once do not share a file.
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let rom = Rom(folder.join(format!("probe-{}-{count}.rom", std::process::id())));
    std::fs::write(&rom.0, firmware()).map_err(|source| ProbeError::Write { folder: folder.to_owned(), source })?;
    Ok(rom)
}

/// QEMU with the CPU model and the machine that guests get, stopped before its first instruction.
fn spawn(probe: &Probe, accelerator: Accelerator, rom: &Path) -> Result<Child, ProbeError> {
    let mut command = Command::from(process::guard(probe.this.as_deref(), &probe.qemu));
    command
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-S", "-no-reboot", "-m", "64"])
        .args(["-machine", &format!("{DEFAULT_BOARD},usb=off,vmport=off")])
        .args(["-accel", accelerator.name(), "-cpu", host_model(accelerator)])
        .args(["-chardev", "stdio,id=monitor", "-mon", "chardev=monitor,mode=control"])
        .args(["-device", &format!("isa-debug-exit,iobase={PORT:#x},iosize=1")])
        .arg("-bios")
        .arg(rom)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command.spawn().map_err(|source| ProbeError::Start { program: probe.qemu.clone(), source })
}

/// Lets the guest run, and waits for QEMU's end or for it to leave `running`, from which no guest comes back by itself.
async fn watch(child: &mut Child) -> End {
    let monitor = child.stdout.take().zip(child.stdin.take());
    let stopped = async {
        let (read, write) = monitor?;
        let (qmp, mut events) = qmp::connect(tokio::io::join(read, write)).await.ok()?;
        qmp.execute(commands::Continue {}).await.ok()?;
        while let Some(event) = events.next().await {
            if event.name == "STOP" {
                let status = qmp.execute(commands::QueryStatus {}).await.ok()?;
                return Some(status.status);
            }
        }
        None
    };
    let stopped = async {
        match stopped.await {
            Some(state) => state,
            // Without its monitor, only its end tells.
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        status = child.wait() => End::Exited(status.ok().and_then(|status| status.code())),
        state = stopped => End::Stopped(state),
    }
}

/// The first thing that QEMU complained of; what follows is mostly how it went under.
fn first_complaint(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains("warning:"));
    let line = lines.next().unwrap_or_default();
    let plain =
        line.split_once(": ").map_or(line, |(program, rest)| if program.contains("qemu") { rest } else { line });
    plain.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_processor_does_not_count_but_not_for_ever() {
        let (start, limit) = (Instant::now(), Duration::from_secs(10));
        expire(limit, || Duration::ZERO).await;
        assert_eq!(start.elapsed(), limit);
        // A processor that is shared with another program.
        let start = Instant::now();
        expire(limit, || start.elapsed() / 2).await;
        let took = start.elapsed();
        assert!(took > limit * 19 / 10 && took <= limit * 2, "{took:?}");
        // One that never comes.
        let start = Instant::now();
        expire(limit, || start.elapsed()).await;
        assert_eq!(start.elapsed(), limit * BUSY);
    }

    #[test]
    fn the_thread_that_waited_longest_counts() {
        let proc = tempfile::tempdir().unwrap();
        for (thread, line) in [("7", "5 1000 1\n"), ("8", "9 3000 2\n"), ("9", "")] {
            let folder = proc.path().join("7/task").join(thread);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("schedstat"), line).unwrap();
        }
        assert_eq!(queued(proc.path(), 7), Duration::from_nanos(3000));
        assert_eq!(queued(proc.path(), 8), Duration::ZERO);
    }

    #[test]
    fn the_first_complaint_is_the_cause() {
        let text = "qemu-system-x86_64: warning: host doesn't support requested feature\n\
                    qemu-system-x86_64: error: failed to set MSR 0x10a to 0x69\n\
                    qemu-system-x86_64: kvm.c:3183: Assertion failed.\n";
        assert_eq!(first_complaint(text), "error: failed to set MSR 0x10a to 0x69");
        assert_eq!(first_complaint(""), "");
        assert_eq!(first_complaint("no: such thing"), "no: such thing");
    }
}
