//! The recent changes of one table. Watches read it at their own pace; none has a queue that could grow.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Key, Object};
use crate::signal::{Follower, Signal};

/// Changes that are kept, at most. A client that comes back after a short cut finds all it missed.
const MOST_EVENTS: usize = 10_000;
/// What superseded objects may weigh together, at most.
const MOST_WEIGHT: usize = 16 << 20;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// One change.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) change: Change,
    pub(crate) key: Key,
    /// The new version; of a deletion the last one, at the revision of the deletion.
    pub(crate) object: Arc<Object>,
    /// The version before.
    pub(crate) previous: Option<Arc<Object>>,
}

impl Event {
    fn weight(&self) -> usize {
        self.previous.as_ref().map_or(256, |object| object.draft.weight())
    }
}

/// What a reader gets.
#[derive(Debug)]
pub(crate) enum Events {
    /// What happened after the revision it named, oldest first; a part, if there is much.
    Some(Vec<Event>),
    /// What it missed is no longer known.
    TooOld,
}

/// The window.
pub(crate) struct History {
    window: Mutex<Window>,
    changed: Signal,
}

struct Window {
    events: VecDeque<Event>,
    /// All changes after this revision are here.
    start: u64,
    weight: usize,
}

impl History {
    pub(super) fn new(start: u64) -> Self {
        let window = Window { events: VecDeque::new(), start, weight: 0 };
        Self { window: Mutex::new(window), changed: Signal::default() }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the changes of one commit.
    pub(super) fn append(&self, events: Vec<Event>) {
        let mut window = self.window();
        for event in events {
            window.weight += event.weight();
            window.events.push_back(event);
        }
        while window.events.len() > MOST_EVENTS || window.weight > MOST_WEIGHT {
            let Some(oldest) = window.events.pop_front() else { break };
            window.weight -= oldest.weight();
            window.start = oldest.object.revision;
        }
    }

    /// Wakes whoever waits for changes.
    pub(super) fn wake(&self) {
        self.changed.raise();
    }

    /// The oldest revision that a reader may continue from.
    pub(crate) fn start(&self) -> u64 {
        self.window().start
    }

    /// At most `most` changes after a revision, up to another.
    pub(crate) fn between(&self, revision: u64, last: u64, most: usize) -> Events {
        let window = self.window();
        if revision < window.start {
            return Events::TooOld;
        }
        let from = window.events.partition_point(|event| event.object.revision <= revision);
        let events = window.events.range(from..).take_while(|event| event.object.revision <= last);
        Events::Some(events.take(most).cloned().collect())
    }

    /// Hears of every commit that changed something here.
    pub(crate) fn follow(&self) -> Follower {
        self.changed.follow()
    }
}
