//! Several processes, one network: the agents of several nodes on one machine share a bridge, its rules and the records of its pods.
//!
//! # Guarantees
//! - What is on disk is the truth: a process that holds the records has read them since any other changed them.
//! - Pods are added at the same time by all processes, and removed by one of them while none adds: as within one process.
//! - A process removes only pods of its own node, unless the whole network goes.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::FlockOperation;
use tokio::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use super::records::Records;
use super::{Cni, CniError, records_error};

/// The records, which nobody else reads or changes meanwhile.
pub(super) struct Held<'a> {
    records: MutexGuard<'a, Records>,
    _lock: Option<File>,
}

impl Deref for Held<'_> {
    type Target = Records;

    fn deref(&self) -> &Records {
        &self.records
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Records {
        &mut self.records
    }
}

/// Whoever has this runs plugins that add; others may do so, too.
pub(super) struct Adding<'a> {
    _lock: Option<File>,
    _task: RwLockReadGuard<'a, ()>,
}

/// Whoever has this runs plugins alone.
pub(super) struct Alone<'a> {
    _lock: Option<File>,
    _task: RwLockWriteGuard<'a, ()>,
}

impl Cni {
    /// Takes the records, as they are by now. To be taken after [`Cni::adding`] or [`Cni::alone`], where both are needed.
    pub(super) async fn records(&self) -> Result<Held<'_>, CniError> {
        let mut records = self.records.lock().await;
        let lock = self.lock("records.lock", FlockOperation::LockExclusive).await?;
        if lock.is_some() {
            records.reload().map_err(records_error("read"))?;
            self.reach().reload(&records)?;
        }
        Ok(Held { records, _lock: lock })
    }

    /// Lets plugins add pods.
    pub(super) async fn adding(&self) -> Result<Adding<'_>, CniError> {
        let task = self.plugins.read().await;
        Ok(Adding { _lock: self.lock("plugins.lock", FlockOperation::LockShared).await?, _task: task })
    }

    /// Waits until no plugin runs, and lets none begin.
    pub(super) async fn alone(&self) -> Result<Alone<'_>, CniError> {
        let task = self.plugins.write().await;
        Ok(Alone { _lock: self.lock("plugins.lock", FlockOperation::LockExclusive).await?, _task: task })
    }

    /// A lock between processes; none where there is only this one. The kernel lets go of it with the process, however it ends.
    async fn lock(&self, name: &str, operation: FlockOperation) -> Result<Option<File>, CniError> {
        if self.settings.node.is_none() {
            return Ok(None);
        }
        // Beside the directory of records: that one goes with the network, and a lock must stay the same file.
        let path = self.settings.state.with_added_extension(name);
        let taken = tokio::task::spawn_blocking(move || take(&path, operation)).await;
        taken.map_err(io::Error::other).and_then(|taken| taken).map(Some).map_err(records_error("lock"))
    }
}

fn take(path: &Path, operation: FlockOperation) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    loop {
        match rustix::fs::flock(&file, operation) {
            Err(rustix::io::Errno::INTR) => {}
            taken => return taken.map(|()| file).map_err(io::Error::from),
        }
    }
}
