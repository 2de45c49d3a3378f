//! Records, in order, what SQLite does to the files of a directory. It stands between SQLite and the system, as the default
//! VFS of this process from the first recording on.
//!
//! Everything is left to SQLite's own VFS for Unix but what is noted, and syncs: nobody pulls a plug here, and a true
//! fsync takes its time.
#![expect(unsafe_code, reason = "SQLite speaks with its VFS in C")]

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rusqlite::ffi;

use super::disk::Operation;

static NOTES: Mutex<Notes> = Mutex::new(Notes { folders: BTreeMap::new(), files: BTreeMap::new() });
static CLOSED: Condvar = Condvar::new();

struct Notes {
    folders: BTreeMap<PathBuf, Vec<Operation>>,
    /// Open files of these directories, by the address that SQLite has them at.
    files: BTreeMap<usize, File>,
}

struct File {
    folder: PathBuf,
    name: String,
    /// SQLite's own VFS syncs the directory as well when it syncs a new log for the first time.
    is_new_log: bool,
}

/// The recording of one directory.
pub(super) struct Recording(PathBuf);

impl Recording {
    pub(super) fn of(folder: &Path) -> Self {
        static INSTALLED: OnceLock<()> = OnceLock::new();
        INSTALLED.get_or_init(install);
        // As SQLite names it.
        let folder = folder.canonicalize().unwrap();
        notes().folders.insert(folder.clone(), Vec::new());
        Self(folder)
    }

    /// How many operations there were so far.
    pub(super) fn length(&self) -> usize {
        notes().folders[&self.0].len()
    }

    pub(super) fn wait_until_all_is_closed(&self) {
        let is_open = |notes: &mut Notes| notes.files.values().any(|file| file.folder == self.0);
        drop(CLOSED.wait_while(notes(), is_open).unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn end(self) -> Vec<Operation> {
        notes().folders.remove(&self.0).unwrap_or_default()
    }
}

fn notes() -> MutexGuard<'static, Notes> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Notes {
    fn note(&mut self, path: &Path, operation: impl FnOnce(String) -> Operation) {
        if let Some(operations) = path.parent().and_then(|folder| self.folders.get_mut(folder)) {
            operations.push(operation(name(path)));
        }
    }

    fn note_of(&mut self, file: *mut ffi::sqlite3_file, operation: impl FnOnce(String) -> Operation) {
        if let Some(File { folder, name, .. }) = self.files.get(&file.addr()) {
            let path = folder.join(name);
            self.note(&path, operation);
        }
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

static OWN_OPEN: OnceLock<Open> = OnceLock::new();
static OWN_DELETE: OnceLock<Delete> = OnceLock::new();

type Open = unsafe extern "C" fn(
    *mut ffi::sqlite3_vfs,
    ffi::sqlite3_filename,
    *mut ffi::sqlite3_file,
    c_int,
    *mut c_int,
) -> c_int;
type Delete = unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *const c_char, c_int) -> c_int;

/// What SQLite calls for a file. It knows the first field alone.
#[repr(C)]
struct Methods {
    _ours: ffi::sqlite3_io_methods,
    own: &'static ffi::sqlite3_io_methods,
}

impl Methods {
    /// The VFS has one table for databases and one for logs.
    fn over(own: &'static ffi::sqlite3_io_methods) -> &'static Self {
        static ALL: Mutex<BTreeMap<usize, &'static Methods>> = Mutex::new(BTreeMap::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(std::ptr::from_ref(own).addr()).or_insert_with(|| {
            let ours = ffi::sqlite3_io_methods {
                xClose: Some(close),
                xWrite: Some(write),
                xTruncate: Some(truncate),
                xSync: Some(sync),
                ..*own
            };
            Box::leak(Box::new(Self { _ours: ours, own }))
        })
    }

    /// # Safety
    /// The file was opened by [`open`].
    unsafe fn own_of(file: *mut ffi::sqlite3_file) -> &'static ffi::sqlite3_io_methods {
        // SAFETY: then its table is the first field of one of these, and they stay.
        unsafe { (*(*file).pMethods.cast::<Self>()).own }
    }
}

fn install() {
    // SAFETY: null asks for the default VFS, which is there for as long as the process.
    let mut vfs = unsafe { *ffi::sqlite3_vfs_find(std::ptr::null()) };
    OWN_OPEN.set(vfs.xOpen.unwrap()).unwrap();
    OWN_DELETE.set(vfs.xDelete.unwrap()).unwrap();
    vfs.pNext = std::ptr::null_mut();
    vfs.zName = c"recording".as_ptr();
    vfs.xOpen = Some(open);
    vfs.xDelete = Some(delete);
    // SAFETY: it is never freed and never changed but by SQLite. A copy of the default VFS does what that does: all it
    // needs is copied with it.
    let code = unsafe { ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 1) };
    assert_eq!(code, ffi::SQLITE_OK);
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    path: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    granted: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's arguments go on as they came.
    let code = unsafe { OWN_OPEN.wait()(vfs, path, file, flags, granted) };
    // What has no name is temporary, and gone after a power cut.
    if code != ffi::SQLITE_OK || path.is_null() {
        return code;
    }
    // SAFETY: the VFS has given the file its table, which is a constant; in ours all is the same but what is noted.
    unsafe { (*file).pMethods = std::ptr::from_ref(Methods::over(&*(*file).pMethods)).cast() };
    // SAFETY: SQLite passes a text that ends with a zero.
    let path = unsafe { as_path(path) };
    let mut notes = notes();
    if let Some(folder) = path.parent().filter(|folder| notes.folders.contains_key(*folder)).map(Path::to_owned) {
        notes.note(path, |name| Operation::Open { name });
        let is_log = flags & (ffi::SQLITE_OPEN_WAL | ffi::SQLITE_OPEN_MAIN_JOURNAL) != 0;
        let is_new_log = is_log && flags & ffi::SQLITE_OPEN_CREATE != 0;
        notes.files.insert(file.addr(), File { folder, name: name(path), is_new_log });
    }
    code
}

/// # Safety
/// It is a text that ends with a zero, and stays for as long as the path is used.
unsafe fn as_path<'a>(text: *const c_char) -> &'a Path {
    // SAFETY: as the caller promises.
    Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()))
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, path: *const c_char, sync_folder: c_int) -> c_int {
    // SAFETY: SQLite's arguments go on; that the directory is not synced changes nothing that SQLite could see.
    let code = unsafe { OWN_DELETE.wait()(vfs, path, 0) };
    if code == ffi::SQLITE_OK {
        // SAFETY: SQLite passes a text that ends with a zero.
        let path = unsafe { as_path(path) };
        notes().note(path, |name| Operation::Delete { name, folder: sync_folder != 0 });
    }
    code
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: only files that were opened have methods; SQLite's argument goes on as it came.
    let code = unsafe { Methods::own_of(file).xClose.unwrap()(file) };
    if notes().files.remove(&file.addr()).is_some() {
        CLOSED.notify_all();
    }
    code
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, bytes: *const c_void, length: c_int, offset: i64) -> c_int {
    // SAFETY: only files that were opened have methods; SQLite's arguments go on as they came.
    let code = unsafe { Methods::own_of(file).xWrite.unwrap()(file, bytes, length, offset) };
    if code == ffi::SQLITE_OK {
        // SAFETY: SQLite passes as many bytes as it says, and they stay until this returns.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), usize::try_from(length).unwrap()) };
        let offset = usize::try_from(offset).unwrap();
        notes().note_of(file, |name| Operation::Write { name, offset, bytes: bytes.to_owned() });
    }
    code
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: i64) -> c_int {
    // SAFETY: only files that were opened have methods; SQLite's arguments go on as they came.
    let code = unsafe { Methods::own_of(file).xTruncate.unwrap()(file, length) };
    if code == ffi::SQLITE_OK {
        let length = usize::try_from(length).unwrap();
        notes().note_of(file, |name| Operation::Truncate { name, length });
    }
    code
}

extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    let mut notes = notes();
    if let Some(known) = notes.files.get_mut(&file.addr()) {
        let folder = std::mem::take(&mut known.is_new_log);
        notes.note_of(file, |name| Operation::Sync { name, folder });
    }
    ffi::SQLITE_OK
}
