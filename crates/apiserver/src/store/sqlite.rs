//! The file. It holds the current state and the revision, no history: there is nothing to compact.
//!
//! A commit is one SQLite transaction (WAL, synchronous=FULL: one fsync). SQLite itself recovers from a torn write; each
//! row carries a checksum, because SQLite does not notice a flipped bit inside a value. Such a row costs its own object: it
//! is told, and can only be deleted.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};
use tokio::sync::oneshot;

use super::reserve::Reserve;
use super::writer::Stored;
use super::{Key, Row, Table};
use crate::directories;

/// Written into every file; a file with a higher one is refused.
const FORMAT: i64 = 1;
/// Marks a SQLite file as a store of this program: the bytes of "orlp".
const APPLICATION: i64 = 0x6f72_6c70;
const NAME: &str = "objects.sqlite";

const SCHEMA: &str = "
    CREATE TABLE objects (
        resource  TEXT NOT NULL,
        namespace TEXT NOT NULL,
        name      TEXT NOT NULL,
        revision  INTEGER NOT NULL,
        checksum  INTEGER NOT NULL,
        content   TEXT NOT NULL,
        UNIQUE (resource, namespace, name)
    );
    CREATE TABLE latest (revision INTEGER NOT NULL);
    INSERT INTO latest VALUES (1);
";

/// How the connection that commits keeps its word. FULL, because NORMAL would answer before the fsync.
pub(super) const SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -1024;
                                   PRAGMA journal_size_limit = 16777216;";

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process works on it.
    #[error("the store in {folder} is in use by process {pid}")]
    InUse {
        /// The data directory.
        folder: PathBuf,
        /// Who uses it.
        pid: String,
    },
    /// It was written by a later version.
    #[error(
        "{file} has format {found}, but this version of Orlop only reads formats up to {FORMAT}; use the newer version that wrote it"
    )]
    Newer {
        file: PathBuf,
        /// Its format.
        found: i64,
    },
    /// A SQLite file of someone else, or no SQLite file at all.
    #[error("{0} is not an Orlop store")]
    Foreign(PathBuf),
    /// The file is damaged.
    #[error("{file} is damaged ({problem}); replace it by a backup")]
    Damaged {
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The key that signs tokens cannot be read or made.
    #[error("prepare the key that signs tokens")]
    TokenKey(#[source] crate::authority::TokenKeyError),
    /// An object that every cluster has cannot be written.
    #[error("the {table} {name:?} cannot be written as JSON")]
    Object {
        /// Its resource.
        table: String,
        name: String,
        source: serde_json::Error,
    },
    /// The directory or a file in it cannot be used.
    #[error("{what} {path}")]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    /// What every cluster has could not be written.
    #[error("the store accepts no writes: {0}")]
    Write(String),
    /// SQLite cannot use the file.
    #[error("open {file}")]
    Sqlite { file: PathBuf, source: rusqlite::Error },
}

/// Why a commit was not made.
#[derive(Debug)]
pub(super) enum CommitError {
    /// The disk is full. It was rolled back; the file is as before.
    NoSpace,
    /// Nobody knows what is on disk.
    Failed(String),
}

/// The open file, worked on by a thread of its own.
pub(super) struct File {
    commits: mpsc::Sender<Commit>,
    pub(super) reserve: Reserve,
    /// Held for as long as the file is open.
    _lock: fs::File,
}

struct Commit {
    rows: Vec<Stored>,
    revision: u64,
    done: oneshot::Sender<Result<(), CommitError>>,
}

/// A store that was checked and read; nobody writes yet.
pub(super) struct Opened {
    pub(super) revision: u64,
    pub(super) rows: Vec<Row>,
    pub(super) connection: Connection,
    file: PathBuf,
    lock: fs::File,
}

/// Opens or makes the store in a directory, checks it, and reads all of it.
pub(super) fn open(folder: &Path, settings: &str) -> Result<Opened, OpenError> {
    let failed = |what: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::File { what, path, source }
    };
    directories::make_directory(folder).map_err(failed("create the directory", folder))?;
    let lock = lock(folder)?;
    let file = folder.join(NAME);
    // SQLite would make the file readable to everyone, and its WAL takes the file's mode.
    let made = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&file);
    drop(made.map_err(failed("open", &file))?);
    directories::sync_above(&file).map_err(failed("sync the directory of", &file))?;
    let connection = connect(&file, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(|error| opening(&file, error))?;
    prepare(&connection, &file, settings)?;
    let (revision, rows) = load(&connection, &file)?;
    mend_index(&connection, &rows).map_err(|error| opening(&file, error))?;
    Ok(Opened { revision, rows, connection, file, lock })
}

impl Opened {
    /// Starts the thread that commits.
    pub(super) fn start(self) -> Result<(u64, Vec<Row>, File), OpenError> {
        let Self { revision, rows, connection, file: path, lock } = self;
        let reserve = Reserve::take(path.parent().unwrap_or(&path));
        let (commits, orders) = mpsc::channel();
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || work(connection, &orders))
            .map_err(|source| OpenError::File { what: "start a thread for", path, source })?;
        Ok((revision, rows, File { commits, reserve, _lock: lock }))
    }
}

/// Copies the store in a directory into a new file, while it is in use or not.
///
/// # Errors
/// When there is no store, or the copy cannot be written.
pub fn backup(folder: &Path, to: &Path) -> Result<(), OpenError> {
    let file = folder.join(NAME);
    let made = fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(to);
    drop(made.map_err(|source| OpenError::File { what: "make", path: to.to_owned(), source })?);
    let copied = connect(&file, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .and_then(|connection| connection.backup("main", to, None::<fn(rusqlite::backup::Progress)>))
        .map_err(|error| opening(&file, error));
    if copied.is_err() {
        // What is there is no backup; the error that counts is the first.
        drop(fs::remove_file(to));
    }
    copied
}

/// One process at a time: the lock goes when the process does, however it ends.
fn lock(folder: &Path) -> Result<fs::File, OpenError> {
    let path = folder.join("lock");
    let failed = |source| OpenError::File { what: "lock", path: path.clone(), source };
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .read(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        let pid = fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
        return Err(OpenError::InUse { folder: folder.to_owned(), pid });
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(file)
}

fn connect(file: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // A backup reads beside the writer; nobody holds a lock for longer than that.
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    Ok(connection)
}

fn prepare(connection: &Connection, file: &Path, settings: &str) -> Result<(), OpenError> {
    let number = |pragma: &str| {
        connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map_err(|error| opening(file, error))
    };
    let (application, format) = (number("application_id")?, number("user_version")?);
    let empty = number("schema_version")? == 0;
    if application != APPLICATION && !empty {
        return Err(OpenError::Foreign(file.to_owned()));
    }
    if format > FORMAT {
        return Err(OpenError::Newer { file: file.to_owned(), found: format });
    }
    connection.execute_batch(settings).map_err(|error| opening(file, error))?;
    if empty {
        let marks = format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT};");
        let all = format!("BEGIN; {SCHEMA} {marks} COMMIT;");
        connection.execute_batch(&all).map_err(|error| opening(file, error))?;
    }
    let checked: String =
        connection.query_row("PRAGMA quick_check(3)", [], |row| row.get(0)).map_err(|error| opening(file, error))?;
    if checked != "ok" {
        return Err(OpenError::Damaged { file: file.to_owned(), problem: checked });
    }
    Ok(())
}

/// All objects. One whose bytes have changed since they were written is told from the others, and one whose place is not
/// even text is left out: nobody could ask for it.
fn load(connection: &Connection, file: &Path) -> Result<(u64, Vec<Row>), OpenError> {
    let read = || -> rusqlite::Result<_> {
        let mut latest =
            connection.query_row("SELECT revision FROM latest", [], |row| row.get::<_, i64>(0))?.unsigned_abs();
        let mut statement =
            connection.prepare("SELECT resource, namespace, name, revision, checksum, content FROM objects")?;
        let mut rows = Vec::new();
        let mut found = statement.query([])?;
        let mut table: Table = "".into();
        while let Some(row) = found.next()? {
            let [resource, namespace, name] = [0, 1, 2].map(|column| row.get_ref(column).ok()?.as_str().ok());
            let (Some(resource), Some(namespace), Some(name)) = (resource, namespace, name) else {
                tracing::error!(?resource, ?namespace, ?name, "skipped a damaged object in the store");
                continue;
            };
            if &*table != resource {
                table = resource.into();
            }
            let key = Key::new(namespace, name);
            let text = Bytes::copy_from_slice(row.get_ref(5)?.as_bytes().unwrap_or_default());
            let revision = row.get::<_, i64>(3).unwrap_or_default().unsigned_abs();
            let sound = row.get::<_, i64>(4).is_ok_and(|sum| sum == i64::from(checksum(&table, &key, revision, &text)));
            if sound {
                latest = latest.max(revision);
            }
            rows.push(Row { table: table.clone(), key, revision, text, sound });
        }
        // A revision that was never given may be one that is given later.
        rows.iter_mut().filter(|row| !row.sound).for_each(|row| row.revision = row.revision.clamp(1, latest));
        Ok((latest, rows))
    };
    read().map_err(|error| opening(file, error))
}

/// Objects are found by an index, whose bytes have no checksum. Where it does not match the objects, it is rebuilt:
/// what is written would else go to another's place, and what is deleted would stay.
fn mend_index(connection: &Connection, rows: &[Row]) -> rusqlite::Result<()> {
    let mut places: Vec<[&str; 3]> =
        rows.iter().map(|Row { table, key, .. }| [&**table, &*key.namespace, &*key.name]).collect();
    places.sort_unstable();
    if is_indexed(connection, &places)? {
        return Ok(());
    }
    tracing::error!("the index of the store is damaged; rebuilding it");
    if let Err(error) = connection.execute_batch("REINDEX objects") {
        tracing::error!(%error, "cannot rebuild the index of the store");
    }
    Ok(())
}

/// Whether the index has these places, which are sorted, and no others. What is no text was left out of both.
fn is_indexed(connection: &Connection, places: &[[&str; 3]]) -> rusqlite::Result<bool> {
    let by_index = "SELECT resource, namespace, name FROM objects ORDER BY resource, namespace, name";
    let mut statement = connection.prepare(by_index)?;
    let mut found = statement.query([])?;
    let mut expected = places.iter();
    while let Some(row) = found.next()? {
        let [resource, namespace, name] = [0, 1, 2].map(|column| row.get_ref(column).ok()?.as_str().ok());
        let place = resource.zip(namespace).zip(name).map(|((resource, namespace), name)| [resource, namespace, name]);
        if place.is_some_and(|place| expected.next() != Some(&place)) {
            return Ok(false);
        }
    }
    Ok(expected.next().is_none())
}

fn checksum(table: &str, key: &Key, revision: u64, text: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in [table.as_bytes(), key.namespace.as_bytes(), key.name.as_bytes(), &revision.to_le_bytes(), text] {
        hasher.update(part);
        hasher.update(&[0]);
    }
    hasher.finalize()
}

fn opening(file: &Path, error: rusqlite::Error) -> OpenError {
    let file = file.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged { file, problem: error.to_string() },
        Some(ErrorCode::NotADatabase) => OpenError::Foreign(file),
        _ => OpenError::Sqlite { file, source: error },
    }
}

impl File {
    pub(super) async fn commit(&mut self, rows: Vec<Stored>, revision: u64) -> Result<(), CommitError> {
        let ended = || CommitError::Failed("the thread that writes the store has ended".to_owned());
        let (done, answer) = oneshot::channel();
        self.commits.send(Commit { rows, revision, done }).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}

/// The thread's work: commits, one after the other.
fn work(mut connection: Connection, orders: &mpsc::Receiver<Commit>) {
    while let Ok(Commit { rows, revision, done }) = orders.recv() {
        let result = write(&mut connection, &rows, revision).map_err(|error| refusal(&connection, &error));
        // The writer waits for the answer, unless the whole runtime is going down.
        drop(done.send(result));
    }
}

fn write(connection: &mut Connection, rows: &[Stored], revision: u64) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut put = transaction.prepare_cached(
            "INSERT INTO objects VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE
             SET revision = excluded.revision, checksum = excluded.checksum, content = excluded.content",
        )?;
        let mut remove =
            transaction.prepare_cached("DELETE FROM objects WHERE resource = ?1 AND namespace = ?2 AND name = ?3")?;
        for Stored { table, key, revision, draft } in rows {
            let Key { namespace, name } = key;
            match draft {
                None => remove.execute(params![&**table, &**namespace, &**name])?,
                Some(draft) => {
                    let text = draft.text();
                    let sum = checksum(table, key, *revision, text);
                    // JSON is text: SQLite stores the bytes as they are.
                    let content = std::str::from_utf8(text).unwrap_or_default();
                    put.execute(params![&**table, &**namespace, &**name, revision.cast_signed(), sum, content])?
                }
            };
        }
        transaction.prepare_cached("UPDATE latest SET revision = ?1")?.execute([revision.cast_signed()])?;
    }
    transaction.commit()
}

/// A full disk is found before anything was promised, and the transaction is gone. After any other failure (above all
/// of fsync, which may have dropped what it could not write) only a restart tells what is there.
fn refusal(connection: &Connection, error: &rusqlite::Error) -> CommitError {
    let full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
    if full && connection.is_autocommit() { CommitError::NoSpace } else { CommitError::Failed(error.to_string()) }
}
