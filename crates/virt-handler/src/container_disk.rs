//! The little program that runs in a container disk's image: it listens on a socket, so that virt-handler finds it and with
//! it the image's files, until its pod ends.

use std::io;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

/// Why the image is not offered.
#[derive(Debug, thiserror::Error)]
pub enum OfferError {
    /// The socket could not be made.
    #[error("listen on {}", path.display())]
    Listen { path: PathBuf, source: io::Error },
    /// The program could not be copied.
    #[error("copy the program to {}", path.display())]
    Install {
        /// Where to.
        path: PathBuf,
        source: io::Error,
    },
    /// Nobody could tell it to end.
    #[error("listen for signals")]
    Signals(#[source] io::Error),
}

/// Copies this program to a place from which it can be run inside an image.
///
/// # Errors
/// When it cannot be read or written.
pub fn install(program: &Path, path: &Path) -> Result<(), OfferError> {
    let copied = std::fs::copy(program, path).map(drop);
    copied.map_err(|source| OfferError::Install { path: path.to_owned(), source })
}

/// Offers the image until SIGTERM or SIGINT; the socket is the given path with `.sock` added.
///
/// # Errors
/// When the socket cannot be made.
pub async fn run(copy_path: &Path) -> Result<(), OfferError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(OfferError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(OfferError::Signals)?;
    let mut path = copy_path.to_owned().into_os_string();
    path.push(".sock");
    let path = PathBuf::from(path);
    let listen = |source| OfferError::Listen { path: path.clone(), source };
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(listen(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(listen)?;
    loop {
        tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            // That somebody connects is all that is needed.
            _ = listener.accept() => {}
        }
    }
    // The pod's folder goes with the pod in any case.
    let _ = std::fs::remove_file(&path);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::process::{Signal, getpid, kill_process};
    use tokio::net::UnixStream;

    use super::*;
    use crate::folders::{Watch, open_own};

    #[tokio::test]
    async fn an_image_is_offered_until_the_pod_ends() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("disk_0.sock");
        // What a container that was restarted has left.
        std::fs::write(&socket, "").unwrap();
        let watch = Watch::on(open_own(folder.path()).unwrap().as_fd()).unwrap();
        let place = folder.path().join("disk_0");
        let offering = tokio::spawn(async move { run(&place).await });
        while UnixStream::connect(&socket).await.is_err() {
            watch.changed().await.unwrap();
        }
        // Whoever listens has asked for signals before: this does not end the tests.
        kill_process(getpid(), Signal::TERM).unwrap();
        offering.await.unwrap().unwrap();
        assert!(!socket.exists());
    }
}
