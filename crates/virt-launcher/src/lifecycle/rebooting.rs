//! A reboot by the power button, for guests without an agent.
//!
//! ```text
//! reboot ──> Asked ──the guest powers off──> Held ──reset──> it runs again
//!              └──too late, or it is to end──> as if nobody had asked
//! ```
//! QEMU holds a guest that powers off meanwhile, instead of ending with it.

use std::time::Duration;

use tokio::time::Instant;

use super::{Action, Denied, Lifecycle};
use crate::domain::{Course, State};

/// How long a guest may take to power off. After that, whoever powers it off means it.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);

/// How far a reboot by the power button is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rebooting {
    /// The button was pressed.
    Asked { until: Instant },
    /// The guest has powered off, and is being reset.
    Held,
}

impl Lifecycle {
    /// Whether the guest has powered off to start again. The stop that QEMU tells of then is nobody's pause.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.rebooting == Some(Rebooting::Held)
    }

    pub(super) fn reboot_due(&self) -> Option<Instant> {
        match self.rebooting {
            Some(Rebooting::Asked { until }) => Some(until),
            Some(Rebooting::Held) | None => None,
        }
    }

    /// Presses the button; once more for whoever asks again.
    pub(super) fn reboot(&mut self, now: Instant) -> Result<Vec<Action>, Denied> {
        if self.course() == Some(&Course::UnderWay) {
            return Err(Denied::Migrating);
        }
        self.rebooting = Some(Rebooting::Asked { until: now + PATIENCE });
        Ok(vec![Action::PowerCycle])
    }

    /// The guest has powered off, or ends for another reason, and QEMU holds it.
    pub(super) fn powered_off(&mut self, reason: String) -> Vec<Action> {
        let is_asked = matches!(self.rebooting, Some(Rebooting::Asked { .. }));
        if is_asked && reason == "guest-shutdown" && self.told.is_none() && self.domain.state == State::Running {
            self.rebooting = Some(Rebooting::Held);
            return vec![Action::LetPowerOff, Action::Reset];
        }
        // A guest that must not reboot ends where it would have started again.
        let is_reset = std::mem::take(&mut self.rebooting) == Some(Rebooting::Held);
        self.told.get_or_insert(if is_reset { "guest-reset".to_owned() } else { reason });
        if is_reset { vec![] } else { self.kill() }
    }

    /// Lets QEMU end with the guest again.
    pub(super) fn give_up_reboot(&mut self) -> Option<Action> {
        let asked = self.rebooting.take_if(|stage| matches!(stage, Rebooting::Asked { .. }));
        asked.map(|_| Action::LetPowerOff)
    }

    pub(super) fn reboot_is_late(&mut self, now: Instant) -> Vec<Action> {
        if self.reboot_due().is_some_and(|until| until <= now) {
            return self.give_up_reboot().into_iter().collect();
        }
        vec![]
    }
}
