//! One layer on its way: hashed and counted while it is unpacked in a thread beside.

use std::io::{self, Read};

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::digest::Hasher;
use super::manifest::{Descriptor, MAX_MANIFEST};
use super::pace::Pace;
use super::registry::RegistryError;
use super::{PullError, UnpackError};
use crate::image::Reference;

/// Pieces on their way to the thread that unpacks; at some 16 KiB each, what keeps both sides busy.
const QUEUE: usize = 16;
/// What is read at once from a file.
const PIECE: usize = 128 << 10;

/// A blob that is being read.
pub(super) enum Blob {
    Response { response: reqwest::Response, host: String, pace: Pace },
    File { file: tokio::fs::File, path: std::path::PathBuf },
}

impl Blob {
    pub(super) fn response(response: reqwest::Response, host: &str) -> Self {
        Self::Response { response, host: host.to_owned(), pace: Pace::default() }
    }

    async fn next(&mut self, image: &Reference) -> Result<Option<Bytes>, PullError> {
        match self {
            Self::Response { response, host, pace } => {
                let failed = |source| PullError::Registry { image: image.to_string(), source };
                let asked = Instant::now();
                let piece = response.chunk().await.map_err(|source| failed(RegistryError::http(host, source)))?;
                let bytes = piece.as_ref().map_or(0, Bytes::len) as u64;
                // The end of it is no piece that came too late.
                if piece.is_some() && !pace.keeps_up(asked.elapsed(), bytes) {
                    return Err(failed(RegistryError::Slow { host: host.clone() }));
                }
                Ok(piece)
            }
            Self::File { file, path } => {
                let mut piece = vec![0; PIECE];
                let read = file.read(&mut piece).await;
                let length = read.map_err(|source| PullError::Layout { path: path.clone(), source })?;
                piece.truncate(length);
                Ok((length > 0).then(|| Bytes::from(piece)))
            }
        }
    }
}

/// What becomes of layers, one after the other.
pub(super) trait Target: Send + Sized + 'static {
    /// Takes one layer in, as it is stored: compressed or not.
    fn layer(&mut self, stored: impl Read) -> Result<(), UnpackError>;
}

/// A small blob, such as an image's configuration.
///
/// # Guarantees
/// When it succeeds, length and digest were those of the descriptor.
pub(super) async fn bytes(mut blob: Blob, descriptor: &Descriptor, image: &Reference) -> Result<Vec<u8>, PullError> {
    let mut bytes = Vec::new();
    let limit = descriptor.size.min(MAX_MANIFEST as u64);
    let wrong_length =
        |found: usize| PullError::Length { digest: descriptor.digest, expected: limit, found: found as u64 };
    while let Some(piece) = blob.next(image).await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > limit {
            return Err(wrong_length(bytes.len()));
        }
    }
    if bytes.len() as u64 != descriptor.size {
        return Err(wrong_length(bytes.len()));
    }
    let found = super::Digest::of(&bytes);
    if found == descriptor.digest { Ok(bytes) } else { Err(PullError::Digest { expected: descriptor.digest, found }) }
}

/// Takes one layer in, whole.
///
/// # Guarantees
/// When it succeeds, length and digest were those of the descriptor, and all of it was unpacked.
pub(super) async fn layer<T: Target>(
    mut blob: Blob,
    descriptor: &Descriptor,
    target: T,
    image: &Reference,
    report: &(dyn Fn(u64) + Send + Sync),
) -> Result<T, PullError> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let mut unpacking = Unpacking::start(target, receiver, image)?;
    let mut sender = Some(sender);
    let mut hasher = Hasher::default();
    let mut received = 0_u64;
    let wrong_length = |found| PullError::Length { digest: descriptor.digest, expected: descriptor.size, found };
    while let Some(piece) = blob.next(image).await? {
        received += piece.len() as u64;
        if received > descriptor.size {
            return Err(wrong_length(received));
        }
        hasher.update(&piece);
        report(received);
        if let Some(open) = &sender
            && open.send(piece).await.is_err()
        {
            // The archive is over, or broken. If it is over, the rest still counts for the digest.
            unpacking.join().await?;
            sender = None;
        }
    }
    if received != descriptor.size {
        return Err(wrong_length(received));
    }
    // Before the thread's result is looked at: what garbled bytes unpack to is no news.
    let found = hasher.finish();
    if found != descriptor.digest {
        return Err(PullError::Digest { expected: descriptor.digest, found });
    }
    drop(sender);
    unpacking.join().await?;
    unpacking.target.ok_or(PullError::Interrupted)
}

/// The thread that unpacks, and what it hands back.
struct Unpacking<'a, T> {
    image: &'a Reference,
    result: Option<oneshot::Receiver<Result<T, UnpackError>>>,
    target: Option<T>,
}

impl<'a, T: Target> Unpacking<'a, T> {
    /// A thread of its own, not one of the runtime's: that one waits here for pieces, and a layout's pieces are read
    /// by the same threads of the runtime. Enough pulls at once would have them all wait for each other.
    fn start(mut target: T, receiver: mpsc::Receiver<Bytes>, image: &'a Reference) -> Result<Self, PullError> {
        let (sender, result) = oneshot::channel();
        let work = move || {
            let outcome = target.layer(Pieces { receiver, current: Bytes::new() }).map(|()| target);
            // Nobody listens any more if the pull was cancelled.
            let _ = sender.send(outcome);
        };
        let spawned = std::thread::Builder::new().name("unpack".to_owned()).spawn(work);
        let unpack = |source| PullError::Unpack { image: image.to_string(), source: UnpackError::Write(source) };
        spawned.map_err(unpack)?;
        Ok(Self { image, result: Some(result), target: None })
    }

    async fn join(&mut self) -> Result<(), PullError> {
        let Some(result) = self.result.take() else { return Ok(()) };
        let outcome = result.await.map_err(|_| PullError::Interrupted)?;
        let target = outcome.map_err(|source| PullError::Unpack { image: self.image.to_string(), source })?;
        self.target = Some(target);
        Ok(())
    }
}

/// The pieces as one reader; ends when the sender is gone.
struct Pieces {
    receiver: mpsc::Receiver<Bytes>,
    current: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.current = piece,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.current.len());
        buffer[..length].copy_from_slice(&self.current.split_to(length));
        Ok(length)
    }
}
