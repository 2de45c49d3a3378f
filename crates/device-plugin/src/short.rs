//! Sockets in directories whose names are longer than a socket's address may be.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Another path of a socket, short enough for an address as long as this is held.
pub struct Short {
    _folder: OwnedFd,
    path: PathBuf,
}

impl Short {
    /// The short path of a socket, which need not be there yet; its directory must be.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    pub fn of(socket: &Path) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        // To go through it is enough: it need not be one that may be read.
        let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name);
        Ok(Self { _folder: folder, path })
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_socket_is_reached_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a".repeat(120)).join("b".repeat(120));
        std::fs::create_dir_all(&deep).unwrap();
        let socket = deep.join("kubelet.sock");
        assert!(UnixListener::bind(&socket).is_err());
        let _listener = UnixListener::bind(Short::of(&socket).unwrap().path()).unwrap();
        assert!(socket.exists());
        UnixStream::connect(Short::of(&socket).unwrap().path()).unwrap();
        assert!(Short::of(Path::new("/")).is_err() && Short::of(&folder.path().join("c/d")).is_err());
    }
}
