//! A launcher's socket: awaited, and connected to without being led elsewhere.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use launcher_api::names::{LAUNCHER_SOCKET, SOCKETS};
use rustix::io::Errno;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use crate::folders::{self, Watch};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    /// No socket in time.
    #[error("the socket did not appear within {0:?}")]
    Missing(Duration),
    /// The socket is there, and nobody listens.
    #[error("nothing listens on the socket")]
    Refused,
    /// The pod's UID is no name.
    #[error("{0:?} is not a valid pod UID")]
    Name(String),
    /// There is no folder of pods at all, which says nothing about one of them.
    #[error("open the directory of pods")]
    Pods(#[source] io::Error),
    /// The folder or the socket cannot be used.
    #[error("open the launcher's socket")]
    Open(#[source] io::Error),
}

impl ConnectError {
    /// Whether it says nothing about the launcher: something here is short, or not there yet.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Pods(_) => true,
            Self::Open(source) => is_shortage(source),
            Self::Missing(_) | Self::Refused | Self::Name(_) => false,
        }
    }
}

/// Whether a call failed because something has run out for the moment.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOSPC, Errno::AGAIN, Errno::INTR];
    error.raw_os_error().is_some_and(|raw| shortages.iter().any(|errno| errno.raw_os_error() == raw))
}

/// Connects to the launcher in a pod as soon as it listens.
pub(crate) async fn connect(pods: &Path, pod: &str, patience: Duration) -> Result<UnixStream, ConnectError> {
    if !folders::is_plain(pod) {
        return Err(ConnectError::Name(pod.to_owned()));
    }
    let until = Instant::now() + patience;
    let way = folders::volume_path(pod, SOCKETS);
    loop {
        let (folder, socket) = look(pods, &way)?;
        if let Some(socket) = socket {
            return join(&socket).await;
        }
        let watch = Watch::on(folder.as_fd()).map_err(ConnectError::Open)?;
        // What came before the watch would not be told.
        if let (_, Some(socket)) = look(pods, &way)? {
            return join(&socket).await;
        }
        match timeout_at(until, watch.changed()).await {
            Ok(changed) => changed.map_err(ConnectError::Open)?,
            Err(_) => return Err(ConnectError::Missing(patience)),
        }
    }
}

/// The deepest folder on the way to the socket, and the socket, if it is there.
fn look(pods: &Path, way: &Path) -> Result<(OwnedFd, Option<OwnedFd>), ConnectError> {
    drop(folders::open_own(pods).map_err(ConnectError::Pods)?);
    let (folder, whole) = folders::open_deepest(pods, way).map_err(ConnectError::Open)?;
    if !whole {
        return Ok((folder, None));
    }
    match folders::open_socket(&folder, LAUNCHER_SOCKET) {
        Ok(socket) => Ok((folder, Some(socket))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((folder, None)),
        Err(error) => Err(ConnectError::Open(error)),
    }
}

/// By its descriptor: paths of sockets are short, those of pods are not.
async fn join(socket: &OwnedFd) -> Result<UnixStream, ConnectError> {
    UnixStream::connect(folders::by_descriptor(socket.as_fd())).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => ConnectError::Refused,
        _ => ConnectError::Open(error),
    })
}
