//! What is on disk of a pod. Everything here may block.
//!
//! ```text
//! FOLDER/record.json       the sandbox and its runtime, written by the agent before the shim is started
//! FOLDER/lock              held by the shim as long as it lives
//! FOLDER/process.json      which process the shim is
//! FOLDER/state.json        what the shim knows
//! FOLDER/socket            where it listens
//! FOLDER/runtime/          the OCI runtime's own state
//! FOLDER/containers/ID/    one container's bundle and what it wrote
//! ```

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use device_plugin::Short;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::process::Process;
use super::spec::{PodState, Sandbox};

/// The longest UID or container name: those of Kubernetes are shorter.
const MAX_NAME: usize = 80;

/// What a shim is told by the agent that starts it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) sandbox: Sandbox,
    pub(crate) runtime: PathBuf,
}

/// A pod's directory.
#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn create(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)
    }

    /// All of it, now.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn record(&self) -> io::Result<Option<Record>> {
        read_json(&self.0.join("record.json"))
    }

    pub(crate) fn set_record(&self, record: &Record) -> io::Result<()> {
        write_json(&self.0.join("record.json"), record)
    }

    pub(crate) fn process(&self) -> io::Result<Option<Process>> {
        read_json(&self.0.join("process.json"))
    }

    pub(crate) fn set_process(&self, process: &Process) -> io::Result<()> {
        write_json(&self.0.join("process.json"), process)
    }

    pub(crate) fn state(&self) -> io::Result<Option<PodState>> {
        read_json(&self.0.join("state.json"))
    }

    pub(crate) fn set_state(&self, state: &PodState) -> io::Result<()> {
        write_json(&self.0.join("state.json"), state)
    }

    /// The shim's lock; none if a shim holds it.
    pub(crate) fn lock(&self) -> io::Result<Option<File>> {
        let path = self.0.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The shim's socket.
    pub(crate) fn socket(&self) -> io::Result<Short> {
        Short::of(&self.0.join("socket"))
    }

    pub(crate) fn runtime(&self) -> PathBuf {
        self.0.join("runtime")
    }

    pub(crate) fn container(&self, id: &str) -> PathBuf {
        self.0.join("containers").join(id)
    }
}

/// Whether a UID or a name can be part of a path, a cgroup's name and an ID.
pub(crate) fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('.')
}

/// Whole or not at all. Not synced: what it is about does not outlive the machine's kernel.
fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(value)?;
    let temporary = path.with_added_extension("tmp");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(&bytes)?;
    std::fs::rename(&temporary, path)
}

/// None if it is not there, or not whole.
fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for text in ["", ".", "..", "a/b", "../x", "a b", "é"] {
            assert!(!is_name(text), "{text}");
        }
        assert!(is_name("3f2c0c9e-1c5b-4f0e-9b5e-0a4f3f1f0a11"));
    }
}
