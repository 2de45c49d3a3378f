//! The state: every object as serialized bytes in memory, on disk what a restart needs, and a window of recent changes.
//!
//! ```text
//! verbs --Write--> writer task --batch--> backend (SQLite, or nothing)
//!                     |  after the commit
//!                     +--> histories --> watches
//!                     +--> snapshot  --> gets and lists
//! ```
//!
//! Guarantees:
//! - Writes are applied one after the other; each gets a revision of its own, and revisions only grow.
//! - A write is answered, and seen by anyone, only after its commit. Writes that arrive during a commit share the next.
//! - A snapshot never changes. Whoever holds one reads one moment of everything.
//! - An object that cannot be read does not keep the others from being served, and can be deleted.
//! - It does not grow beyond its quota; what makes it smaller always passes ([`size`]),
//!   on a full disk as well ([`reserve`]).
//! - A history holds every change of its table since [`History::start`], in order; who falls behind it must start anew. It goes
//!   with the definition of its table.

mod draft;
#[cfg(test)]
mod durability;
mod history;
mod reserve;
mod size;
mod sqlite;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) use draft::{Draft, FieldPath};
pub(crate) use history::{Change, Event, Events, History};
pub use size::Size;
pub use sqlite::{OpenError, backup};

/// Where the objects of one resource are: `pods`, `deployments.apps`.
pub(crate) type Table = Arc<str>;

/// Where the definitions of custom resources are.
pub(crate) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// An object's place in its table. Cluster-wide objects have no namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// One version of one object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) revision: u64,
    pub(crate) draft: Draft,
}

impl Object {
    /// The object as a value, with its resourceVersion, without apiVersion and kind.
    pub(crate) fn value(&self) -> Result<Value, serde_json::Error> {
        let mut value = self.draft.value()?;
        value["metadata"]["resourceVersion"] = self.revision.to_string().into();
        Ok(value)
    }
}

/// The objects of one resource, sorted.
pub(crate) type Objects = imbl::OrdMap<Key, Arc<Object>>;

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    /// What all objects have together, as JSON.
    bytes: u64,
    tables: imbl::OrdMap<Table, Objects>,
}

impl Snapshot {
    pub(crate) fn objects(&self, table: &str) -> Objects {
        self.tables.get(table).cloned().unwrap_or_default()
    }

    pub(crate) fn get(&self, table: &str, key: &Key) -> Option<&Arc<Object>> {
        self.tables.get(table)?.get(key)
    }

    /// Whether something new may come into a namespace.
    pub(crate) fn check_namespace(&self, namespace: &str) -> Result<(), WriteError> {
        let found = self.get("namespaces", &Key::new("", namespace)).ok_or(WriteError::NoNamespace)?;
        // The first selectable field of a namespace is its phase.
        if found.draft.field(0) == "Terminating" { Err(WriteError::NamespaceTerminating) } else { Ok(()) }
    }

    /// Whether something new may come into the table of a custom resource. Its definition has the table's name.
    pub(crate) fn check_definition(&self, table: &str, uid: &str) -> Result<(), WriteError> {
        let found = self.get(DEFINITIONS, &Key::new("", table)).and_then(|found| found.draft.life());
        match found.filter(|life| life.uid == uid) {
            None => Err(WriteError::NoDefinition),
            Some(life) if life.deletion_timestamp.is_some() => Err(WriteError::DefinitionTerminating),
            Some(_) => Ok(()),
        }
    }

    /// Puts an object into its place; none takes away what is there.
    #[cfg(test)]
    pub(crate) fn set(&mut self, table: &str, key: Key, object: Option<&Value>) -> Result<(), serde_json::Error> {
        self.revision += 1;
        let objects = self.tables.entry(table.into()).or_default();
        match object {
            Some(object) => {
                let object = Object { revision: self.revision, draft: Draft::new(object, &[])? };
                objects.insert(key, Arc::new(object));
            }
            None => drop(objects.remove(&key)),
        }
        Ok(())
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (&Table, usize)> {
        self.tables.iter().map(|(table, objects)| (table, objects.len()))
    }
}

/// What a write finds, or it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    Absent,
    Revision(u64),
}

/// A change of one object.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) table: Table,
    pub(crate) key: Key,
    pub(crate) expect: Expect,
    /// The new content; none removes the object.
    pub(crate) put: Option<Draft>,
    /// The object's namespace must exist and must not be on its way out.
    pub(crate) in_living_namespace: bool,
    /// The definition of this UID must define the table, and must not be on its way out.
    pub(crate) of_definition: Option<String>,
}

/// Why a write was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("it already exists")]
    Exists,
    #[error("it has changed since it was read")]
    Changed,
    #[error("it was deleted")]
    Gone,
    #[error("its namespace does not exist")]
    NoNamespace,
    #[error("its namespace is being terminated")]
    NamespaceTerminating,
    #[error("its definition does not exist")]
    NoDefinition,
    #[error("its definition is being terminated")]
    DefinitionTerminating,
    #[error("the store is full: {0}")]
    Full(Size),
    /// Nothing was written and the store goes on; a later try may succeed.
    #[error("no space left on the device that holds the store")]
    NoSpace,
    /// The store cannot say what is on disk, and takes no more writes.
    #[error("{0}")]
    Failed(String),
}

/// Where objects are kept across restarts.
#[derive(Clone, Debug)]
pub enum Place {
    /// Nowhere: for tests and simulations.
    Memory,
    /// In a SQLite file in this directory.
    Folder(PathBuf),
}

/// What was on disk. Objects are indexed when the store starts, because only then all resources are known.
pub(crate) struct Loaded {
    revision: u64,
    rows: Vec<Row>,
    backend: writer::Backend,
}

/// An object as it is on disk.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) table: Table,
    pub(crate) key: Key,
    pub(crate) revision: u64,
    pub(crate) text: Bytes,
    /// Whether it is what was written.
    pub(crate) sound: bool,
}

/// Opens what is kept at a place.
///
/// # Errors
/// When it is damaged, in use, newer than this program or cannot be read.
pub(crate) fn open(place: &Place) -> Result<Loaded, OpenError> {
    match place {
        // Clients take revision 0 for "any": the first is 1.
        Place::Memory => Ok(Loaded { revision: 1, rows: Vec::new(), backend: writer::Backend::Memory }),
        Place::Folder(folder) => {
            let (revision, rows, file) = sqlite::open(folder, sqlite::SETTINGS)?.start()?;
            Ok(Loaded { revision, rows, backend: writer::Backend::Sqlite(file) })
        }
    }
}

impl Loaded {
    /// What is sound of a table.
    pub(crate) fn rows(&self, table: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| &*row.table == table && row.sound)
    }
}

/// The running store. Clones share it.
#[derive(Clone)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    writes: mpsc::Sender<Order>,
    failure: watch::Receiver<Option<String>>,
}

struct Shared {
    snapshot: ArcSwap<Snapshot>,
    histories: Mutex<BTreeMap<Table, Arc<History>>>,
    /// Where new histories begin: what was before is not known.
    known_since: AtomicU64,
    /// The most that all objects may have together, in bytes of JSON.
    quota: AtomicU64,
}

/// A quota that nothing reaches.
const UNLIMITED: u64 = u64::MAX;

/// A write and who waits for it.
struct Order {
    write: Write,
    done: oneshot::Sender<Result<Arc<Object>, WriteError>>,
}

/// Bytes of an object. As much as etcd takes, so that what fits here fits there.
pub(crate) const LARGEST_OBJECT: usize = 1_572_864;

/// Writes that wait while a commit runs. More than that and the clients wait in line for a place.
const MOST_WAITING: usize = 1024;

impl Store {
    /// Starts the writer on what was loaded. `fields` tells what of a table's objects can be selected by. An object that
    /// cannot be read is no reason to withhold the others: it is told, and left out wherever objects are shown.
    pub(crate) fn start(loaded: Loaded, fields: impl Fn(&str) -> Arc<[FieldPath]>) -> Self {
        let Loaded { revision, rows, backend } = loaded;
        let mut snapshot = Snapshot { revision, bytes: 0, tables: imbl::OrdMap::new() };
        for Row { table, key, revision, text, sound } in rows {
            let draft = if sound { Draft::from_text(text, &fields(&table)) } else { Draft::damaged(text) };
            if let Some(problem) = draft.problem() {
                let Key { namespace, name } = &key;
                tracing::error!(%table, %namespace, %name, problem, "an object in the store is unreadable; it can only be deleted");
            }
            snapshot.bytes += draft.size();
            let objects = snapshot.tables.entry(table).or_default();
            objects.insert(key, Arc::new(Object { revision, draft }));
        }
        let shared = Arc::new(Shared {
            snapshot: ArcSwap::from_pointee(snapshot),
            histories: Mutex::default(),
            known_since: AtomicU64::new(revision),
            quota: AtomicU64::new(UNLIMITED),
        });
        let (writes, orders) = mpsc::channel(MOST_WAITING);
        let (failed, failure) = watch::channel(None);
        tokio::spawn(writer::run(shared.clone(), backend, orders, failed));
        Self { shared, writes, failure }
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    pub(crate) fn history(&self, table: &Table) -> Arc<History> {
        self.shared.history(table)
    }

    /// From now on the store does not grow beyond so many bytes.
    pub(crate) fn limit(&self, quota: u64) {
        self.shared.quota.store(quota, Ordering::Relaxed);
    }

    pub(crate) fn size(&self) -> Size {
        Size { bytes: self.snapshot().bytes, quota: self.shared.quota() }
    }

    /// Makes a change durable and visible.
    pub(crate) async fn write(&self, write: Write) -> Result<Arc<Object>, WriteError> {
        let (done, answer) = oneshot::channel();
        let stopped = || WriteError::Failed("the store has stopped".to_owned());
        self.writes.send(Order { write, done }).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Resolves when the store has failed for good, with the reason. Whoever runs it must end the process then: what
    /// is on disk is no longer known, and only opening it again tells.
    pub(crate) async fn failed(&self) -> String {
        let mut failure = self.failure.clone();
        // Taken out at once: what guards the value cannot go to another thread.
        let reason = failure.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }
}

impl Store {
    /// Why the store has failed, if it has.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }
}

impl Shared {
    fn quota(&self) -> Option<u64> {
        Some(self.quota.load(Ordering::Relaxed)).filter(|quota| *quota != UNLIMITED)
    }

    fn history(&self, table: &Table) -> Arc<History> {
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        // Every write makes the history of its table: where there is none, nothing has happened since the opening, or since
        // a history was forgotten.
        let new = || Arc::new(History::new(self.known_since.load(Ordering::Relaxed)));
        histories.entry(table.clone()).or_insert_with(new).clone()
    }

    /// Lets histories go, of which the writer has told everything up to this revision. Whoever reads one keeps it.
    fn forget(&self, tables: &[Table], revision: u64) {
        if tables.is_empty() {
            return;
        }
        let mut histories = self.histories.lock().unwrap_or_else(PoisonError::into_inner);
        self.known_since.store(revision, Ordering::Relaxed);
        histories.retain(|table, _| !tables.contains(table));
    }
}
