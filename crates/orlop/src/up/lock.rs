//! The lock that allows one `orlop up` per data directory.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use tokio::time::{Instant, sleep};

/// The lock, and the process that holds it.
const FILE: &str = "up.pid";
/// Between two looks whether a directory is free.
const LOOK: Duration = Duration::from_millis(100);
/// Between two lines that say who still has it.
const TELL: Duration = Duration::from_secs(10);
/// A process that was asked to end and has not done so by then does not end by itself.
const LONGEST: Duration = Duration::from_secs(60);

/// The directory is ours as long as this is held; the kernel lets go of it with the process, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Takes the directory, or says who has it.
pub(crate) fn take(data: &Path) -> anyhow::Result<Lock> {
    let mut file = open(data)?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("{} is in use by `orlop up` with pid {}", data.display(), read(&mut file).unwrap_or_default());
    }
    let path = data.join(FILE);
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).with_context(|| written(&path))?;
    Ok(Lock { _file: file })
}

/// The process that has the directory, if one has.
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
        Err(_) => Ok(read(&mut file)),
    }
}

/// Waits until nobody has the directory, and takes it. Says meanwhile who has it.
///
/// # Errors
/// When that process does not end.
pub(crate) async fn wait(data: &Path, out: &mut impl Write) -> anyhow::Result<Lock> {
    let mut file = open(data)?;
    let begun = Instant::now();
    let mut tell = begun + TELL;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(error).with_context(|| written(&data.join(FILE))),
        }
        let holder = read(&mut file).map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
        if begun.elapsed() >= LONGEST {
            bail!("pid {holder} does not end; `sudo kill -9 {holder}` ends it and spares its VMs");
        }
        if Instant::now() >= tell {
            writeln!(out, "waiting for pid {holder} to end, {} s by now", begun.elapsed().as_secs())?;
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

fn read(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    text.trim().parse().ok()
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

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_a_process_that_hangs_says_who_it_is_and_ends() {
        let data = tempfile::tempdir().unwrap();
        let first = take(data.path()).unwrap();
        let (begun, mut out) = (Instant::now(), Vec::new());
        let refused = wait(data.path(), &mut out).await.unwrap_err().to_string();
        let pid = std::process::id();
        assert_eq!(refused, format!("pid {pid} does not end; `sudo kill -9 {pid}` ends it and spares its VMs"));
        assert!(begun.elapsed() < LONGEST + TELL);
        let said = String::from_utf8(out).unwrap();
        assert_eq!(said.lines().count(), 5, "{said}");
        assert!(said.starts_with(&format!("waiting for pid {pid} to end, 10 s by now\n")), "{said}");

        // One that ends in time is followed at once, in silence.
        let (begun, mut out) = (Instant::now(), Vec::new());
        let ends = async {
            sleep(TELL / 2).await;
            drop(first);
        };
        let (waited, ()) = tokio::join!(wait(data.path(), &mut out), ends);
        waited.unwrap();
        assert!(begun.elapsed() <= TELL / 2 + LOOK && out.is_empty());
    }
}
