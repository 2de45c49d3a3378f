//! The lock that allows one `orlop up` per data directory.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use rustix::fs::FlockOperation;

/// The lock, and the process that holds it.
const FILE: &str = "up.pid";

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

/// Waits until nobody has the directory, and takes it.
pub(crate) fn wait(data: &Path) -> anyhow::Result<Lock> {
    let file = open(data)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive).with_context(|| written(&data.join(FILE)))?;
    Ok(Lock { _file: file })
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
}
