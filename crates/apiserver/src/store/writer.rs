//! The one task that changes anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};

use super::size::is_vital;
use super::sqlite::{CommitError, File};
use super::{
    Change, DEFINITIONS, Draft, Event, Expect, Key, Object, Objects, Order, Shared, Size, Snapshot, Table, Write,
    WriteError,
};

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
        let mut may_grow = backend.may_grow();
        let (batch, committed) = loop {
            let mut batch = Batch::new(&shared, may_grow);
            for Order { write, .. } in &waiting {
                let outcome = batch.stage(write);
                batch.outcomes.push(outcome);
            }
            match backend.commit(&mut batch).await {
                // Once more, without what takes space: deletes get what was reserved.
                Err(CommitError::NoSpace) if backend.give_up_reserve() => may_grow = false,
                committed => break (batch, committed),
            }
        };
        // Even a refusal waits for the commit: it may be due to a write that shares it.
        let waiting = waiting.drain(..).map(|Order { done, .. }| done);
        match committed {
            Ok(()) => batch.publish(&shared, waiting),
            Err(CommitError::NoSpace) => refuse(waiting, &WriteError::NoSpace),
            Err(CommitError::Failed(reason)) => {
                tracing::error!(reason, "the store has failed");
                refuse(waiting, &WriteError::Failed(reason.clone()));
                failed.send_replace(Some(reason));
                return;
            }
        }
    }
}

fn refuse(waiting: impl Iterator<Item = oneshot::Sender<Outcome>>, error: &WriteError) {
    for done in waiting {
        drop(done.send(Err(error.clone())));
    }
}

impl Backend {
    async fn commit(&mut self, batch: &mut Batch) -> Result<(), CommitError> {
        match self {
            _ if batch.rows.is_empty() => Ok(()),
            Self::Memory => Ok(()),
            Self::Sqlite(file) => file.commit(std::mem::take(&mut batch.rows), batch.next.revision).await,
        }
    }

    fn may_grow(&mut self) -> bool {
        match self {
            Self::Memory => true,
            Self::Sqlite(file) => file.reserve.renew(),
        }
    }

    fn give_up_reserve(&mut self) -> bool {
        match self {
            Self::Memory => false,
            Self::Sqlite(file) => file.reserve.give_up(),
        }
    }
}

/// The writes of one commit, applied to a snapshot that nobody sees yet.
struct Batch {
    next: Snapshot,
    quota: Option<u64>,
    /// Whether the disk has space for more than what lets objects go.
    may_grow: bool,
    rows: Vec<Stored>,
    events: BTreeMap<Table, Vec<Event>>,
    /// Of each write, in order.
    outcomes: Vec<Outcome>,
}

impl Batch {
    fn new(shared: &Shared, may_grow: bool) -> Self {
        let next = Snapshot::clone(&shared.snapshot.load());
        Self { next, quota: shared.quota(), may_grow, rows: Vec::new(), events: BTreeMap::new(), outcomes: Vec::new() }
    }

    fn stage(&mut self, write: &Write) -> Outcome {
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
            if !self.may_grow && !is_vital(&write.table, draft) {
                return Err(WriteError::NoSpace);
            }
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
                let object = Arc::new(Object { revision, draft: draft.clone() });
                objects.insert(key.clone(), object.clone());
                (if current.is_some() { Change::Modified } else { Change::Added }, object)
            }
            (None, Some(last)) => {
                objects.remove(key);
                (Change::Deleted, Arc::new(Object { revision, draft: last.draft.clone() }))
            }
            // Nothing was there and nothing shall be: no caller asks for it.
            (None, None) => return Err(WriteError::Gone),
        };
        let draft = (change != Change::Deleted).then(|| object.draft.clone());
        self.rows.push(Stored { table: table.clone(), key: key.clone(), revision, draft });
        let event = Event { change, key: key.clone(), object: object.clone(), previous: current };
        self.events.entry(table.clone()).or_default().push(event);
        Ok(object)
    }

    /// Histories first: whoever sees the new revision must find all changes up to it there. Readers of histories in
    /// turn go no further than the snapshot, so that nobody hears of an object that a get does not find.
    fn publish(mut self, shared: &Shared, waiting: impl Iterator<Item = oneshot::Sender<Outcome>>) {
        let gone = self.undefined();
        for table in &gone {
            self.next.tables.remove(table);
        }
        let revision = self.next.revision;
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
        shared.forget(&gone, revision);
        for (done, outcome) in waiting.zip(self.outcomes) {
            // The client may have gone; then nobody needs the answer.
            drop(done.send(outcome));
        }
    }

    /// Empty tables whose definition is gone: nothing is left to be told of them. A definition has the name of its table.
    fn undefined(&self) -> Vec<Table> {
        let events = self.events.get(DEFINITIONS).into_iter().flatten();
        let gone = events.filter(|event| event.change == Change::Deleted).map(|event| &event.key);
        let gone = gone.filter(|key| self.next.get(DEFINITIONS, key).is_none());
        let empty = |name: &str| self.next.tables.get(name).is_none_or(Objects::is_empty);
        gone.filter(|key| empty(&key.name)).map(|key| Table::from(&*key.name)).collect()
    }
}
