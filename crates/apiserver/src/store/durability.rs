//! What was answered survives a power cut, wherever it cuts.
//!
//! A run of the real store is recorded beneath SQLite, operation by operation. Then, for every operation, the disk is
//! rebuilt as a power cut right after it may leave it ([`disk`] says how bad that can be), and opened.
//!
//! Guarantees, after every cut:
//! - The store opens.
//! - It holds exactly what some commit left, every write of that commit included.
//! - No commit that was answered is missing, so that revisions never go back.
//!
//! The same check must find fault with a store that syncs less, and with disks that do not do what a sync asks of them.

mod disk;
mod vfs;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use rand::distr::{Alphanumeric, SampleString as _};
use rand::rngs::StdRng;
use rand::seq::IteratorRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;

use super::sqlite::{self, SETTINGS};
use super::writer::Backend;
use super::{Draft, Expect, Key, Loaded, Store, Table, Write};
use disk::{Disk, Image, Luck, Operation};
use vfs::Recording;

/// How often the store is closed and opened again, and its commits in between.
const SESSIONS: usize = 2;
const COMMITS: usize = 25;
const MOST_WRITES: usize = 4;
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
const LARGEST: usize = 12_000;
/// In pages and in bytes: the log starts over every few commits, and is cut off when it does.
const SMALL_LOG: &str = "PRAGMA wal_autocheckpoint = 24; PRAGMA journal_size_limit = 65536;";

const DATABASE: &str = "objects.sqlite";
const LOG: &str = "objects.sqlite-wal";

/// What the store holds after a commit.
#[derive(Clone, Default, PartialEq)]
struct State {
    revision: u64,
    objects: BTreeMap<(Table, Key), (u64, Bytes)>,
}

struct Run {
    operations: Vec<Operation>,
    /// Before the first commit, and after each.
    states: Vec<State>,
    /// How many operations there were when each commit was answered.
    answered: Vec<usize>,
}

/// Why a store is not durable.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("it does not open")]
    Closed(#[source] sqlite::OpenError),
    #[error("it has revision {revision}, and no commit left what it holds")]
    Mixed { revision: u64 },
    #[error("commit {answered} was answered, and the last there is {found}")]
    Lost { answered: usize, found: usize },
}

/// Where a fault showed.
#[derive(Debug)]
#[expect(dead_code, reason = "whoever reads a failed test wants to know")]
struct Found {
    after: usize,
    luck: &'static str,
    seed: u64,
    fault: Fault,
}

#[test]
fn what_was_answered_survives_a_power_cut_after_any_operation() {
    let run = Run::with(SETTINGS);
    let chances = testkit::soak::rounds(3);
    check(&run, &run.operations, chances).unwrap();
}

/// Else the test above would show less than it says.
#[test]
fn a_run_has_checkpoints_and_a_log_that_starts_over_is_cut_off_and_deleted() {
    let operations = Run::with(SETTINGS).operations;
    let count = |of: fn(&Operation) -> bool| operations.iter().filter(|operation| of(operation)).count();
    assert!(count(|operation| matches!(operation, Operation::Sync { name, .. } if name == DATABASE)) > 4);
    assert!(count(|operation| matches!(operation, Operation::Write { name, offset: 0, .. } if name == LOG)) > 4);
    assert!(count(|operation| matches!(operation, Operation::Truncate { name, .. } if name == LOG)) > 0);
    assert_eq!(count(|operation| matches!(operation, Operation::Delete { name, .. } if name == LOG)), SESSIONS);
}

#[test]
fn a_store_that_syncs_less_is_found_out() {
    for less in ["OFF", "NORMAL"] {
        let run = Run::with(&format!("{SETTINGS} PRAGMA synchronous = {less};"));
        let found = check(&run, &run.operations, 0).unwrap_err();
        assert!(matches!(found.fault, Fault::Lost { .. }), "{less}: {found:?}");
    }
}

#[test]
fn a_disk_that_does_not_sync_is_found_out() {
    let run = Run::with(SETTINGS);
    let without = |ignored: fn(&Operation) -> bool| {
        let mut operations = run.operations.clone();
        for operation in operations.iter_mut().filter(|operation| ignored(operation)) {
            // Nothing in its place, so that answers stay where they were.
            *operation = Operation::Open { name: DATABASE.to_owned() };
        }
        check(&run, &operations, 0).err().map(|found| found.fault)
    };
    let all = without(|operation| matches!(operation, Operation::Sync { .. }));
    assert!(matches!(all, Some(Fault::Lost { .. })), "{all:?}");
    let log = without(|operation| matches!(operation, Operation::Sync { name, .. } if name == LOG));
    assert!(matches!(log, Some(Fault::Lost { .. })), "{log:?}");
    let folder = without(|operation| matches!(operation, Operation::Sync { folder: true, .. }));
    assert!(matches!(folder, Some(Fault::Lost { .. })), "{folder:?}");
    // A log that starts over forgets what only it had.
    let database = without(|operation| matches!(operation, Operation::Sync { name, .. } if name == DATABASE));
    assert!(database.is_some());
}

#[test]
fn half_a_commit_is_found_out() {
    let mut run = Run::with(SETTINGS);
    // As if the first two were one.
    run.states.remove(1);
    run.answered.remove(0);
    let found = check(&run, &run.operations, 0).unwrap_err();
    assert!(matches!(found.fault, Fault::Mixed { .. }), "{found:?}");
}

#[test]
fn the_connection_that_commits_waits_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let connection = sqlite::open(folder.path(), SETTINGS).unwrap().connection;
    let text = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, String>(0)).unwrap();
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(text("journal_mode"), "wal");
    assert_eq!(number("synchronous"), 2, "FULL");
}

impl Run {
    fn with(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let recording = Recording::of(folder.path());
        let mut chance = StdRng::seed_from_u64(1);
        // A new store has revision 1.
        let mut run = Self {
            operations: Vec::new(),
            states: vec![State { revision: 1, ..State::default() }],
            answered: Vec::new(),
        };
        for _ in 0..SESSIONS {
            // On one thread, so that writes that are sent at once share a commit. The writer ends with its runtime.
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(run.session(folder.path(), &format!("{settings} {SMALL_LOG}"), &recording, &mut chance));
            drop(runtime);
            recording.wait_until_all_is_closed();
        }
        run.operations = recording.end();
        run
    }

    async fn session(&mut self, folder: &Path, settings: &str, recording: &Recording, chance: &mut StdRng) {
        let (revision, rows, file) = sqlite::open(folder, settings).unwrap().start().unwrap();
        let store = Store::start(Loaded { revision, rows, backend: Backend::Sqlite(file) }, |_| Arc::default());
        for _ in 0..COMMITS {
            let mut state = self.states.last().cloned().unwrap_or_default();
            let count = chance.random_range(1..=MOST_WRITES);
            let chosen = NAMES.iter().sample(chance, count);
            let writes = chosen.into_iter().map(|name| some_write(name, &state, chance)).collect::<Vec<_>>();
            let places = writes.iter().map(|write| ((write.table.clone(), write.key.clone()), write.put.is_some()));
            let places = places.collect::<Vec<_>>();
            let answers = join_all(writes.into_iter().map(|write| store.write(write))).await;
            self.answered.push(recording.length());
            for ((place, is_there), answer) in places.into_iter().zip(answers) {
                let object = answer.unwrap();
                state.revision = object.revision;
                if is_there {
                    state.objects.insert(place, (object.revision, object.draft.text().clone()));
                } else {
                    state.objects.remove(&place);
                }
            }
            self.states.push(state);
        }
    }
}

/// Makes what is not there; changes or deletes what is.
fn some_write(name: &str, state: &State, chance: &mut StdRng) -> Write {
    let (table, key) = (Table::from("configmaps"), Key::new("default", name));
    let found = state.objects.get(&(table.clone(), key.clone()));
    let expect = found.map_or(Expect::Absent, |(revision, _)| Expect::Revision(*revision));
    let is_deleted = found.is_some() && chance.random_ratio(1, 4);
    let size = chance.random_range(0..LARGEST);
    // No two sectors alike: an old one must not pass for a new one.
    let object = json!({ "metadata": { "name": name }, "data": { "x": Alphanumeric.sample_string(chance, size) } });
    let put = (!is_deleted).then(|| Draft::new(&object, &[]).unwrap());
    Write { table, key, expect, put, in_living_namespace: false, of_definition: None }
}

/// Cuts after every operation, and looks what is left: of what was synced, of all that was done, and `chances` times of
/// something in between.
fn check(run: &Run, operations: &[Operation], chances: usize) -> Result<(), Found> {
    let seed = testkit::soak::seed("ORLOP_DISK_SEED");
    let mut chance = StdRng::seed_from_u64(seed);
    let mut disk = Disk::default();
    // Most operations change nothing of what is synced: it need not be opened again.
    let mut last: BTreeMap<&str, (Image, usize)> = BTreeMap::new();
    for (index, operation) in operations.iter().enumerate() {
        disk.apply(operation.clone());
        let after = index + 1;
        let answered = run.answered.partition_point(|at| *at <= after);
        let some = (0..chances).map(|_| ("some", Luck::Some(Box::new(chance.fork()))));
        for (luck, mut reached) in [("none", Luck::None), ("all", Luck::All)].into_iter().chain(some) {
            let image = disk.after_power_cut(&mut reached);
            let found = match last.remove(luck) {
                Some((same, found)) if same == image => Ok(found),
                _ => run.found_in(&image),
            };
            let found = match found {
                Ok(found) if found < answered => Err(Fault::Lost { answered, found }),
                other => other,
            };
            let found = found.map_err(|fault| Found { after, luck, seed, fault })?;
            last.insert(luck, (image, found));
        }
    }
    Ok(())
}

impl Run {
    /// Opens the store that a power cut left, and tells which commit was its last.
    fn found_in(&self, image: &Image) -> Result<usize, Fault> {
        // There are thousands of them, and on a disk each takes milliseconds to remove.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for (name, content) in image {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
        let opened = sqlite::open(folder.path(), SETTINGS).map_err(Fault::Closed)?;
        let objects = opened.rows.into_iter().map(|row| ((row.table, row.key), (row.revision, row.text)));
        let state = State { revision: opened.revision, objects: objects.collect() };
        let found = self.states.iter().position(|left| *left == state);
        found.ok_or(Fault::Mixed { revision: state.revision })
    }
}
