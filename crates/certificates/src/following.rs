//! What is made of files that somebody else renews, such as a secret that a kubelet mounts.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::CertificateError;

/// Files are looked at again by the first handshake after this long. Nobody sees a certificate without a handshake.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What tells one content of a file from the next. None if there is no file.
type Stamp = Option<[i128; 6]>;
type Make<T> = dyn Fn() -> Result<T, CertificateError> + Send + Sync;

/// A value that is as fresh as the files that it is made of.
///
/// # Guarantees
/// - Whoever has taken a value keeps it: connections go on with what they began with.
/// - If the files changed and cannot be used (half of them is written, or one is gone), what was good before stays.
pub struct Following<T> {
    files: Vec<PathBuf>,
    make: Box<Make<T>>,
    looked: Mutex<Looked<T>>,
}

struct Looked<T> {
    at: Instant,
    /// How the files were when they were last tried.
    stamps: Vec<Stamp>,
    /// Whether they could be used then; if not, they are tried again even if they look the same.
    good: bool,
    value: Arc<T>,
}

impl<T> Following<T> {
    /// What `make` makes of these files, now and whenever they change.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn new(
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<T, CertificateError> + Send + Sync + 'static,
    ) -> Result<Self, CertificateError> {
        // The stamps first: what changes between the two is read again at the next look.
        let stamps = stamps(&files);
        let value = Arc::new(make()?);
        let looked = Mutex::new(Looked { at: Instant::now(), stamps, good: true, value });
        Ok(Self { files, make: Box::new(make), looked })
    }

    /// The value for the next handshake.
    pub fn current(&self) -> Arc<T> {
        let mut looked = self.looked();
        let now = Instant::now();
        if now.duration_since(looked.at) >= LOOK_AGAIN {
            looked.at = now;
            let stamps = stamps(&self.files);
            let changed = stamps != looked.stamps;
            if changed || !looked.good {
                looked.stamps = stamps;
                // Once for each change, not once for each look.
                self.make_again(&mut looked, changed);
            }
        }
        looked.value.clone()
    }

    /// Makes it again at once, because something else that it is made of has changed.
    pub fn refresh(&self) {
        let mut looked = self.looked();
        looked.stamps = stamps(&self.files);
        self.make_again(&mut looked, true);
    }

    fn make_again(&self, looked: &mut Looked<T>, tells: bool) {
        match (self.make)() {
            Ok(value) => {
                tracing::info!("loaded a new certificate or new certificate authorities of clients");
                looked.good = true;
                looked.value = Arc::new(value);
            }
            Err(error) => {
                looked.good = false;
                if tells {
                    let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    tracing::warn!(%error, source, "cannot load the changed certificate; still using the previous one");
                }
            }
        }
    }

    fn looked(&self) -> MutexGuard<'_, Looked<T>> {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &Path| {
        let data = fs::metadata(path).ok()?;
        let times = [data.mtime(), data.mtime_nsec(), data.ctime_nsec()].map(i128::from);
        Some([data.dev().into(), data.ino().into(), data.size().into(), times[0], times[1], times[2]])
    };
    files.iter().map(|path| stamp(path)).collect()
}
