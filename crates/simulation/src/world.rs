//! What all parts of a run share: the clock, the log, the faults that are on, and what did not hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apiserver::{Attributes, Decision, Identity};
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};

use crate::chance::Chance;
use crate::ledger::Book;
use crate::log::{Entry, Log};
use crate::rights::{Right, Rights};
use crate::travels::Travels;
use crate::wire::Letter;
use crate::{About, Scene, Seconds, Violation};

/// A request is on its way for so long at most.
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// A process reaches nobody for so long at most.
pub(crate) const LONGEST_CUT: Duration = Duration::from_secs(40);

/// A watch is silent for so long at most.
const LONGEST_STALL: Duration = Duration::from_secs(15);

pub(crate) struct World {
    pub(crate) seed: u64,
    /// What launchers say of themselves.
    pub(crate) ledger: Arc<Book>,
    state: Mutex<State>,
}

struct State {
    started: Option<Instant>,
    log: Log,
    faults: Faults,
    chance: Chance,
    /// Until when a process reaches nobody.
    cut_off: BTreeMap<String, Instant>,
    /// Who holds which lease.
    leaders: BTreeMap<String, String>,
    travels: Travels,
    rights: Rights,
    /// Who made instances, by namespace and name.
    makers: BTreeMap<(String, String), String>,
    /// Who has deleted which instances, by UID.
    takers: BTreeMap<String, String>,
    /// When requests left that made pods after their senders were gone, by namespace and name.
    outlived: BTreeMap<(String, String), Instant>,
    /// When something other than a lease or an event was last written.
    last_write: Option<(Instant, String)>,
    /// How often that was.
    writes: u64,
    violations: Vec<Violation>,
}

/// How often what goes wrong, of a thousand requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) delayed: u32,
    pub(crate) refused: u32,
    pub(crate) conflicts: u32,
    pub(crate) lost_requests: u32,
    pub(crate) lost_answers: u32,
    pub(crate) cut_watches: u32,
    pub(crate) stalled_watches: u32,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Refused(u16),
    LostRequest,
    LostAnswer,
    /// A watch that ends after so long.
    Cut(Duration),
    /// A watch that is silent for a while, and then tells all that it has missed: one cache is older than another.
    Stalled {
        after: Duration,
        lasts: Duration,
    },
}

impl Faults {
    /// Each seed has its own weather: some faults often, some never.
    fn of(chance: &mut Chance, scene: Scene) -> Self {
        let mut often = || chance.one_of(&[0, 5, 20, 60, 150]).copied().unwrap_or(0);
        Self {
            delayed: often(),
            refused: often(),
            conflicts: often(),
            lost_requests: often(),
            lost_answers: often(),
            cut_watches: often() * 3,
            stalled_watches: match scene {
                Scene::Deployments => 0,
                Scene::Services | Scene::VirtualMachines(_) | Scene::Pools(_) => often() * 3,
            },
        }
    }
}

impl World {
    pub(crate) fn new(seed: u64, scene: Scene) -> Self {
        let mut chance = Chance::new(seed, 1);
        let faults = Faults::of(&mut chance, scene);
        let state = State {
            started: None,
            log: Log::default(),
            faults,
            chance,
            cut_off: BTreeMap::new(),
            leaders: BTreeMap::new(),
            travels: Travels::new(seed),
            rights: Rights::default(),
            makers: BTreeMap::new(),
            takers: BTreeMap::new(),
            outlived: BTreeMap::new(),
            last_write: None,
            writes: 0,
            violations: Vec::new(),
        };
        Self { seed, ledger: Arc::default(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock starts with the first look at it.
    pub(crate) fn now(&self) -> Seconds {
        let mut state = self.state();
        let started = *state.started.get_or_insert_with(Instant::now);
        Seconds(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn time(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_millis(self.now().0)
    }

    pub(crate) fn note(&self, text: String) {
        let at = self.now();
        self.state().log.0.push(Entry::Note { at, text });
    }

    pub(crate) fn logged(&self, text: String) {
        let at = self.now();
        self.state().log.0.push(Entry::Logged { at, text });
    }

    pub(crate) fn answered(&self, letter: &Letter, outcome: String) {
        let entry = Entry::Request {
            at: self.now(),
            who: letter.who.clone(),
            method: letter.method.to_string(),
            path: letter.path.clone(),
            makes: letter.makes.clone(),
            outcome,
        };
        self.state().log.0.push(entry);
    }

    pub(crate) fn take_log(&self) -> Log {
        std::mem::take(&mut self.state().log)
    }

    /// Something did not hold.
    pub(crate) fn violated(&self, about: Option<About>, what: String) {
        let at = self.now();
        self.note(format!("VIOLATED: {what}"));
        self.state().violations.push(Violation { at, what, about });
    }

    pub(crate) fn is_violated(&self) -> bool {
        !self.state().violations.is_empty()
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.state().violations.clone()
    }

    /// From now on nothing goes wrong any more.
    pub(crate) fn calm(&self) {
        let mut state = self.state();
        state.faults = Faults::default();
        state.cut_off.clear();
    }

    /// What happens to a request: how long it is on its way, and what becomes of it.
    pub(crate) fn draw(&self, is_write: bool, is_create: bool, is_watch: bool) -> (Duration, Option<Fault>) {
        let mut state = self.state();
        let State { faults, chance, .. } = &mut *state;
        let delay = if chance.permille(faults.delayed) {
            // Now and then long enough to lose a lease.
            let most = if chance.permille(30) { LONGEST_DELAY } else { Duration::from_secs(2) };
            chance.between(Duration::from_millis(1), most)
        } else {
            Duration::ZERO
        };
        let fault = if is_watch && faults.stalled_watches > 0 && chance.permille(faults.stalled_watches) {
            let after = chance.between(Duration::ZERO, Duration::from_secs(20));
            Some(Fault::Stalled { after, lasts: chance.between(Duration::ZERO, LONGEST_STALL) })
        } else if is_watch {
            chance.permille(faults.cut_watches).then(|| {
                match chance.below(4) {
                    // Its place in history is gone.
                    0 => Fault::Refused(410),
                    _ => Fault::Cut(chance.between(Duration::ZERO, Duration::from_secs(20))),
                }
            })
        } else if chance.permille(faults.lost_requests) {
            Some(Fault::LostRequest)
        } else if chance.permille(faults.lost_answers) {
            Some(Fault::LostAnswer)
        } else if chance.permille(faults.refused) {
            chance.one_of(&[429, 500, 503, 504]).copied().map(Fault::Refused)
        } else if is_write && !is_create && chance.permille(faults.conflicts) {
            Some(Fault::Refused(409))
        } else {
            None
        };
        (delay, fault)
    }

    /// A process reaches nobody for a while.
    pub(crate) fn cut_off(&self, process: &str, lasts: Duration) {
        self.state().cut_off.insert(process.to_owned(), Instant::now() + lasts);
    }

    pub(crate) fn is_reachable(&self, process: &str) -> bool {
        self.state().cut_off.get(process).is_none_or(|until| *until <= Instant::now())
    }

    pub(crate) async fn reachable(&self, process: &str) {
        loop {
            let until = self.state().cut_off.get(process).copied().filter(|until| *until > Instant::now());
            match until {
                None => return,
                // It may be over sooner: then nothing goes wrong any more.
                Some(until) => sleep_until(until.min(Instant::now() + Duration::from_secs(1))).await,
            }
        }
    }

    /// A process' write has left.
    pub(crate) fn departs(&self, process: &str) {
        self.state().travels.departs(process);
    }

    /// A process' write has arrived, or never will.
    pub(crate) fn arrives(&self, process: &str) {
        self.state().travels.arrives(process);
    }

    /// Whether a process has a write on its way.
    pub(crate) fn has_departed(&self, process: &str) -> bool {
        self.state().travels.has_departed(process)
    }

    /// A request of somebody was on its way since then.
    pub(crate) fn took(&self, who: &str, since: Instant) {
        self.state().travels.took(who, since, Instant::now());
    }

    /// How long requests of somebody were on their way between two moments.
    pub(crate) fn on_the_way(&self, who: &str, from: Instant, to: Instant) -> Duration {
        self.state().travels.between(who, from, to)
    }

    /// After how long a write arrives whose sender is gone; none, if it never does.
    pub(crate) fn outlives(&self) -> Option<Duration> {
        self.state().travels.outlives()
    }

    /// Somebody has made an instance.
    pub(crate) fn made(&self, place: (String, String), who: &str) {
        self.state().makers.insert(place, who.to_owned());
    }

    /// Who made the last instance of a namespace and a name; the user, if nobody else.
    pub(crate) fn maker(&self, place: &(String, String)) -> Option<String> {
        self.state().makers.get(place).cloned()
    }

    /// Somebody has deleted an instance.
    pub(crate) fn took_down(&self, uid: &str, who: &str) {
        self.state().takers.insert(uid.to_owned(), who.to_owned());
    }

    /// Who deleted an instance, unless it was the user.
    pub(crate) fn taker(&self, uid: &str) -> Option<String> {
        self.state().takers.get(uid).cloned()
    }

    /// A request to make a pod, which left at that time, arrives although its sender is gone.
    pub(crate) fn outlived(&self, place: (String, String), left: Instant) {
        self.state().outlived.insert(place, left);
    }

    /// When the request left that made a pod after its sender was gone.
    pub(crate) fn left(&self, place: &(String, String)) -> Option<Instant> {
        self.state().outlived.get(place).copied()
    }

    pub(crate) fn leads(&self, lease: &str, holder: &str) {
        self.state().leaders.insert(lease.to_owned(), holder.to_owned());
    }

    pub(crate) fn leader(&self, lease: &str) -> String {
        self.state().leaders.get(lease).cloned().unwrap_or_default()
    }

    pub(crate) fn written(&self, what: String) {
        let mut state = self.state();
        state.last_write = Some((Instant::now(), what));
        state.writes += 1;
    }

    /// How often something was written so far: where it is the same as before, so is all else.
    pub(crate) fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Whether somebody may do something was decided. A role that lacks something shows at once, not by what does not come.
    pub(crate) fn decided(&self, who: &Identity, what: Attributes<'_>, decision: &Decision) {
        let Some(right) = Right::of(who, what) else { return };
        if !decision.allowed {
            self.violated(None, format!("{right} is refused by its role"));
        }
        self.state().rights.note(right);
    }

    pub(crate) fn take_rights(&self) -> BTreeSet<Right> {
        self.state().rights.take()
    }

    /// How long ago something was written, and what.
    pub(crate) fn last_write(&self) -> (Duration, String) {
        match &self.state().last_write {
            Some((at, what)) => (at.elapsed(), what.clone()),
            None => (Duration::MAX, String::new()),
        }
    }
}
