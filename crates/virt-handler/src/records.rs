//! What is on this node, written down: so that an instance that vanished while virt-handler was down is found and cleaned up.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use manager::cache::Key;
use serde::{Deserialize, Serialize};

use crate::folders::is_plain;

/// An instance that has, or may have, something on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) pod_uid: String,
    /// What its guest has to shut down.
    pub(crate) grace_seconds: u64,
}

impl Record {
    pub(crate) fn key(&self) -> Key {
        Key { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    pub(crate) fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_seconds)
    }
}

/// Why a record could not be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The UID is no name.
    #[error("{0:?} is no UID")]
    Name(String),
    /// The file could not be written or removed.
    #[error("keep {path}")]
    Keep {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// The records of a node, one file each.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    folder: PathBuf,
}

impl Records {
    /// Those in a folder, which is made when it is needed.
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// All that can be read; what cannot was cut off while it was written, before anything was started.
    pub(crate) fn all(&self) -> Vec<Record> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
            .iter()
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .filter_map(|path| read(path))
            .collect()
    }

    /// The record of an instance.
    pub(crate) fn get(&self, uid: &str) -> Option<Record> {
        read(&self.path(uid).ok()?)
    }

    /// Writes a record such that it is there after a crash, or is not there at all.
    pub(crate) fn put(&self, record: &Record) -> Result<(), RecordError> {
        let path = self.path(&record.uid)?;
        if read(&path).as_ref() == Some(record) {
            return Ok(());
        }
        self.write(&path, record).map_err(|source| RecordError::Keep { path, source })
    }

    /// Removes a record, if there is one.
    pub(crate) fn remove(&self, uid: &str) -> Result<(), RecordError> {
        let path = self.path(uid)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|source| RecordError::Keep { path, source }),
        }
    }

    fn write(&self, path: &Path, record: &Record) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let draft = path.with_extension("draft");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        fs::File::open(&self.folder)?.sync_all()
    }

    fn path(&self, uid: &str) -> Result<PathBuf, RecordError> {
        if is_plain(uid) { Ok(self.folder.join(format!("{uid}.json"))) } else { Err(RecordError::Name(uid.to_owned())) }
    }
}

fn read(path: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: &str) -> Record {
        let text = |text: &str| text.to_owned();
        Record { namespace: text("n"), name: text("a"), uid: text(uid), pod_uid: text("p"), grace_seconds: 5 }
    }

    #[test]
    fn a_record_is_there_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().join("records"));
        assert!(records.all().is_empty());
        records.put(&record("b")).unwrap();
        records.put(&record("a")).unwrap();
        records.put(&record("a")).unwrap();
        assert_eq!(Records::new(folder.path().join("records")).all(), [record("a"), record("b")]);
        records.remove("b").unwrap();
        records.remove("b").unwrap();
        assert_eq!((records.get("a"), records.get("b")), (Some(record("a")), None));
    }

    #[test]
    fn what_was_cut_off_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.draft"), "{}").unwrap();
        fs::write(folder.path().join("y.json"), "{\"namesp").unwrap();
        assert!(Records::new(folder.path().to_owned()).all().is_empty());
    }

    #[test]
    fn a_uid_is_no_path() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().to_owned());
        assert!(matches!(records.put(&record("../a")), Err(RecordError::Name(_))));
    }
}
