//! The life of one guest in one launcher: a pure function of requests, events and time.
//!
//! ```text
//! boot ──────> Starting ──> Running <──> Paused ──part──> Left ──given──> (it ends here, and lives on there)
//!                              ^                           │
//! arrival ──> Awaiting ──> Loaded ──take──> as it was      └──returned, or QEMU could not send it──> as it was
//!
//! any of them ──> Stopping ──> Ended
//! ```
//! What happens to a guest on its way out, while its memory is copied (under way) and from the moment that it is stopped for the last
//! of it (parted):
//!
//! | what happens | under way | parted | given |
//! |---|---|---|---|
//! | pause, unpause | as always; it arrives as it is when it parts | denied: try again | denied |
//! | reset, or the guest reboots | as always | denied; a stopped guest does not | denied |
//! | disk error | paused, and arrives so | cannot be | cannot be |
//! | shutdown (the instance is deleted) | the migration is given up, then as always | denied: whoever has it in the end does it | kill |
//! | power-off, panic, QEMU ends | it has ended; what was sent is of no use | ended on the way: the target goes on if it has all | moved |
//! | kill | killed | killed: ended on the way | moved |
//! | cancel | asked of QEMU, whose last event decides | denied: too late | denied |
//! | QEMU says failed or cancelled | it stays, as it is | it stays, as it was | cannot be |
//! | the connection breaks | QEMU fails, and it stays | cut: it stays stopped until the target has it or has refused it | nothing |
//! | QEMU says completed | cannot be | given | given |
//! | the target has refused | it stays | it stays, as it was | it stays, as it was |
//!
//! The driver feeds it inputs one at a time and carries its actions out in order. It decides; it does nothing itself.
//!
//! # Guarantees
//! - The vCPUs are let run only by a launcher that holds the [`Grant`], after that was written down.
//! - A grant is written down before anybody is told of it. If the disk does not take it, what led to it has not happened.
//! - A guest that has parted runs here again only if QEMU could not send all of it, or the other launcher has refused it for good. So
//!   who has all of it, and knows that this launcher is gone, may go on.

mod keeping;
mod moving;
mod rebooting;
#[cfg(test)]
mod tests;
mod words;

use std::time::Duration;

use tokio::time::Instant;

use crate::domain::{Course, Domain, End, Exit, Pause, State, end_of};
use crate::grant::Grant;
use keeping::Unheard;
use rebooting::Rebooting;
pub use words::{Action, Denied, Request, Told};

/// How often a guest that was asked to power off is asked again. Some read the button only late in their boot.
pub const PRESS_AGAIN: Duration = Duration::from_secs(5);

/// A guest's state, and what is pending.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    domain: Domain,
    grant: Grant,
    /// It is to stay paused when it is up.
    paused: bool,
    /// The guest ran at least once.
    started: bool,
    /// The launcher has killed it.
    killed: bool,
    /// The next stop was asked for by a user.
    pausing: bool,
    /// Sending it was given up: it does not part any more.
    aborting: bool,
    /// The next stop is for its migration.
    halting: bool,
    /// The next stop is because of a disk.
    io_error: Option<String>,
    /// QEMU has said what came of sending it; until then it sends, or waits for an answer.
    has_decided: bool,
    /// Its clock stood still on the way here.
    clock_is_late: bool,
    /// What QEMU told about its end.
    told: Option<String>,
    /// It was killed for an internal error of QEMU; whether KVM is to blame.
    internal_error: Option<bool>,
    /// When a stopping guest is killed, and when it is asked again.
    kill_at: Option<Instant>,
    press_at: Option<Instant>,
    /// How far a reboot by the power button is.
    rebooting: Option<Rebooting>,
    /// What QEMU told when the disk did not take the grant that followed from it.
    unheard: Option<Unheard>,
}

impl Lifecycle {
    /// A guest that boots here; it stays paused if its start strategy says so.
    #[must_use]
    pub fn boot(paused: bool) -> Self {
        Self::new(Grant::Holder, paused)
    }

    /// A guest whose state will come from another launcher.
    #[must_use]
    pub fn arrival(from: &str) -> Self {
        Self::new(Grant::Awaiting { from: from.to_owned() }, false)
    }

    fn new(grant: Grant, paused: bool) -> Self {
        Self {
            domain: Domain::starting(),
            grant,
            paused,
            started: false,
            killed: false,
            pausing: false,
            aborting: false,
            halting: false,
            io_error: None,
            has_decided: false,
            clock_is_late: false,
            told: None,
            internal_error: None,
            kill_at: None,
            press_at: None,
            rebooting: None,
            unheard: None,
        }
    }

    /// QEMU is up, and nothing runs in it.
    pub fn up(&mut self) -> Vec<Action> {
        let mut actions = vec![Action::Keep(self.grant.clone())];
        match (&self.grant, self.paused) {
            (Grant::Holder, false) => actions.push(Action::Continue),
            // Whoever unpauses it starts it.
            (Grant::Holder, true) => actions.extend(self.enter(State::Paused(Pause::ByUser))),
            (Grant::Given { .. } | Grant::Awaiting { .. } | Grant::Renounced, _) => {
                actions.extend(self.enter(State::Awaiting));
            }
        }
        actions
    }

    /// Who may write.
    #[must_use]
    pub fn grant(&self) -> &Grant {
        &self.grant
    }

    /// The guest as everyone sees it.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// When something is due although nothing happens.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        [self.kill_at, self.press_at, self.reboot_due(), self.unheard_due()].into_iter().flatten().min()
    }

    /// A request: taken with what is to be done, or denied. What is already so is taken and needs nothing.
    ///
    /// # Errors
    /// When the guest is in no state for it.
    pub fn request(&mut self, request: &Request, now: Instant) -> Result<Vec<Action>, Denied> {
        match (request, &self.domain.state) {
            (Request::Kill, State::Ended(_)) | (Request::Shutdown { .. }, State::Ended(_)) => Ok(vec![]),
            (_, State::Ended(_)) => Err(Denied::Ended),
            (Request::Kill, _) => Ok(self.kill()),
            (Request::Stay { to, why }, _) => self.stay(to, why),
            (Request::Progress(progress), _) => Ok(self.progressed(*progress)),
            // It may be elsewhere by now, and must not run here to power off.
            (Request::Shutdown { .. }, State::Left) if self.has_parted() => Err(Denied::Away),
            (Request::Shutdown { grace }, _) => Ok(self.shut_down(*grace, now)),
            (_, State::Starting) => Err(Denied::Starting),
            (_, State::Stopping) => Err(Denied::Stopping),
            (_, _) if self.is_held() => Err(Denied::Rebooting),
            (Request::Leave { to }, State::Running | State::Paused(_)) => self.leave(to),
            (Request::Part { to }, State::Running | State::Paused(_)) => self.part(to),
            (Request::Cut { to }, State::Left) => self.cut(to),
            (Request::Cancel { to }, State::Running | State::Paused(_)) => {
                self.under_way(to)?;
                self.aborting = true;
                Ok(vec![Action::Abort])
            }
            (Request::Halt { to }, State::Running) => {
                self.under_way(to)?;
                self.halting = true;
                Ok(vec![Action::Stop])
            }
            (Request::Halt { .. }, State::Paused(_)) => Ok(vec![]),
            (Request::Give { to }, State::Left) => self.give(to),
            (Request::Returned { by }, State::Left) => self.returned(by),
            (Request::Take { from, paused }, State::Loaded) => self.take(from, *paused),
            (Request::Renounce, State::Awaiting | State::Loaded) => {
                let kept = self.keep(self.grant.renounce()?);
                Ok([vec![kept], self.kill()].concat())
            }
            // Told again what was done.
            (Request::Take { .. } | Request::Returned { .. }, State::Running | State::Paused(_)) => Ok(vec![]),
            (Request::Give { .. } | Request::Renounce | Request::Cut { .. }, State::Running | State::Paused(_)) => {
                Err(Denied::Here)
            }
            (_, State::Awaiting | State::Loaded | State::Left) => Err(Denied::Away),
            // It goes on by itself when its migration has ended.
            (Request::Unpause, State::Paused(Pause::ForMigration)) => Err(Denied::Away),
            (Request::Pause, State::Paused(Pause::ForMigration)) => Ok(self.enter(State::Paused(Pause::ByUser))),
            (Request::Pause, State::Paused(_)) | (Request::Unpause, State::Running) => Ok(vec![]),
            (Request::Pause, State::Running) => {
                self.pausing = true;
                Ok(vec![Action::Stop])
            }
            (Request::Unpause, State::Paused(_)) => Ok(vec![Action::Continue]),
            (Request::Reset, State::Running | State::Paused(_)) => Ok(vec![Action::Reset]),
            (Request::Reboot, State::Running) => self.reboot(now),
            (Request::Reboot, State::Paused(_)) => Err(Denied::Paused),
        }
    }

    /// Something that QEMU told.
    pub fn told(&mut self, told: Told) -> Vec<Action> {
        if matches!(self.domain.state, State::Ended(_)) {
            return vec![];
        }
        match told {
            // Somebody at the monitor let it run, who may not: another launcher may be writing to the same disks.
            Told::Resumed if !self.grant.may_write() => self.kill(),
            Told::Migrated => self.migrated(),
            Told::NotMigrated => self.not_migrated(),
            Told::StoppedToPart => self.stopped_to_part(),
            Told::Resumed => {
                self.started = true;
                self.pausing = false;
                self.halting = false;
                self.io_error = None;
                self.rebooting.take_if(|stage| *stage == Rebooting::Held);
                // A guest that is to power off must run to do so; it stays on its way out.
                if self.domain.state == State::Stopping { vec![] } else { self.enter(State::Running) }
            }
            // QEMU stops what it sends and what it has loaded.
            Told::Stopped
                if matches!(self.domain.state, State::Stopping | State::Awaiting | State::Loaded | State::Left) =>
            {
                vec![]
            }
            Told::Stopped => self.stopped(),
            Told::IoError(words) => {
                // The order of the two events is not promised.
                if self.domain.state == State::Paused(Pause::ByQemu) {
                    return self.enter_with(State::Paused(Pause::IoError), words);
                }
                self.io_error = Some(words);
                vec![]
            }
            Told::Reset => {
                self.domain.resets += 1;
                let mut actions = self.publish();
                // A guest that was held when it had powered off starts again.
                actions.extend(self.is_held().then_some(Action::Continue));
                actions
            }
            Told::Panicked => {
                self.told = Some("guest-panic".to_owned());
                vec![]
            }
            Told::InternalError { kvm_is_suspect } => {
                // Nothing brings such a guest back; left alone it would look like one that is paused.
                self.internal_error.get_or_insert(kvm_is_suspect);
                self.kill()
            }
            Told::Shutdown(reason) if self.rebooting.is_some() => self.powered_off(reason),
            Told::Shutdown(reason) => {
                // A panic is the cause, whatever QEMU calls what follows from it.
                self.told.get_or_insert(reason);
                vec![]
            }
            Told::Agent(connected) if connected == self.domain.agent_connected => vec![],
            Told::Agent(connected) => {
                self.domain.agent_connected = connected;
                let mut actions = self.publish();
                if connected && std::mem::take(&mut self.clock_is_late) {
                    actions.push(Action::SetClock);
                }
                actions
            }
        }
    }

    /// The vCPUs are stopped, for one of several reasons.
    fn stopped(&mut self) -> Vec<Action> {
        let halting = std::mem::take(&mut self.halting);
        let pause = match (std::mem::take(&mut self.pausing), self.io_error.take()) {
            (true, _) => Pause::ByUser,
            (false, Some(words)) => return self.enter_with(State::Paused(Pause::IoError), words),
            (false, None) if halting => Pause::ForMigration,
            (false, None) => Pause::ByQemu,
        };
        self.enter(State::Paused(pause))
    }

    /// QEMU is gone.
    pub fn exited(&mut self, exit: &Exit) -> Vec<Action> {
        let end = match (&self.grant, self.internal_error) {
            (Grant::Given { .. }, _) => End::Moved,
            (Grant::Awaiting { .. } | Grant::Renounced, _) => End::NotTaken { words: exit.words.clone() },
            (Grant::Holder, _) if self.has_parted() => End::OnTheWay { words: exit.words.clone() },
            (Grant::Holder, Some(kvm_is_suspect)) => End::InternalError { kvm_is_suspect, words: exit.words.clone() },
            (Grant::Holder, None) => end_of(exit, self.told.as_deref(), self.killed, self.started),
        };
        self.kill_at = None;
        self.press_at = None;
        self.rebooting = None;
        self.unheard = None;
        self.domain.agent_connected = false;
        self.enter(State::Ended(end))
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) -> Vec<Action> {
        if self.kill_at.is_some_and(|at| at <= now) {
            return self.kill();
        }
        if self.press_at.is_some_and(|at| at <= now) {
            self.press_at = Some(now + PRESS_AGAIN);
            return vec![Action::PressPower];
        }
        if let Some(actions) = self.hear_again(now) {
            return actions;
        }
        self.reboot_is_late(now)
    }

    fn shut_down(&mut self, grace: Duration, now: Instant) -> Vec<Action> {
        // What may not run here cannot power off here.
        if grace.is_zero() || self.killed || !self.grant.may_write() {
            return self.kill();
        }
        let kill_at = now + grace;
        // A second request may shorten the time that is left, and never makes it longer.
        self.kill_at = Some(self.kill_at.map_or(kill_at, |at| at.min(kill_at)));
        if self.domain.state == State::Stopping {
            return vec![];
        }
        let was_paused = matches!(self.domain.state, State::Paused(_) | State::Left);
        self.press_at = Some(now + PRESS_AGAIN);
        let mut actions = self.enter(State::Stopping);
        actions.extend(self.give_up_reboot());
        // Where a guest is to end it need not go.
        if self.course() == Some(&Course::UnderWay) {
            self.aborting = true;
            actions.push(Action::Abort);
        }
        // Stopped vCPUs cannot see a button.
        if was_paused {
            actions.push(Action::Continue);
        }
        actions.push(Action::PressPower);
        actions
    }

    fn kill(&mut self) -> Vec<Action> {
        self.kill_at = None;
        self.press_at = None;
        self.rebooting = None;
        self.unheard = None;
        if std::mem::replace(&mut self.killed, true) {
            return vec![];
        }
        let mut actions = if self.domain.state == State::Stopping { vec![] } else { self.enter(State::Stopping) };
        actions.push(Action::Kill);
        actions
    }

    fn keep(&mut self, grant: Grant) -> Action {
        self.grant = grant.clone();
        Action::Keep(grant)
    }

    fn enter(&mut self, state: State) -> Vec<Action> {
        self.enter_with(state, String::new())
    }

    fn enter_with(&mut self, state: State, io_error: String) -> Vec<Action> {
        if self.domain.state == state && self.domain.io_error == io_error {
            return vec![];
        }
        self.domain.state = state;
        self.domain.io_error = io_error;
        self.publish()
    }

    fn publish(&mut self) -> Vec<Action> {
        self.domain.sequence += 1;
        vec![Action::Publish]
    }
}
