//! The guest's serial port. The launcher alone is connected to it and reads it always, so that no viewer, slow or absent, ever holds
//! the guest up; what was written last is kept in a ring.
//!
//! # Guarantees
//! - One viewer at a time: a new one takes over, and what the old one types from then on goes nowhere.
//! - A viewer gets every byte that is written while it looks, in order, or is cut with a reason: there are no gaps in silence.
//! - What a viewer typed before it went is written to the guest.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

/// What is kept of what the guest wrote: some screens.
const RING: usize = 64 << 10;
/// What is read at once.
const PIECE: usize = 4096;
/// Pieces that wait for a viewer; one that lets more wait is cut.
const WAITING: usize = 256;
/// Pieces that wait for the guest to read them.
const TYPED: usize = 16;

/// Why a viewer sees no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    /// Somebody else looks now.
    #[error("another console took over")]
    TakenOver,
    /// It did not keep up.
    #[error("the console was read too slowly")]
    TooSlow,
}

/// A guest's serial port. Clones are the same.
#[derive(Clone, Debug)]
pub struct Console {
    shared: Arc<Mutex<State>>,
    typed: mpsc::Sender<Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    ring: VecDeque<u8>,
    viewer: Option<Looking>,
    /// How many there have been, by which each is known.
    viewers: u64,
    has_ended: bool,
}

/// The viewer, as the port sees it.
#[derive(Debug)]
struct Looking {
    pieces: mpsc::Sender<Vec<u8>>,
    cut: oneshot::Sender<Cut>,
}

/// Somebody who looks.
#[derive(Debug)]
pub struct Viewer {
    number: u64,
    pieces: mpsc::Receiver<Vec<u8>>,
    cut: oneshot::Receiver<Cut>,
    console: Console,
}

impl Console {
    /// Connects to the port that QEMU has made, and reads it from now on.
    ///
    /// # Errors
    /// When there is none.
    pub async fn connect(socket: &Path) -> std::io::Result<Self> {
        let (read, write) = UnixStream::connect(socket).await?.into_split();
        Ok(Self::over(read, write))
    }

    fn over<R, W>(read: R, write: W) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (typed, lines) = mpsc::channel(TYPED);
        let shared = Arc::<Mutex<State>>::default();
        tokio::spawn(drain(read, shared.clone()));
        tokio::spawn(hand_on(lines, write));
        Self { shared, typed }
    }

    /// Looks from now on, instead of whoever does; with `replay`, first at what was written last.
    #[must_use]
    pub fn look(&self, replay: bool) -> Viewer {
        let (pieces, received) = mpsc::channel(WAITING);
        let (cut, told) = oneshot::channel();
        let mut state = self.state();
        state.viewers += 1;
        let number = state.viewers;
        state.cut(Cut::TakenOver);
        if replay && !state.ring.is_empty() {
            let written: Vec<u8> = state.ring.iter().copied().collect();
            // There is room for the first.
            let _ = pieces.try_send(written);
        }
        if !state.has_ended {
            state.viewer = Some(Looking { pieces, cut });
        }
        drop(state);
        Viewer { number, pieces: received, cut: told, console: self.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn cut(&mut self, why: Cut) {
        if let Some(looking) = self.viewer.take() {
            // It may have gone by itself.
            let _ = looking.cut.send(why);
        }
    }

    fn written(&mut self, piece: &[u8]) {
        self.ring.extend(piece);
        let surplus = self.ring.len().saturating_sub(RING);
        self.ring.drain(..surplus);
        let Some(looking) = &self.viewer else { return };
        match looking.pieces.try_send(piece.to_vec()) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => self.cut(Cut::TooSlow),
            Err(mpsc::error::TrySendError::Closed(_)) => self.viewer = None,
        }
    }
}

impl Viewer {
    /// What the guest writes next; none when it writes no more.
    ///
    /// # Errors
    /// When this viewer is cut, after all that waited for it.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Cut> {
        match self.pieces.recv().await {
            Some(piece) => Ok(Some(piece)),
            None => self.cut.try_recv().map_or(Ok(None), Err),
        }
    }

    /// What is typed by this viewer, for as long as it is the one.
    #[must_use]
    pub fn keyboard(&self) -> Keyboard {
        Keyboard { number: self.number, console: self.console.clone() }
    }
}

/// Types for a viewer.
#[derive(Clone, Debug)]
pub struct Keyboard {
    number: u64,
    console: Console,
}

impl Keyboard {
    /// Types; waits while the guest does not read. False if that leads nowhere any more.
    pub async fn type_in(&self, bytes: Vec<u8>) -> bool {
        let is_mine = {
            let state = self.console.state();
            state.viewers == self.number && state.viewer.is_some()
        };
        is_mine && self.console.typed.send(bytes).await.is_ok()
    }
}

async fn drain(mut read: impl AsyncRead + Unpin, shared: Arc<Mutex<State>>) {
    let mut piece = vec![0; PIECE];
    while let Ok(length @ 1..) = read.read(&mut piece).await {
        let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
        state.written(piece.get(..length).unwrap_or_default());
    }
    let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
    state.has_ended = true;
    // Whoever looks has seen all.
    state.viewer = None;
}

async fn hand_on(mut typed: mpsc::Receiver<Vec<u8>>, mut write: impl AsyncWrite + Unpin) {
    while let Some(bytes) = typed.recv().await {
        if write.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
