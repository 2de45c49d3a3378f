//! Storage in which copies take as long as a test wants.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, SystemTime};

use storage::volumes::files::Files;
use storage::volumes::{Capacity, Copies, Filling, Name, Stored, VolumeError, Volumes};

/// Longer than anything here takes; a copy that is held for longer fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many copies have begun.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begun {
    pub(crate) clones: usize,
    pub(crate) snapshots: usize,
}

/// Volumes below a directory. No copy is made before so many snapshots have begun.
#[derive(Debug)]
pub(crate) struct Held {
    files: Files,
    copies: Copies,
    until: usize,
    begun: Mutex<Begun>,
    change: Condvar,
}

impl Held {
    pub(crate) fn new(folder: &Path, copies: Copies, until: usize) -> Self {
        let files = Files::open(folder).unwrap();
        Self { files, copies, until, begun: Mutex::default(), change: Condvar::new() }
    }

    pub(crate) fn begun(&self) -> Begun {
        *self.begun.lock().unwrap()
    }

    fn hold(&self, begin: impl FnOnce(&mut Begun), of: &Stored) -> Result<(), VolumeError> {
        let mut begun = self.begun.lock().unwrap();
        begin(&mut begun);
        self.change.notify_all();
        let waits = |begun: &mut Begun| begun.snapshots < self.until;
        let (_begun, late) = self.change.wait_timeout_while(begun, PATIENCE, waits).unwrap();
        if late.timed_out() { Err(VolumeError::Missing(of.clone())) } else { Ok(()) }
    }
}

impl Volumes for Held {
    fn create(&self, name: &Name, filling: Filling<'_>, size: u64) -> Result<(), VolumeError> {
        if let Filling::Copy(of) = filling {
            self.hold(|begun| begun.clones += 1, of)?;
        }
        self.files.create(name, filling, size)
    }

    fn snapshot(&self, name: &Name, volume: &Name) -> Result<SystemTime, VolumeError> {
        self.hold(|begun| begun.snapshots += 1, &Stored::Volume(volume.clone()))?;
        self.files.snapshot(name, volume)
    }

    fn delete(&self, stored: &Stored) -> Result<(), VolumeError> {
        self.files.delete(stored)
    }

    fn grow(&self, name: &Name, size: u64) -> Result<(), VolumeError> {
        self.files.grow(name, size)
    }

    fn settle(&self, stored: &Stored) -> Result<(), VolumeError> {
        self.files.settle(stored)
    }

    fn unfinished(&self) -> Result<Vec<Stored>, VolumeError> {
        self.files.unfinished()
    }

    fn found(&self, stored: &Stored) -> Result<Option<SystemTime>, VolumeError> {
        self.files.found(stored)
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.files.path(name)
    }

    fn usage(&self, stored: &Stored) -> Result<u64, VolumeError> {
        self.files.usage(stored)
    }

    fn capacity(&self) -> Result<Capacity, VolumeError> {
        self.files.capacity()
    }

    fn copies(&self) -> &Copies {
        &self.copies
    }
}
