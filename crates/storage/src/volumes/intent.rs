//! What is about to be made, written down before: whoever finds an intent knows what was begun.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Stored, VolumeError};

const ENDING: &str = "intent";

/// The record of a copy.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Intent {
    pub(super) makes: Stored,
    pub(super) from: Option<Stored>,
}

/// The name of a thing where both kinds are together.
pub(super) fn key(stored: &Stored) -> String {
    match stored {
        Stored::Volume(name) => format!("volume-{}", name.as_str()),
        Stored::Snapshot(name) => format!("snapshot-{}", name.as_str()),
    }
}

pub(super) fn path(work: &Path, stored: &Stored) -> PathBuf {
    work.join(format!("{}.{ENDING}", key(stored)))
}

/// Writes an intent down. It is on disk afterwards.
pub(super) fn write(work: &Path, intent: &Intent) -> Result<(), VolumeError> {
    let path = path(work, &intent.makes);
    let failed = |source: io::Error| VolumeError::Io { action: "write", path: path.clone(), source };
    let text = serde_json::to_vec(intent).map_err(|error| failed(error.into()))?;
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).map_err(failed)?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(failed)?;
    sync(work)
}

pub(super) fn remove(work: &Path, stored: &Stored) -> Result<(), VolumeError> {
    let path = path(work, stored);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(VolumeError::Io { action: "remove", path, source }),
        Ok(()) => sync(work),
    }
}

/// All that are written down. One that was cut off while it was written is of something that was not begun.
pub(super) fn all(work: &Path) -> Result<Vec<Intent>, VolumeError> {
    let mut found = Vec::new();
    for path in entries(work)? {
        if path.extension().is_some_and(|ending| ending == ENDING) {
            let text = std::fs::read(&path).map_err(|source| VolumeError::Io { action: "read", path, source })?;
            found.extend(serde_json::from_slice::<Intent>(&text).ok());
        }
    }
    Ok(found)
}

/// What is in a directory, in the order of names.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, VolumeError> {
    let failed = |source| VolumeError::Io { action: "read", path: folder.to_owned(), source };
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

/// Brings the names in a directory to disk.
pub(super) fn sync(folder: &Path) -> Result<(), VolumeError> {
    let synced = File::open(folder).and_then(|file| file.sync_all());
    synced.map_err(|source| VolumeError::Io { action: "sync", path: folder.to_owned(), source })
}
