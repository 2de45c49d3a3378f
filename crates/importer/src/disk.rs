//! The claim's disk: a draft until it is whole.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FallocateFlags, RenameFlags};
use rustix::io::Errno;

use crate::ImportError;

/// As every reader of claims knows it.
const DISK: &str = "disk.img";
/// Until it is whole.
const DRAFT: &str = "disk.img.importing";

/// A disk that nobody knows yet. It goes when it is dropped.
pub(crate) struct Draft {
    directory: PathBuf,
    path: PathBuf,
    file: File,
    size: u64,
    is_published: bool,
}

impl Draft {
    /// An empty draft for a disk of so many bytes; none if the disk is there. What an earlier attempt left is replaced.
    pub(crate) fn create(directory: &Path, size: u64) -> Result<Option<Self>, ImportError> {
        let disk = directory.join(DISK);
        match std::fs::symlink_metadata(&disk) {
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(ImportError::file("look at", disk)(error)),
        }
        let path = directory.join(DRAFT);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ImportError::file("remove", path)(error));
            }
            _ => {}
        }
        // The group's, too: the next user of the claim is another one of the machine.
        let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(0o660).open(&path);
        let file = opened.map_err(ImportError::file("create", &path))?;
        Ok(Some(Self { directory: directory.to_owned(), path, file, size, is_published: false }))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes the disk has.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// How many bytes may arrive for it: no format that is known adds more to a disk than this.
    pub(crate) fn most_received(&self) -> u64 {
        self.size.saturating_add(self.size / 64).saturating_add(64 << 20)
    }

    /// The file, for another thread.
    pub(crate) fn file(&self) -> Result<File, ImportError> {
        self.file.try_clone().map_err(ImportError::file("open", &self.path))
    }

    /// Gives it its whole size, and its name.
    ///
    /// # Guarantees
    /// All of it is on disk before anybody sees it.
    pub(crate) fn publish(mut self, preallocate: bool) -> Result<(), ImportError> {
        let path = self.path.clone();
        let failed = |action| ImportError::file(action, &path);
        self.file.set_len(self.size).map_err(failed("size"))?;
        if preallocate {
            let allocated = rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, self.size);
            match allocated {
                // Where nothing can be reserved, each byte takes its room when it is written.
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(error) => return Err(failed("allocate")(error.into())),
            }
        }
        self.file.sync_all().map_err(failed("flush"))?;
        let disk = self.directory.join(DISK);
        // A disk that somebody else has made meanwhile may be in use, and stays.
        rustix::fs::renameat_with(CWD, &self.path, CWD, &disk, RenameFlags::NOREPLACE).map_err(|error| {
            if error == Errno::EXIST { ImportError::Taken { path: disk } } else { failed("rename")(error.into()) }
        })?;
        self.is_published = true;
        let directory = File::open(&self.directory).and_then(|directory| directory.sync_all());
        directory.map_err(ImportError::file("flush", &self.directory))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_published {
            // What cannot be removed now is replaced by the next attempt.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Somebody makes a disk while one is imported.
    fn directory_with_a_late_rival() -> ImportError {
        let folder = tempfile::tempdir().unwrap();
        let draft = Draft::create(folder.path(), 8192).unwrap().unwrap();
        std::fs::write(folder.path().join(DISK), "a guest's").unwrap();
        let refused = draft.publish(false).unwrap_err();
        assert_eq!(std::fs::read(folder.path().join(DISK)).unwrap(), b"a guest's");
        refused
    }

    #[test]
    fn a_disk_appears_whole_and_a_draft_that_failed_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let draft = Draft::create(folder.path(), 8192).unwrap().unwrap();
        draft.file().unwrap().write_all(b"half").unwrap();
        assert_eq!(names(folder.path()), [DRAFT]);
        drop(draft);
        assert!(names(folder.path()).is_empty());
        // As a process leaves it that was killed.
        std::fs::write(folder.path().join(DRAFT), "left over").unwrap();
        let draft = Draft::create(folder.path(), 8192).unwrap().unwrap();
        draft.file().unwrap().write_all(b"whole").unwrap();
        draft.publish(true).unwrap();
        let late = directory_with_a_late_rival();
        assert!(matches!(late, ImportError::Taken { .. }) && late.is_final(), "{late:?}");
        assert_eq!(names(folder.path()), [DISK]);
        let disk = std::fs::metadata(folder.path().join(DISK)).unwrap();
        assert_eq!((disk.len(), disk.blocks()), (8192, 16));
        assert!(Draft::create(folder.path(), 8192).unwrap().is_none(), "a disk that is there is not imported again");
    }
}
