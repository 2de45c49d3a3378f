//! A simulated launcher: what a real one answers and publishes, without QEMU.
//!
//! ```text
//! awaited ──its pod runs──> absent ──sync──> starting ──> running or paused ──> stopping ──> ended ──let go──> gone
//!                                                │                  └──its fate──────────────^                  ^
//!                                                └──it fails to start────────────────────────^   its pod goes ──┘
//! ```
//! What becomes of the guest, and when, is its [`Life`]'s. Time is tokio's, so that a paused clock drives it.

mod spoken;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::vmi::{StartStrategy, VirtualMachineInstance};
use launcher_api::rpc::{Domain, End, State};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tonic::Status;

use super::Behaviour;
use super::fate::{Fate, Life};
use super::ledger::{Ledger, Standing, Who};
use crate::decide::{grace_of, is_alive};

pub(super) use spoken::Spoken;

/// One launcher. It outlives whoever speaks with it.
pub(super) struct Simulated {
    who: Who,
    behaviour: Arc<Behaviour>,
    luck: u64,
    ledger: Option<Arc<dyn Ledger>>,
    now: watch::Sender<Moment>,
    /// Notified after `now` has changed: tokio wakes two receivers of one `watch` in a random order, and a run must repeat.
    told: Notify,
    /// What happens next by itself.
    next: Mutex<Option<AbortHandle>>,
}

/// A launcher at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Moment {
    pub(super) stage: Stage,
    pub(super) domain: Domain,
    /// The addresses of its pod.
    pub(super) addresses: Vec<String>,
    /// Of its guest, once it was told of one.
    guest: Option<Guest>,
}

/// Whether the process is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not yet.
    #[default]
    Awaited,
    Up,
    /// It was let go, and has ended.
    Exited,
    /// Its pod is gone, and it was taken along.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Guest {
    life: Life,
    grace: Duration,
    is_paused: bool,
}

/// What happens by itself.
#[derive(Clone, Copy, Debug)]
enum Event {
    Started,
    Ended(End),
}

impl Simulated {
    pub(super) fn new(who: Who, behaviour: Arc<Behaviour>, luck: u64, ledger: Option<Arc<dyn Ledger>>) -> Self {
        Self {
            who,
            behaviour,
            luck,
            ledger,
            now: watch::Sender::default(),
            told: Notify::new(),
            next: Mutex::default(),
        }
    }

    /// The launcher now, and after every change.
    pub(super) fn watch(&self) -> watch::Receiver<Moment> {
        self.now.subscribe()
    }

    /// The UID of its instance.
    pub(super) fn instance(&self) -> &str {
        &self.who.instance
    }

    /// Pauses the guest, or lets it go on; false if it is not in a state for that.
    pub(super) fn pause(self: &Arc<Self>, paused: bool) -> bool {
        let state = self.answer().map(|domain| domain.state());
        match (state, paused) {
            (Ok(State::Running), true) => {
                self.then(None);
                self.enter(State::PausedByUser, End::Unspecified);
            }
            (Ok(State::PausedByUser | State::PausedByIoError | State::PausedByQemu), false) => {
                self.enter(State::Running, End::Unspecified);
                self.let_run(Duration::ZERO);
            }
            _ => return false,
        }
        true
    }

    pub(super) fn stage(&self) -> Stage {
        self.now.borrow().stage
    }

    /// Its pod runs, and so does the process in it. One of an earlier process of ours may have a guest already, which has run
    /// for so long.
    pub(super) fn appear(
        self: &Arc<Self>,
        addresses: Vec<String>,
        ran: Option<(&VirtualMachineInstance, Duration, u64)>,
    ) {
        if self.stage() != Stage::Awaited {
            self.now.send_if_modified(|now| std::mem::replace(&mut now.addresses, addresses.clone()) != addresses);
            return;
        }
        let mut domain = Domain { state: State::Absent.into(), ..Domain::default() };
        let mut guest = None;
        if let Some((vmi, _, mark)) = ran {
            guest = Some(self.guest_of(vmi));
            let is_paused = guest.is_some_and(|guest| guest.is_paused);
            let (state, end) = match vmi.phase().as_str() {
                "Succeeded" => (State::Ended, End::PoweredOff),
                "Failed" => (State::Ended, End::Crashed),
                _ if is_paused => (State::PausedByUser, End::Unspecified),
                _ => (State::Running, End::Unspecified),
            };
            domain = Domain { sequence: 1, state: state.into(), end: end.into(), mark, ..domain };
        }
        self.now.send_modify(|now| *now = Moment { stage: Stage::Up, domain, addresses, guest });
        self.told.notify_waiters();
        self.note();
        if let Some((_, for_long, _)) = ran {
            self.let_run(for_long);
        }
    }

    /// Its pod is to go: it shuts its guest down, and ends.
    pub(super) fn terminate(self: &Arc<Self>) {
        match self.stage() {
            Stage::Up if is_alive(self.now.borrow().domain.state()) => {
                let grace = self.now.borrow().guest.map_or(Duration::ZERO, |guest| guest.grace);
                self.press_power(grace);
            }
            Stage::Up => self.end(Stage::Gone),
            Stage::Awaited | Stage::Exited | Stage::Gone => {}
        }
    }

    /// Its pod is gone, and all its processes.
    pub(super) fn vanish(&self) {
        if self.stage() != Stage::Gone {
            self.end(Stage::Gone);
        }
    }

    fn end(&self, stage: Stage) {
        self.then(None);
        self.now.send_modify(|now| now.stage = stage);
        self.told.notify_waiters();
        self.note();
    }

    fn guest_of(&self, vmi: &VirtualMachineInstance) -> Guest {
        Guest {
            life: Life::of(vmi, &self.behaviour, self.luck),
            grace: grace_of(vmi),
            is_paused: vmi.spec.start_strategy == Some(StartStrategy::Paused),
        }
    }

    /// Starts the guest, and waits until it has started.
    async fn start(self: &Arc<Self>, vmi: &VirtualMachineInstance, mark: u64) -> Result<Domain, Status> {
        if self.stage() != Stage::Up {
            return Err(Status::unavailable("the launcher has ended"));
        }
        let guest = self.guest_of(vmi);
        let state = self.now.borrow().domain.state();
        match state {
            State::Absent => {}
            State::Starting => return self.started().await,
            _ => {
                self.now.send_modify(|now| now.domain.mark = mark);
                return self.answer();
            }
        }
        self.now.send_modify(|now| {
            now.guest = Some(guest);
            now.domain.mark = mark;
        });
        self.enter(State::Starting, End::Unspecified);
        self.after(self.behaviour.start_delay, Event::Started);
        self.started().await
    }

    async fn started(&self) -> Result<Domain, Status> {
        loop {
            // Before the look, so that nothing is missed in between.
            let told = self.told.notified();
            let moment = self.now.borrow().clone();
            if moment.stage != Stage::Up {
                return Err(Status::unavailable("the launcher has ended"));
            }
            if moment.domain.state() != State::Starting {
                return Ok(moment.domain);
            }
            told.await;
        }
    }

    /// Asks the guest to power off; it does so in its own time, or is killed when the time is over.
    fn press_power(self: &Arc<Self>, grace: Duration) {
        let moment = self.now.borrow().clone();
        if !is_alive(moment.domain.state()) || moment.domain.state() == State::Stopping {
            return;
        }
        let takes = self.behaviour.stop_delay;
        let obeys = moment.guest.is_some_and(|guest| guest.life.fate != Fate::Hang) && takes <= grace;
        self.enter(State::Stopping, End::Unspecified);
        let (delay, end) = if obeys { (takes, End::PoweredOff) } else { (grace, End::Killed) };
        self.after(delay, Event::Ended(end));
    }

    /// The guest ends by itself, if that is its fate and it is not paused.
    fn let_run(self: &Arc<Self>, for_long: Duration) {
        let moment = self.now.borrow().clone();
        let Some(guest) = moment.guest.filter(|_| moment.domain.state() == State::Running) else { return };
        let end = match guest.life.fate {
            Fate::Succeed => End::PoweredOff,
            Fate::Crash => End::Crashed,
            Fate::Stay | Fate::FailToStart | Fate::Hang => return,
        };
        self.after(guest.life.run_for.saturating_sub(for_long), Event::Ended(end));
    }

    fn happens(self: &Arc<Self>, event: Event) {
        if self.stage() != Stage::Up {
            return;
        }
        let guest = self.now.borrow().guest;
        match (event, guest) {
            (Event::Ended(end), _) => self.enter(State::Ended, end),
            (Event::Started, Some(guest)) if guest.life.fate == Fate::FailToStart => {
                self.enter(State::Ended, End::FailedToStart);
            }
            (Event::Started, Some(guest)) if guest.is_paused => self.enter(State::PausedByUser, End::Unspecified),
            (Event::Started, _) => {
                self.enter(State::Running, End::Unspecified);
                self.let_run(Duration::ZERO);
            }
        }
    }

    fn enter(&self, state: State, end: End) {
        self.now.send_modify(|now| {
            now.domain.sequence += 1;
            now.domain.set_state(state);
            now.domain.set_end(end);
        });
        self.told.notify_waiters();
        self.note();
    }

    /// Something happens after so long, in the place of what would have happened.
    fn after(self: &Arc<Self>, delay: Duration, event: Event) {
        self.then(None);
        if delay.is_zero() {
            return self.happens(event);
        }
        let launcher = self.clone();
        let task = tokio::spawn(async move {
            sleep(delay).await;
            launcher.happens(event);
        });
        self.then(Some(task.abort_handle()));
    }

    fn then(&self, next: Option<AbortHandle>) {
        let mut slot = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = std::mem::replace(&mut *slot, next) {
            old.abort();
        }
    }

    /// Who may write is told before anybody else learns of it.
    fn note(&self) {
        let Some(ledger) = &self.ledger else { return };
        let moment = self.now.borrow().clone();
        let standing = match (moment.stage, moment.domain.state()) {
            (Stage::Awaited | Stage::Exited | Stage::Gone, _) => Standing::Gone,
            (Stage::Up, State::Absent | State::Ended | State::Left | State::Unspecified) => Standing::Empty,
            (Stage::Up, State::Awaiting | State::Loaded) => Standing::Waits,
            (Stage::Up, State::Starting) => Standing::Holds { runs: false },
            (
                Stage::Up,
                State::Running | State::PausedByUser | State::PausedByIoError | State::PausedByQemu | State::Stopping,
            ) => Standing::Holds { runs: true },
        };
        ledger.note(&self.who, standing);
    }

    fn answer(&self) -> Result<Domain, Status> {
        let moment = self.now.borrow();
        match moment.stage {
            Stage::Up => Ok(moment.domain.clone()),
            Stage::Awaited | Stage::Exited | Stage::Gone => Err(Status::unavailable("the launcher has ended")),
        }
    }
}

#[cfg(test)]
mod tests;
