//! The one task that changes anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::sqlite::{CommitError, File};
use super::{Change, Draft, Event, Expect, Key, Object, Order, Shared, Size, Snapshot, Table, Write, WriteError};

/// Writes in one commit, at most: whoever is first in it waits for the last.
const MOST_AT_ONCE: usize = 256;

pub(super) enum Backend {
    Memory,
    Sqlite(File),
}

/// A change on its way to disk.
pub(super) struct Stored {
    pub(super) table: Table,
    pub(super) key: Key,
    pub(super) revision: u64,
    /// None removes it.
    pub(super) draft: Option<Draft>,
}

type Outcome = Result<Arc<Object>, WriteError>;

/// Takes orders until nobody can give any more, or until the backend fails for good.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut backend: Backend,
    mut orders: mpsc::Receiver<Order>,
    failed: watch::Sender<Option<String>>,
) {
    let mut waiting = Vec::with_capacity(MOST_AT_ONCE);
    while orders.recv_many(&mut waiting, MOST_AT_ONCE).await > 0 {
        let mut batch = Batch::new(&shared);
        for Order { write, done } in waiting.drain(..) {
            let outcome = batch.stage(write);
            // Even a refusal waits for the commit: it may be due to a write that shares it.
            batch.answers.push((done, outcome));
        }
        let committed = match &mut backend {
            _ if batch.rows.is_empty() => Ok(()),
            Backend::Memory => Ok(()),
            Backend::Sqlite(file) => file.commit(std::mem::take(&mut batch.rows), batch.next.revision).await,
        };
        match committed {
            Ok(()) => batch.publish(&shared),
            Err(CommitError::Refused(reason)) => batch.refuse(&WriteError::Refused(reason)),
            Err(CommitError::Failed(reason)) => {
                tracing::error!(reason, "the store failed");
                batch.refuse(&WriteError::Failed(reason.clone()));
                failed.send_replace(Some(reason));
                return;
            }
        }
    }
}

/// The writes of one commit, applied to a snapshot that nobody sees yet.
struct Batch {
    next: Snapshot,
    quota: Option<u64>,
    rows: Vec<Stored>,
    events: BTreeMap<Table, Vec<Event>>,
    answers: Vec<(oneshot::Sender<Outcome>, Outcome)>,
}

impl Batch {
    fn new(shared: &Shared) -> Self {
        let next = Snapshot::clone(&shared.snapshot.load());
        Self { next, quota: shared.quota(), rows: Vec::new(), events: BTreeMap::new(), answers: Vec::new() }
    }

    fn stage(&mut self, write: Write) -> Outcome {
        if let Some(uid) = &write.of_definition {
            self.next.check_definition(&write.table, uid)?;
        }
        let current = self.next.get(&write.table, &write.key).cloned();
        match (write.expect, &current) {
            (Expect::Absent, Some(_)) => return Err(WriteError::Exists),
            (Expect::Revision(_), None) => return Err(WriteError::Gone),
            (Expect::Revision(seen), Some(object)) if object.revision != seen => return Err(WriteError::Changed),
            _ => {}
        }
        if write.in_living_namespace {
            self.next.check_namespace(&write.key.namespace)?;
        }
        let before = current.as_ref().map_or(0, |object| object.draft.size());
        let after = write.put.as_ref().map_or(0, Draft::size);
        if let Some(draft) = write.put.as_ref().filter(|_| after > before) {
            let size = Size { bytes: self.next.bytes, quota: self.quota };
            size.check(&write.table, draft, after - before)?;
        }
        self.next.bytes = self.next.bytes - before + after;
        self.next.revision += 1;
        let revision = self.next.revision;
        let Write { table, key, put, .. } = write;
        let objects = self.next.tables.entry(table.clone()).or_default();
        let (change, object) = match (put, &current) {
            (Some(draft), _) => {
                let object = Arc::new(Object { revision, draft });
                objects.insert(key.clone(), object.clone());
                (if current.is_some() { Change::Modified } else { Change::Added }, object)
            }
            (None, Some(last)) => {
                objects.remove(&key);
                (Change::Deleted, Arc::new(Object { revision, draft: last.draft.clone() }))
            }
            // Nothing was there and nothing shall be: no caller asks for it.
            (None, None) => return Err(WriteError::Gone),
        };
        let draft = (change != Change::Deleted).then(|| object.draft.clone());
        self.rows.push(Stored { table: table.clone(), key: key.clone(), revision, draft });
        let event = Event { change, key, object: object.clone(), previous: current };
        self.events.entry(table).or_default().push(event);
        Ok(object)
    }

    /// Histories first: whoever sees the new revision must find all changes up to it there. Readers of histories in
    /// turn go no further than the snapshot, so that nobody hears of an object that a get does not find.
    fn publish(self, shared: &Shared) {
        let mut changed = Vec::new();
        for (table, events) in self.events {
            let history = shared.history(&table);
            history.append(events);
            changed.push(history);
        }
        shared.snapshot.store(Arc::new(self.next));
        for history in changed {
            history.wake();
        }
        for (done, outcome) in self.answers {
            // The client may have gone; then nobody needs the answer.
            drop(done.send(outcome));
        }
    }

    fn refuse(self, error: &WriteError) {
        for (done, _) in self.answers {
            drop(done.send(Err(error.clone())));
        }
    }
}
