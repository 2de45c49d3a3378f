//! Raw disks: files and block devices whose every byte is the guest's.
//!
//! # Guarantees
//! - A raw disk stays raw. Its first bytes are never looked at, because the guest writes them: a guest that writes a
//!   qcow2 header with a backing file there must find that header again, and nothing of the host's.
//! - A symbolic link is never followed at the last component, and what is no regular file is refused: who can write
//!   to the directory must not be able to point a virtual machine at `/etc/shadow`.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::qcow2::Format;

/// A disk that is there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Disk {
    pub path: PathBuf,
    /// Always [`Format::Raw`] for what this module hands out.
    pub format: Format,
    /// How many bytes the guest sees.
    pub virtual_size: u64,
    /// Whether this call created it.
    pub created: bool,
}

/// What to do about a host disk that is not there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HostDisk {
    /// It must be there.
    Disk,
    /// It is created, sparse, with the given capacity.
    DiskOrCreate,
}

/// Why there is no such disk.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A file could not be opened, created or measured.
    #[error("{action} the disk {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    /// There is something of another kind.
    #[error("{} is {found}, not a {wanted}", path.display())]
    Kind {
        path: PathBuf,
        /// What is there.
        found: &'static str,
        /// What should be.
        wanted: &'static str,
    },
    /// There is no such file.
    #[error("the disk {} does not exist", .0.display())]
    Missing(PathBuf),
    /// The size cannot be that of a disk.
    #[error("a disk of {0} bytes cannot be created")]
    Size(u64),
}

/// Creates a sparse raw disk, mode 0600. An existing file is never touched.
///
/// # Guarantees
/// A disk has its size from the moment it has its name, whenever the process is killed. A kill leaves an empty file of another name,
/// hidden, and no disk.
///
/// # Errors
/// When the file exists or cannot be created, or the size is zero or beyond what files can have.
pub fn create_raw(path: &Path, size: u64) -> Result<Disk, DiskError> {
    create_with(path, size, &|_| Ok(()))
}

/// What is about to be done; a test stops at each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    Size,
    Name,
    SyncName,
}

fn create_with(path: &Path, size: u64, gate: &dyn Fn(Step) -> io::Result<()>) -> Result<Disk, DiskError> {
    // File offsets are signed.
    if size == 0 || i64::try_from(size).is_err() {
        return Err(DiskError::Size(size));
    }
    let failed = |action| move |source| DiskError::Io { action, path: path.to_owned(), source };
    // Of this call alone: whoever makes the same disk at the same time makes it of a file of its own.
    let name = path.file_name().unwrap_or_default().display();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let draft = folder.join(format!(".{name}.{:016x}.new", RandomState::new().hash_one(path)));
    // `create_new` does not follow links, dangling ones included.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(failed("create"))?;
    let sized = gate(Step::Size).and_then(|()| file.set_len(size)).and_then(|()| file.sync_all());
    let named = sized
        .map_err(failed("size"))
        .and_then(|()| gate(Step::Name).and_then(|()| name_unless_taken(&draft, path)).map_err(failed("create")));
    if named.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&draft);
    }
    named?;
    let synced = gate(Step::SyncName).and_then(|()| File::open(folder)).and_then(|folder| folder.sync_all());
    synced.map_err(failed("write down the name of"))?;
    Ok(Disk { path: path.to_owned(), format: Format::Raw, virtual_size: size, created: true })
}

fn name_unless_taken(draft: &Path, path: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(CWD, draft, CWD, path, RenameFlags::NOREPLACE) {
        // Some file systems cannot, as NFS; a link does not replace anything either.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            std::fs::hard_link(draft, path)?;
            std::fs::remove_file(draft)
        }
        named => Ok(named?),
    }
}

/// The raw file at `path`, made with `capacity` bytes if it is missing and may be.
///
/// An existing disk keeps its size, whatever the capacity.
///
/// # Errors
/// When it is missing and must not be, or is no regular file.
pub fn host_disk(path: &Path, kind: HostDisk, capacity: u64) -> Result<Disk, DiskError> {
    match (raw_file(path), kind) {
        (Err(DiskError::Missing(_)), HostDisk::DiskOrCreate) => match create_raw(path, capacity) {
            // Another one was faster; its disk is as good.
            Err(DiskError::Io { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => raw_file(path),
            created => created,
        },
        (found, _) => found,
    }
}

/// The raw disk in an existing regular file, such as `disk.img` on a PVC.
///
/// # Errors
/// When it is missing, or something else.
pub fn raw_file(path: &Path) -> Result<Disk, DiskError> {
    let file = open_no_follow(path, "regular file")?;
    let metadata = file.metadata().map_err(|source| failed("measure", path, source))?;
    if !metadata.is_file() {
        return Err(wrong_kind(path, metadata.file_type(), "regular file"));
    }
    Ok(Disk { path: path.to_owned(), format: Format::Raw, virtual_size: metadata.len(), created: false })
}

/// The raw disk on a block device, such as a PVC in block mode.
///
/// # Errors
/// When it is missing, or something else.
pub fn block_device(path: &Path) -> Result<Disk, DiskError> {
    let file = open_no_follow(path, "block device")?;
    let metadata = file.metadata().map_err(|source| failed("measure", path, source))?;
    if !metadata.file_type().is_block_device() {
        return Err(wrong_kind(path, metadata.file_type(), "block device"));
    }
    let virtual_size = virtual_size(&file).map_err(|source| failed("measure", path, source))?;
    Ok(Disk { path: path.to_owned(), format: Format::Raw, virtual_size, created: false })
}

/// How many bytes a raw file or a block device holds. Moves the file's position.
///
/// # Errors
/// When the file cannot be sought, as a pipe.
pub fn virtual_size(mut file: &File) -> io::Result<u64> {
    // A block device's metadata has no length, but its end can be sought.
    file.seek(SeekFrom::End(0))
}

fn open_no_follow(path: &Path, wanted: &'static str) -> Result<File, DiskError> {
    // NONBLOCK: opening a pipe must not wait for its other end. It means nothing to files and disks.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let opened = OpenOptions::new().read(true).custom_flags(i32::try_from(flags).unwrap_or_default()).open(path);
    opened.map_err(|source| match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => wrong_kind(path, metadata.file_type(), wanted),
        Err(error) if error.kind() == io::ErrorKind::NotFound => DiskError::Missing(path.to_owned()),
        _ => failed("open", path, source),
    })
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> DiskError {
    DiskError::Io { action, path: path.to_owned(), source }
}

fn wrong_kind(path: &Path, found: std::fs::FileType, wanted: &'static str) -> DiskError {
    let found = match found {
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_dir() => "a directory",
        kind if kind.is_block_device() => "a block device",
        kind if kind.is_file() => "a regular file",
        _ => "a pipe, socket or character device",
    };
    DiskError::Kind { path: path.to_owned(), found, wanted }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;
    use crate::qcow2;

    #[test]
    fn a_new_disk_is_sparse_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        assert_eq!(create_raw(&path, 1 << 40).unwrap().virtual_size, 1 << 40);
        let metadata = std::fs::metadata(&path).unwrap();
        assert_eq!((metadata.len(), metadata.blocks(), metadata.mode() & 0o777), (1 << 40, 0, 0o600));
        assert!(matches!(create_raw(&path, 512), Err(DiskError::Io { action: "create", .. })));
        for size in [0, u64::MAX] {
            assert!(matches!(create_raw(&folder.path().join("no"), size), Err(DiskError::Size(_))));
        }
    }

    fn names(folder: &Path) -> Vec<std::ffi::OsString> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_disk_has_its_size_from_the_moment_it_has_its_name() {
        for cut in [Step::Size, Step::Name, Step::SyncName] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("disk.img");
            // As a process is killed there: nothing that follows is done, and nothing is cleaned up.
            let killed = std::panic::catch_unwind(|| {
                create_with(&path, 4096, &|step| if step == cut { panic!("killed") } else { Ok(()) })
            });
            assert!(killed.is_err());
            let length = std::fs::metadata(&path).map(|disk| disk.len()).ok();
            assert_eq!(length, (cut == Step::SyncName).then_some(4096), "{cut:?}");
            // Whoever comes next has a disk of the whole size.
            let disk = host_disk(&path, HostDisk::DiskOrCreate, 4096).unwrap();
            assert_eq!(disk.virtual_size, 4096, "{cut:?}");
        }
    }

    #[test]
    fn a_disk_that_cannot_be_made_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        for cut in [Step::Size, Step::Name] {
            let fails = |step| if step == cut { Err(io::Error::other("full")) } else { Ok(()) };
            assert!(create_with(&path, 4096, &fails).is_err());
            assert_eq!(names(folder.path()).len(), 0, "{cut:?}");
        }
        std::fs::write(&path, "a guest's").unwrap();
        assert!(create_raw(&path, 4096).is_err());
        assert_eq!(
            (names(folder.path()).len(), std::fs::read(&path).unwrap().as_slice()),
            (1, b"a guest's".as_slice())
        );
    }

    #[test]
    fn a_raw_disk_that_spells_a_qcow2_header_stays_raw() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        qcow2::create_overlay(&path, Path::new("/etc/shadow"), Format::Raw, 1 << 30).unwrap();
        let length = std::fs::metadata(&path).unwrap().len();
        let disk = host_disk(&path, HostDisk::DiskOrCreate, 1 << 20).unwrap();
        assert_eq!(disk, Disk { path, format: Format::Raw, virtual_size: length, created: false });
    }

    #[test]
    fn a_missing_host_disk_is_created_only_if_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        assert!(matches!(host_disk(&path, HostDisk::Disk, 512), Err(DiskError::Missing(_))));
        assert!(host_disk(&path, HostDisk::DiskOrCreate, 512).unwrap().created);
        let again = host_disk(&path, HostDisk::DiskOrCreate, 1024).unwrap();
        assert_eq!((again.created, again.virtual_size), (false, 512));
    }

    #[test]
    fn links_folders_pipes_and_devices_are_no_host_disks() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("target"), [0; 512]).unwrap();
        symlink(path("target"), path("link")).unwrap();
        symlink(path("nowhere"), path("dangling")).unwrap();
        std::fs::create_dir(path("folder")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for kind in [HostDisk::Disk, HostDisk::DiskOrCreate] {
            for name in ["link", "dangling", "folder", "pipe"] {
                let refused = host_disk(&path(name), kind, 512);
                assert!(matches!(refused, Err(DiskError::Kind { .. })), "{name}: {refused:?}");
            }
            assert!(matches!(host_disk(Path::new("/dev/null"), kind, 512), Err(DiskError::Kind { .. })));
        }
        assert!(!path("nowhere").exists());
        assert!(matches!(block_device(&path("target")), Err(DiskError::Kind { found: "a regular file", .. })));
    }

    #[test]
    fn the_size_of_a_disk_is_where_it_ends() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(12345).unwrap();
        assert_eq!(virtual_size(&file).unwrap(), 12345);
    }
}
