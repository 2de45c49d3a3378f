//! What becomes of a life whose grant the disk does not take.

use std::time::Duration;

use tokio::time::Instant;

use super::{Action, Lifecycle, Told};

/// How soon a grant is written again that the disk did not take.
pub(super) const KEEP_AGAIN: Duration = Duration::from_secs(1);

/// Something that QEMU told, to be heard once more.
#[derive(Clone, Debug)]
pub(super) struct Unheard {
    at: Instant,
    told: Told,
}

impl Lifecycle {
    /// The disk did not take the grant that was to be kept: nothing has happened, and the life is what it was before. Whoever asked
    /// for it may ask again. QEMU does not repeat what it told, so that this is heard again later.
    pub fn unkept(&mut self, before: Self, told: Option<Told>, now: Instant) {
        *self = before;
        let told = told.or_else(|| self.unheard.take().map(|unheard| unheard.told));
        self.unheard = told.map(|told| Unheard { at: now + KEEP_AGAIN, told });
    }

    pub(super) fn unheard_due(&self) -> Option<Instant> {
        self.unheard.as_ref().map(|unheard| unheard.at)
    }

    pub(super) fn hear_again(&mut self, now: Instant) -> Option<Vec<Action>> {
        let unheard = self.unheard.take_if(|unheard| unheard.at <= now)?;
        Some(self.told(unheard.told))
    }
}
