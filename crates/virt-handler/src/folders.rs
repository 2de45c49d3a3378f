//! Folders of pods, opened such that whoever owns what is in them cannot lead us elsewhere.
//!
//! What a pod has put into its volumes is not trusted: no link is followed, and what was opened is what is used.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, inotify};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Where a kubelet keeps the volumes of a pod that are folders of its own.
const EMPTY_DIRS: &str = "kubernetes.io~empty-dir";

/// The folder of a pod's volume, below the folder of all pods.
pub(crate) fn volume_path(pod: &str, volume: &str) -> PathBuf {
    [pod, "volumes", EMPTY_DIRS, volume].iter().collect()
}

/// Whether a text is the name of one folder, and not a way to another.
pub(crate) fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// Opens a folder that is ours.
pub(crate) fn open_own(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, folder_flags(), Mode::empty())?)
}

/// Opens a folder below another, without following any link.
pub(crate) fn open_beneath(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat2(root, path, folder_flags(), Mode::empty(), strictly())?)
}

/// Opens the deepest folder on a way that exists. True if it is the last.
pub(crate) fn open_deepest(root: &Path, path: &Path) -> io::Result<(OwnedFd, bool)> {
    let mut deepest = open_own(root)?;
    for part in path {
        match open_beneath(&deepest, Path::new(part)) {
            Ok(next) => deepest = next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((deepest, false)),
            Err(error) => return Err(error),
        }
    }
    Ok((deepest, true))
}

/// Opens a socket in a folder, to be connected to by [`by_descriptor`]. What is no socket is refused.
pub(crate) fn open_socket(folder: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(folder, name, flags, Mode::empty(), strictly())?;
    let mode = rustix::fs::fstat(&opened)?.st_mode;
    match FileType::from_raw_mode(mode) {
        FileType::Socket => Ok(opened),
        _ => Err(Errno::NOTSOCK.into()),
    }
}

/// A path to what a descriptor is open on; it holds while the descriptor is open.
pub(crate) fn by_descriptor(descriptor: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

fn folder_flags() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
}

fn strictly() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

/// Hears of changes in a folder.
pub(crate) struct Watch {
    events: AsyncFd<OwnedFd>,
}

impl Watch {
    /// Hears of names that come and go, and of the end of the folder itself. What happens from now on is not missed.
    pub(crate) fn on(folder: BorrowedFd<'_>) -> io::Result<Self> {
        let events = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        let wanted = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::DELETE_SELF
            | inotify::WatchFlags::MOVE_SELF;
        inotify::add_watch(&events, by_descriptor(folder), wanted)?;
        Ok(Self { events: readable(events)? })
    }

    /// Waits until something has changed since the last time.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        loop {
            let mut ready = self.events.readable().await?;
            let mut buffer = [0_u8; 4096];
            let read = ready.try_io(|events| Ok(rustix::io::read(events.get_ref(), &mut buffer)?));
            // Otherwise there is nothing to read after all; wait on.
            if let Ok(read) = read {
                return read.map(drop);
            }
        }
    }
}

/// Waits for a descriptor to have something to read.
#[expect(unsafe_code, reason = "tokio has no safe way to wait for a descriptor of any kind")]
pub(crate) fn readable(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays the same and open until it is dropped, and nobody takes it out of here.
    unsafe { Ok(AsyncFd::register_with_interest(descriptor, Interest::READABLE)?) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_link_on_the_way_is_refused() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("elsewhere/sockets")).unwrap();
        std::os::unix::fs::symlink("elsewhere", root.path().join("pod")).unwrap();
        let own = open_own(root.path()).unwrap();
        assert!(open_beneath(&own, Path::new("elsewhere/sockets")).is_ok());
        assert_eq!(open_beneath(&own, Path::new("pod/sockets")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(open_beneath(&own, Path::new("../")).is_err());
        assert!(open_deepest(root.path(), Path::new("pod/sockets")).is_err());
    }

    #[test]
    fn only_a_socket_is_a_socket() {
        let root = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(root.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.path().join("link")).unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        let own = open_own(root.path()).unwrap();
        assert!(open_socket(&own, "real").is_ok());
        assert!(open_socket(&own, "link").is_err());
        assert!(open_socket(&own, "file").is_err());
        assert_eq!(open_socket(&own, "none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn the_deepest_folder_tells_when_the_next_one_comes() {
        let root = tempfile::tempdir().unwrap();
        let way = volume_path("pod", "sockets");
        let (folder, whole) = open_deepest(root.path(), &way).unwrap();
        assert!(!whole);
        let watch = Watch::on(folder.as_fd()).unwrap();
        std::fs::create_dir_all(root.path().join(&way)).unwrap();
        watch.changed().await.unwrap();
        assert!(open_deepest(root.path(), &way).unwrap().1);
    }

    #[test]
    fn a_name_is_no_way() {
        assert!(is_plain("9f1c0a7e-0000") && !is_plain("") && !is_plain("..") && !is_plain("a/b"));
    }
}
