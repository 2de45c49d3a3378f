//! The lock that allows one `orlop up` per data directory.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use tokio::time::{Instant, sleep};

/// The lock, and the process that holds it: its pid, with a word behind it if it stops everything.
const FILE: &str = "up.pid";
/// Between two looks whether a directory is free.
const LOOK: Duration = Duration::from_millis(100);
/// Between two lines that say who still has it.
const TELL: Duration = Duration::from_secs(10);
/// What a killed process leaves behind: one that it had just forked has its lock, too, until it has become another program.
const LEFT_OVER: Duration = Duration::from_secs(10);
/// A process that was asked to end and has not done so by then does not end by itself.
const LONGEST: Duration = Duration::from_secs(60);

/// The directory is ours as long as this is held; the kernel lets go of it with the process, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Who has a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// Something that runs pods: `orlop up`, or the agent of a node.
    Runs(u32),
    /// `orlop down`.
    Stops(u32),
    /// Somebody who has not written it down yet.
    Unknown,
}

impl Holder {
    /// Whether it runs. A zombie has no command line any more.
    fn is_alive(self) -> bool {
        match self {
            Self::Runs(pid) | Self::Stops(pid) => {
                std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
            }
            Self::Unknown => true,
        }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Runs(pid) => write!(f, "`orlop up` with pid {pid}"),
            Self::Stops(pid) => write!(f, "`orlop down` with pid {pid}"),
            Self::Unknown => f.write_str("another process"),
        }
    }
}

/// Takes the directory, or says who has it.
pub(crate) fn take(data: &Path) -> anyhow::Result<Lock> {
    let mut file = open(data)?;
    let begun = Instant::now();
    while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let holder = read(&mut file);
        if holder.is_alive() || begun.elapsed() >= LEFT_OVER {
            bail!("{} is in use by {holder}", data.display());
        }
        pause();
    }
    write(file, data, "")
}

#[expect(
    clippy::disallowed_methods,
    reason = "there is no runtime yet, and the kernel tells nobody that a lock is free"
)]
fn pause() {
    std::thread::sleep(LOOK);
}

/// The process that runs pods in the directory, if one does. One that stops them is none.
pub(crate) fn holder(data: &Path) -> anyhow::Result<Option<u32>> {
    match data.join(FILE).try_exists() {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => bail!(only_root(data)),
        Err(error) => return Err(error).with_context(|| format!("look at {}", data.display())),
    }
    let mut file = open(data)?;
    // Only looked at: the lock goes with the file.
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(_) => Ok(match read(&mut file) {
            Holder::Runs(pid) => Some(pid),
            Holder::Stops(_) | Holder::Unknown => None,
        }),
    }
}

/// Waits until nobody has the directory, and takes it to stop what runs there. Says meanwhile who has it. Another `orlop down` may
/// take as long as it was told to.
///
/// # Errors
/// When a process that was asked to end does not.
pub(crate) async fn wait(data: &Path, out: &mut impl Write) -> anyhow::Result<Lock> {
    let mut file = open(data)?;
    let begun = Instant::now();
    let mut tell = begun + TELL;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return write(file, data, " down"),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(error).with_context(|| written(&data.join(FILE))),
        }
        let holder = read(&mut file);
        if let Holder::Runs(pid) = holder
            && begun.elapsed() >= LONGEST
        {
            bail!(
                "pid {pid} does not end; `sudo kill -9 {pid}` ends it and spares its VMs, then run this command again"
            );
        }
        if Instant::now() >= tell {
            writeln!(out, "waiting for {holder} to end, for {} s so far", begun.elapsed().as_secs())?;
            out.flush()?;
            tell += TELL;
        }
        sleep(LOOK).await;
    }
}

fn open(data: &Path) -> anyhow::Result<File> {
    let path = data.join(FILE);
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    match opened {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => bail!(only_root(data)),
        opened => opened.with_context(|| format!("open {}", path.display())),
    }
}

fn only_root(data: &Path) -> String {
    format!("only its owner can use {}; run this command with sudo", data.display())
}

/// Writes down who has it. What stops pods is not asked to end by the next that wants to stop them.
fn write(mut file: File, data: &Path, word: &str) -> anyhow::Result<Lock> {
    let written = file.set_len(0).and_then(|()| file.rewind());
    let written = written.and_then(|()| writeln!(file, "{}{word}", std::process::id()));
    written.with_context(|| self::written(&data.join(FILE)))?;
    Ok(Lock { _file: file })
}

fn read(file: &mut File) -> Holder {
    let mut text = String::new();
    if file.rewind().and_then(|()| file.read_to_string(&mut text)).is_err() {
        return Holder::Unknown;
    }
    let text = text.trim();
    let (pid, holder): (_, fn(u32) -> Holder) = match text.strip_suffix(" down") {
        Some(pid) => (pid, Holder::Stops),
        None => (text, Holder::Runs),
    };
    pid.parse().map_or(Holder::Unknown, holder)
}

fn written(path: &Path) -> String {
    format!("lock {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_learns_who_the_first_is() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(holder(data.path()).unwrap(), None);
        let first = take(data.path()).unwrap();
        assert_eq!(holder(data.path()).unwrap(), Some(std::process::id()));
        let refused = take(data.path()).unwrap_err().to_string();
        assert!(refused.ends_with(&format!("with pid {}", std::process::id())), "{refused}");
        drop(first);
        assert_eq!(holder(data.path()).unwrap(), None);
        take(data.path()).unwrap();
    }

    #[test]
    fn what_a_killed_process_has_forked_is_waited_for() {
        let data = tempfile::tempdir().unwrap();
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let forked = take(data.path()).unwrap();
        std::fs::write(data.path().join(FILE), format!("{}\n", dead.id())).unwrap();
        let next = std::thread::spawn({
            let data = data.path().to_owned();
            move || take(&data)
        });
        drop(forked);
        next.join().unwrap().unwrap();
        assert_eq!(holder(data.path()).unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_process_that_hangs_says_who_it_is_and_ends() {
        let data = tempfile::tempdir().unwrap();
        let first = take(data.path()).unwrap();
        let (begun, mut out) = (Instant::now(), Vec::new());
        let refused = wait(data.path(), &mut out).await.unwrap_err().to_string();
        let pid = std::process::id();
        let told = format!(
            "pid {pid} does not end; `sudo kill -9 {pid}` ends it and spares its VMs, then run this command again"
        );
        assert_eq!(refused, told);
        assert!(begun.elapsed() < LONGEST + TELL);
        let said = String::from_utf8(out).unwrap();
        assert_eq!(said.lines().count(), 5, "{said}");
        assert!(
            said.starts_with(&format!("waiting for `orlop up` with pid {pid} to end, for 10 s so far\n")),
            "{said}"
        );

        // One that ends in time is followed at once, in silence.
        let (begun, mut out) = (Instant::now(), Vec::new());
        let ends = async {
            sleep(TELL / 2).await;
            drop(first);
        };
        let (waited, ()) = tokio::join!(wait(data.path(), &mut out), ends);
        let stopping = waited.unwrap();
        assert!(begun.elapsed() <= TELL / 2 + LOOK && out.is_empty());

        // Another `orlop down` is nobody to stop, and has its time.
        assert_eq!(holder(data.path()).unwrap(), None);
        let refused = take(data.path()).unwrap_err().to_string();
        assert!(refused.ends_with(&format!("in use by `orlop down` with pid {pid}")), "{refused}");
        let ends = async {
            sleep(LONGEST * 5).await;
            drop(stopping);
        };
        let (waited, ()) = tokio::join!(wait(data.path(), &mut out), ends);
        waited.unwrap();
    }
}
