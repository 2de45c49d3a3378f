//! What is on this node, written down: so that an instance that vanished while virt-handler was down is found and cleaned up. Each
//! launcher has a record of its own; that of the release before had the instance's name alone, and is understood.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manager::cache::Key;
use serde::{Deserialize, Serialize};

use crate::folders::is_plain;
use crate::launchers::LauncherId;

/// A launcher that has, or may have, something on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) pod_uid: String,
    /// The node that it is on.
    #[serde(default)]
    pub(crate) node: String,
    /// What its guest has to shut down.
    pub(crate) grace_seconds: u64,
}

impl Record {
    /// Whose it is.
    pub(crate) fn id(&self) -> LauncherId {
        let key = Key { namespace: self.namespace.clone(), name: self.name.clone() };
        LauncherId { uid: self.uid.clone(), pod: self.pod_uid.clone(), node: self.node.clone(), key }
    }

    pub(crate) fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_seconds)
    }
}

/// Why a record could not be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The UID is no name.
    #[error("{0:?} is not a valid UID")]
    Name(String),
    /// The file could not be written or removed.
    #[error("keep {path}")]
    Keep { path: PathBuf, source: io::Error },
}

/// Records, one file each, or in memory where launchers are simulated. Clones share them.
#[derive(Clone, Debug)]
pub(crate) enum Records {
    /// In a directory.
    Directory {
        /// Which; it is made when it is needed.
        path: PathBuf,
        /// The node that records are of that do not say.
        node: String,
    },
    /// In memory, where all handlers of a simulation keep theirs.
    Memory {
        /// Those of all nodes.
        all: Arc<Mutex<BTreeMap<LauncherId, Record>>>,
        /// The nodes that these are of.
        nodes: Arc<BTreeSet<String>>,
    },
}

impl Records {
    /// Those in a directory, of a node.
    pub(crate) fn new(path: PathBuf, node: &str) -> Self {
        Self::Directory { path, node: node.to_owned() }
    }

    /// All that can be read; what cannot was cut off while it was written, before anything was started.
    pub(crate) fn all(&self) -> Vec<Record> {
        let (path, node) = match self {
            Self::Directory { path, node } => (path, node),
            Self::Memory { all, nodes } => {
                return lock(all).values().filter(|record| nodes.contains(&record.node)).cloned().collect();
            }
        };
        let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let is_record = |path: &&PathBuf| path.extension().is_some_and(|end| end == "json");
        paths.iter().filter(is_record).filter_map(|path| read(path, node)).collect()
    }

    /// The record of a launcher.
    pub(crate) fn get(&self, id: &LauncherId) -> Option<Record> {
        let (path, node) = match self {
            Self::Directory { path, node } => (path, node),
            Self::Memory { all, .. } => return lock(all).get(id).cloned(),
        };
        let ways = [file(path, id), older_file(path, id)];
        ways.into_iter().flatten().find_map(|path| read(&path, node).filter(|record| record.pod_uid == id.pod))
    }

    /// Writes a record such that it is there after a crash, or is not there at all.
    pub(crate) fn put(&self, record: &Record) -> Result<(), RecordError> {
        let id = record.id();
        let directory = match self {
            Self::Directory { path, .. } => path,
            Self::Memory { all, .. } => {
                lock(all).insert(id, record.clone());
                return Ok(());
            }
        };
        let path = file(directory, &id)?;
        if self.get(&id).as_ref() == Some(record) {
            return Ok(());
        }
        write(directory, &path, record).map_err(|source| RecordError::Keep { path, source })
    }

    /// Removes a record, if there is one.
    pub(crate) fn remove(&self, id: &LauncherId) -> Result<(), RecordError> {
        let (directory, node) = match self {
            Self::Directory { path, node } => (path, node),
            Self::Memory { all, .. } => {
                lock(all).remove(id);
                return Ok(());
            }
        };
        let older = older_file(directory, id)?;
        if read(&older, node).is_some_and(|record| record.pod_uid == id.pod) {
            remove(older)?;
        }
        remove(file(directory, id)?)
    }
}

fn lock(all: &Mutex<BTreeMap<LauncherId, Record>>) -> MutexGuard<'_, BTreeMap<LauncherId, Record>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(path: PathBuf) -> Result<(), RecordError> {
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| RecordError::Keep { path, source }),
    }
}

fn write(directory: &Path, path: &Path, record: &Record) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let draft = path.with_extension("draft");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    fs::File::open(directory)?.sync_all()
}

/// By instance and launcher.
fn file(directory: &Path, id: &LauncherId) -> Result<PathBuf, RecordError> {
    let plain = |name: &str| if is_plain(name) { Ok(()) } else { Err(RecordError::Name(name.to_owned())) };
    plain(&id.uid).and_then(|()| plain(&id.pod))?;
    Ok(directory.join(format!("{}_{}.json", id.uid, id.pod)))
}

/// As the release before has named it: by instance alone.
fn older_file(directory: &Path, id: &LauncherId) -> Result<PathBuf, RecordError> {
    if is_plain(&id.uid) {
        Ok(directory.join(format!("{}.json", id.uid)))
    } else {
        Err(RecordError::Name(id.uid.clone()))
    }
}

/// One that does not say its node is of this one.
fn read(path: &Path, node: &str) -> Option<Record> {
    let record: Record = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    let node = if record.node.is_empty() { node.to_owned() } else { record.node };
    Some(Record { node, ..record })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: &str, pod: &str) -> Record {
        let text = |text: &str| text.to_owned();
        let (namespace, name, node) = (text("n"), text("a"), text("node"));
        Record { namespace, name, uid: text(uid), pod_uid: text(pod), node, grace_seconds: 5 }
    }

    #[test]
    fn a_record_is_there_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records");
        let in_memory = Records::Memory { all: Arc::default(), nodes: Arc::new(["node".to_owned()].into()) };
        for records in [Records::new(path.clone(), "node"), in_memory] {
            assert!(records.all().is_empty());
            records.put(&record("b", "p")).unwrap();
            // Two launchers of one instance.
            records.put(&record("a", "q")).unwrap();
            records.put(&record("a", "p")).unwrap();
            records.put(&record("a", "p")).unwrap();
            let again = if matches!(records, Records::Memory { .. }) {
                records.clone()
            } else {
                Records::new(path.clone(), "node")
            };
            assert_eq!(again.all(), [record("a", "p"), record("a", "q"), record("b", "p")]);
            records.remove(&record("a", "p").id()).unwrap();
            records.remove(&record("a", "p").id()).unwrap();
            assert_eq!(records.get(&record("a", "p").id()), None);
            assert_eq!(records.get(&record("a", "q").id()), Some(record("a", "q")));
        }
    }

    /// Two handlers that follow one launcher would both speak for it.
    #[test]
    fn a_handler_finds_no_records_of_other_nodes() {
        let all = Arc::default();
        let of = |node: &str| Records::Memory { all: Arc::clone(&all), nodes: Arc::new([node.to_owned()].into()) };
        of("node").put(&record("a", "p")).unwrap();
        assert_eq!(of("node").all(), [record("a", "p")]);
        assert_eq!(of("another").all(), []);
    }

    #[test]
    fn a_record_of_the_release_before_is_understood() {
        let folder = tempfile::tempdir().unwrap();
        let older = r#"{"namespace":"n","name":"a","uid":"a","podUid":"p","graceSeconds":5}"#;
        fs::write(folder.path().join("a.json"), older).unwrap();
        let records = Records::new(folder.path().to_owned(), "node");
        assert_eq!(records.all(), [record("a", "p")]);
        assert_eq!(records.get(&record("a", "p").id()), Some(record("a", "p")));
        assert_eq!(records.get(&record("a", "q").id()), None);
        records.remove(&record("a", "q").id()).unwrap();
        assert_eq!(records.all().len(), 1, "it is another launcher's");
        // It is not written a second time.
        records.put(&record("a", "p")).unwrap();
        records.remove(&record("a", "p").id()).unwrap();
        assert!(records.all().is_empty());
    }

    #[test]
    fn what_was_cut_off_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.draft"), "{}").unwrap();
        fs::write(folder.path().join("y.json"), "{\"namesp").unwrap();
        assert!(Records::new(folder.path().to_owned(), "node").all().is_empty());
    }

    #[test]
    fn a_uid_is_no_path() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().to_owned(), "node");
        assert!(matches!(records.put(&record("../a", "p")), Err(RecordError::Name(_))));
        assert!(matches!(records.put(&record("a", "../p")), Err(RecordError::Name(_))));
    }
}
