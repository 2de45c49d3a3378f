//! Turns for steps of migrations that may take minutes. Without them, a few slow nodes would have all workers wait, and no guest of this
//! node would be started or shut down meanwhile.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::decide::Action;

/// How many steps of migrations may be under way at the same time.
#[derive(Debug)]
pub(super) struct Turns {
    /// Those of guests that run: images are read for their digests, on both nodes.
    slow: Semaphore,
    /// Those of guests that are stopped until it is known where they go on. They do not wait for the slow ones.
    urgent: Semaphore,
}

/// Held while an action is taken.
#[derive(Debug)]
pub(super) enum Turn<'a> {
    /// It needs none.
    Free,
    Taken {
        _place: SemaphorePermit<'a>,
    },
}

impl Turns {
    /// Half of the workers for slow steps, a quarter for urgent ones, and the rest for everything else.
    pub(super) fn among(workers: usize) -> Self {
        Self { slow: Semaphore::new((workers / 2).max(1)), urgent: Semaphore::new((workers / 4).max(1)) }
    }

    /// None if others have taken all turns for such an action.
    pub(super) fn take(&self, action: Action) -> Option<Turn<'_>> {
        let places = match action {
            Action::Prepare | Action::Send => &self.slow,
            Action::Settle | Action::HandOver => &self.urgent,
            Action::Nothing
            | Action::Start
            | Action::Sync
            | Action::Resume
            | Action::Shutdown { .. }
            | Action::Kill
            | Action::Cancel
            | Action::Return
            | Action::Take
            | Action::Delete
            | Action::CleanUp => return Some(Turn::Free),
        };
        Some(Turn::Taken { _place: places.try_acquire().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_moves_leave_workers_for_everything_else() {
        let turns = Turns::among(10);
        let slow: Vec<_> = (0..5).map(|_| turns.take(Action::Send).unwrap()).collect();
        assert!(turns.take(Action::Send).is_none() && turns.take(Action::Prepare).is_none());
        let urgent = [turns.take(Action::HandOver).unwrap(), turns.take(Action::Settle).unwrap()];
        assert!(turns.take(Action::HandOver).is_none());
        for action in [Action::Start, Action::Kill, Action::Cancel, Action::Return, Action::Take] {
            assert!(turns.take(action).is_some(), "{action:?}");
        }
        drop((slow, urgent));
        assert!(turns.take(Action::Send).is_some() && turns.take(Action::Settle).is_some());
        assert!(Turns::among(1).take(Action::Send).is_some());
    }
}
