//! Files below a directory, and nothing else: no link is followed, and no name leads out of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

/// Opens what is at a path below a directory, to be read. A link anywhere in the path is an error, and so is a path that leads
/// upwards. What is opened may be a directory or a device: who reads it looks first.
pub(crate) fn open(directory: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // Whoever opens a pipe would wait for its other end.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(openat2(directory, path, flags, Mode::empty(), resolve)?)
}

/// Opens a regular file below a directory.
pub(crate) fn open_file(directory: impl AsFd, path: &Path) -> io::Result<File> {
    let file = File::from(open(directory, path)?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::from(io::ErrorKind::NotFound)) }
}

/// Whether an error means that there is nothing that may be read: a link counts as nothing.
pub(crate) fn is_nothing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    error.kind() == io::ErrorKind::NotFound
        || matches!(code, Some(Errno::LOOP | Errno::XDEV | Errno::NOTDIR | Errno::NXIO | Errno::NAMETOOLONG))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_is_followed_and_no_name_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("volume");
        std::fs::create_dir_all(inside.join("sub")).unwrap();
        std::fs::write(folder.path().join("secret"), "out").unwrap();
        std::fs::write(inside.join("file"), "in").unwrap();
        symlink("../secret", inside.join("out")).unwrap();
        symlink("file", inside.join("alias")).unwrap();
        symlink("/", inside.join("sub/root")).unwrap();
        let volume = File::open(&inside).unwrap();
        assert!(open_file(&volume, Path::new("file")).is_ok());
        assert!(open_file(&volume, Path::new("sub/../file")).is_ok(), "it stays below");
        for path in ["out", "alias", "../secret", "sub/../../secret", "sub/root/etc/passwd", "/etc/passwd", "none"] {
            let error = open_file(&volume, Path::new(path)).unwrap_err();
            assert!(is_nothing(&error), "{path}: {error}");
        }
        assert!(open_file(&volume, Path::new("sub")).is_err(), "a directory is not a file");
    }

    #[test]
    fn a_pipe_makes_nobody_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let volume = File::open(folder.path()).unwrap();
        assert!(open_file(&volume, Path::new("pipe")).is_err());
    }
}
