//! A file of a web server.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::checksum::Checksum;
use crate::convert;
use crate::disk::Draft;
use crate::download::Download;
use crate::receive::{self, Received, Room};
use crate::{ImportError, Progress, Reach};

/// Pieces on their way to the thread that writes.
const QUEUE: usize = 16;

/// A file, and how it is asked for.
#[derive(Clone, Debug, Default)]
pub struct Web {
    /// Where it is.
    pub url: String,
    /// Headers that are sent along, each `NAME: VALUE`.
    pub headers: Vec<String>,
    /// A user and a password.
    pub credentials: Option<storage::pull::Credentials>,
    /// Certificates to trust beside the system's, in PEM.
    pub certificates: Vec<u8>,
    /// What the file must hash to, as it is sent.
    pub checksum: Option<Checksum>,
    /// Where the server may be.
    pub reach: Reach,
}

/// Fills a draft.
pub(crate) async fn fetch(
    web: &Web,
    draft: &Draft,
    scratch: &Path,
    progress: &Arc<Progress>,
) -> Result<(), ImportError> {
    let download = Download::open(web, draft.most_received()).await?;
    let scratch = scratch.join("image.qcow2");
    let room = Room { disk: draft.size(), scratch: draft.most_received() };
    let received = transfer(download, web.checksum.as_ref(), draft, &scratch, room, progress).await;
    let converted = match received {
        Ok(Received::Raw) => Ok(()),
        Ok(Received::Qcow2) => convert::qcow2(&scratch, draft).await,
        Err(error) => Err(error),
    };
    // It goes with the pod in any case; the next attempt begins with an empty one.
    let _ = std::fs::remove_file(&scratch);
    converted
}

/// Takes a download in, whole: what it hashes to is known before anything else is said of it.
async fn transfer(
    mut download: Download,
    checksum: Option<&Checksum>,
    draft: &Draft,
    scratch: &Path,
    room: Room,
    progress: &Progress,
) -> Result<Received, ImportError> {
    let (sender, pieces) = mpsc::channel(QUEUE);
    let mut receiving = start(pieces, draft, scratch, room)?;
    let mut sender = Some(sender);
    let mut hasher = checksum.map(Checksum::hasher);
    let mut outcome = None;
    while let Some(piece) = download.next().await? {
        if let Some(hasher) = &mut hasher {
            hasher.update(&piece);
        }
        progress.update(download.received(), download.total());
        let Some(open) = &sender else { continue };
        if open.send(piece).await.is_err() {
            // The archive is over, or refused. If it is over, the rest still counts for the checksum.
            let early = receiving.take().ok_or(ImportError::Interrupted)?;
            outcome = Some(early.await.map_err(|_| ImportError::Interrupted)??);
            sender = None;
        }
    }
    drop(sender);
    // Before the thread's result is looked at: what garbled bytes decompress to is no news.
    if let (Some(hasher), Some(expected)) = (hasher, checksum) {
        let found = hasher.finish();
        if found != *expected {
            return Err(ImportError::Checksum { expected: expected.clone(), found });
        }
    }
    match (outcome, receiving) {
        (Some(received), _) => Ok(received),
        (None, Some(receiving)) => receiving.await.map_err(|_| ImportError::Interrupted)?,
        (None, None) => Err(ImportError::Interrupted),
    }
}

type Receiving = oneshot::Receiver<Result<Received, ImportError>>;

/// A thread of its own: decompression takes all the time that there is.
fn start(
    pieces: mpsc::Receiver<bytes::Bytes>,
    draft: &Draft,
    scratch: &Path,
    room: Room,
) -> Result<Option<Receiving>, ImportError> {
    let (sender, result) = oneshot::channel();
    let (target, path, scratch) = (draft.file()?, draft.path().to_owned(), scratch.to_owned());
    let work = move || {
        let outcome = receive::receive(receive::Pieces::new(pieces), &target, &path, &scratch, room);
        // Nobody listens any more if the download failed.
        let _ = sender.send(outcome);
    };
    let spawned = std::thread::Builder::new().name("receive".to_owned()).spawn(work);
    spawned.map_err(ImportError::file("start a thread for", draft.path()))?;
    Ok(Some(result))
}
