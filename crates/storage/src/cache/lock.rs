//! Locks between processes: files that are locked, and may be removed by who holds them.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::CacheError;

/// How long a waiter waits before it tries again. The kernel wakes waiters by itself, but only in a thread that can
/// then not be cancelled; a pull takes seconds, so that this delay is not felt.
const RETRY: Duration = Duration::from_millis(50);

/// An exclusive lock; ends when dropped, or with the process.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock, or waits for it.
    pub(crate) async fn wait(path: PathBuf) -> Result<Self, CacheError> {
        loop {
            if let Some(lock) = Self::attempt(&path)? {
                return Ok(lock);
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Takes the lock unless someone holds it.
    pub(crate) fn attempt(path: &Path) -> Result<Option<Self>, CacheError> {
        let failed = |source| CacheError::Io { action: "lock", path: path.to_owned(), source };
        loop {
            let file = open(path)?;
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(source)) => return Err(failed(source)),
                // Whoever held it has removed it: others lock a new file by now, and this lock excludes nobody.
                Ok(()) if !has_name(&file).map_err(failed)? => {}
                Ok(()) => return Ok(Some(Self { path: path.to_owned(), _file: file })),
            }
        }
    }

    /// Takes a lock that nobody ever removes and nobody holds for long.
    pub(crate) fn block(path: &Path) -> Result<Self, CacheError> {
        let file = open(path)?;
        file.lock().map_err(|source| CacheError::Io { action: "lock", path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), _file: file })
    }

    /// Removes the lock's file and lets go.
    pub(crate) fn remove(self) -> Result<(), CacheError> {
        std::fs::remove_file(&self.path).map_err(|source| CacheError::Io { action: "remove", path: self.path, source })
    }
}

fn open(path: &Path) -> Result<File, CacheError> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    opened.map_err(|source| CacheError::Io { action: "open", path: path.to_owned(), source })
}

/// Whether an open file is still to be found under some name.
pub(crate) fn has_name(file: &File) -> std::io::Result<bool> {
    file.metadata().map(|metadata| metadata.nlink() > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_holds_a_lock_even_if_its_file_is_removed_all_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let (is_held, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while taken.load(Ordering::SeqCst) < 500 {
                        let Some(lock) = Lock::attempt(&path).unwrap() else { continue };
                        assert!(!is_held.swap(true, Ordering::SeqCst), "two hold the lock");
                        taken.fetch_add(1, Ordering::SeqCst);
                        std::thread::yield_now();
                        is_held.store(false, Ordering::SeqCst);
                        lock.remove().unwrap();
                    }
                });
            }
        });
    }

    #[tokio::test]
    async fn who_waits_gets_the_lock_when_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = Lock::attempt(&path).unwrap().unwrap();
        assert!(Lock::attempt(&path).unwrap().is_none());
        let waiter = tokio::spawn(Lock::wait(path.clone()));
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(lock);
        assert!(waiter.await.unwrap().is_ok());
    }
}
