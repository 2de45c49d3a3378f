//! What was asked and answered, in order.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::Seconds;
use crate::world::World;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A request and what became of it.
    Request {
        /// When it was answered.
        at: Seconds,
        /// The process and the client in it.
        who: String,
        /// GET, POST, ...
        method: String,
        /// With its query.
        path: String,
        /// The answer, or the fault that took its place.
        outcome: String,
    },
    /// What a controller logged, or what happened to a process.
    Note {
        /// When.
        at: Seconds,
        /// What.
        text: String,
    },
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { at, who, method, path, outcome } => write!(f, "{at:>9} {who}: {method} {path} → {outcome}"),
            Self::Note { at, text } => write!(f, "{at:>9} -- {text}"),
        }
    }
}

/// All lines of a run.
#[derive(Clone, Debug, Default)]
pub struct Log(pub(crate) Vec<Entry>);

impl Log {
    /// How many requests there were.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.0.iter().filter(|entry| matches!(entry, Entry::Request { .. })).count()
    }

    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    /// Where two runs part: the index, and the lines.
    pub(crate) fn first_difference(&self, other: &Self) -> Option<(usize, String, String)> {
        let line = |log: &Self, index: usize| log.0.get(index).map_or("nothing".to_owned(), ToString::to_string);
        let index = (0..self.0.len().max(other.0.len())).find(|&index| self.0.get(index) != other.0.get(index))?;
        Some((index, line(self, index), line(other, index)))
    }
}

/// Puts what controllers log into the world's log, until it is dropped.
pub(crate) fn collect(world: &Arc<World>) -> tracing::subscriber::DefaultGuard {
    let world = world.clone();
    let subscriber = tracing_subscriber::fmt()
        .without_time()
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || Writer(world.clone()))
        .finish();
    tracing::subscriber::set_default(subscriber)
}

const OURS: [&str; 5] = [" manager::", " kube_controllers::", " node::", " virt_controller::", " virt_handler::"];

struct Writer(Arc<World>);

impl io::Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        // What libraries have to say is not what was decided.
        if OURS.iter().any(|target| text.contains(target)) {
            self.0.note(text.trim().to_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
