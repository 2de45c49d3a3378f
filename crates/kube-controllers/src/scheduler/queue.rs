//! The pods that wait for a node, and when each is tried again.
//!
//! ```text
//! push ──> Active ──pop──> InFlight ──failed──> Unschedulable ──event, 5 min──> Backoff ──due──> Active
//!   └─ with gates ─> Gated    └──retry, or failed after an event that may help ──> Backoff
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::pod::PodInfo;

/// What happened in the cluster, as far as a waiting pod may care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A node was added, changed or removed.
    Node,
    /// A pod came to sit on a node.
    PodAdded,
    /// A pod on a node changed its labels or what it asks for.
    PodChanged,
    /// A pod on a node ended or was removed.
    PodRemoved,
    /// A namespace was added, removed or changed its labels.
    Namespace,
}

impl Event {
    pub(super) const ALL: [Self; 5] = [Self::Node, Self::PodAdded, Self::PodChanged, Self::PodRemoved, Self::Namespace];
}

/// The first pause after a failure; each further failure doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A pause is never longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// After that a pod is tried again even if nothing was heard that may help: the guard against an event that was missed.
const LEFT_OVER: Duration = Duration::from_mins(5);

/// The pods that wait for a node. Times are durations since any one moment, the same for all calls.
///
/// # Guarantees
/// - A pod, known by its UID, is in it once; [`Queue::pop`] gives it out once until [`Queue::failed`] or
///   [`Queue::retry`] brings it back.
/// - Higher priority first; within one priority, first come first served, where a pod that failed comes anew.
/// - An event during an attempt is not lost: if it may help, the pod goes on to its pause at once.
/// - No pod with a scheduling gate is given out.
///
/// # Assumptions
/// The caller pushes pods without a node, and removes those that are bound, ended or deleted: its size is the number of
/// pending pods in the API server.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    entries: BTreeMap<String, Entry>,
    active: BTreeSet<(Reverse<i32>, u64, String)>,
    /// By the end of the pause.
    backoff: BTreeSet<(Duration, String)>,
    /// By the time of the failure.
    unschedulable: BTreeSet<(Duration, String)>,
    /// The same pods by what they wait for: most events concern none of them.
    waiting: BTreeSet<(Event, String)>,
    in_flight: BTreeSet<String>,
    arrivals: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    pod: Arc<PodInfo>,
    arrival: u64,
    attempts: u32,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Gated,
    Active,
    /// Handed out, with what has happened since; `edited` if the pod itself changed.
    InFlight {
        events: BTreeSet<Event>,
        edited: bool,
    },
    Backoff {
        until: Duration,
    },
    Unschedulable {
        since: Duration,
        cured_by: BTreeSet<Event>,
    },
}

impl Queue {
    /// A pod without a node was added or changed. One that failed is tried again if the change matters to scheduling.
    pub fn push(&mut self, pod: Arc<PodInfo>) {
        let Some(mut entry) = self.take(&pod.uid) else {
            let arrival = self.next_arrival();
            let state = if pod.gated { State::Gated } else { State::Active };
            return self.put(Entry { pod, arrival, attempts: 0, state });
        };
        let edited = entry.pod != pod;
        entry.pod = pod;
        entry.state = match entry.state {
            State::InFlight { events, edited: before } => State::InFlight { events, edited: edited || before },
            _ if entry.pod.gated => State::Gated,
            State::Gated => State::Active,
            State::Unschedulable { since, .. } if edited => {
                State::Backoff { until: since.saturating_add(pause(entry.attempts)) }
            }
            unchanged => unchanged,
        };
        self.put(entry);
    }

    /// The next pod to try, if any is due.
    pub fn pop(&mut self, now: Duration) -> Option<Arc<PodInfo>> {
        self.wake(now);
        let (_, _, uid) = self.active.first()?.clone();
        let mut entry = self.take(&uid)?;
        entry.attempts = entry.attempts.saturating_add(1);
        entry.state = State::InFlight { events: BTreeSet::new(), edited: false };
        let pod = Arc::clone(&entry.pod);
        self.put(entry);
        Some(pod)
    }

    /// When [`Queue::pop`] may next have a pod: `now` if it has one already, `None` if only a call can change that.
    #[must_use]
    pub fn next_wakeup(&self, now: Duration) -> Option<Duration> {
        if !self.active.is_empty() {
            return Some(now);
        }
        let backoff = self.backoff.first().map(|(until, _)| *until);
        let left_over = self.unschedulable.first().map(|(since, _)| since.saturating_add(LEFT_OVER));
        backoff.into_iter().chain(left_over).min().map(|due| due.max(now))
    }

    /// No node takes the pod; it waits for one of `cured_by`. Does nothing for a pod that was not handed out.
    pub fn failed(&mut self, uid: &str, now: Duration, cured_by: BTreeSet<Event>) {
        self.put_back(uid, now, |events, edited| {
            let may_help = edited || !events.is_disjoint(&cured_by);
            if may_help { None } else { Some(State::Unschedulable { since: now, cured_by }) }
        });
    }

    /// The attempt broke off for a reason that is not the cluster's state, such as a failed write of the binding.
    pub fn retry(&mut self, uid: &str, now: Duration) {
        self.put_back(uid, now, |_, _| None);
    }

    /// Something happened that pods may wait for.
    pub fn event(&mut self, event: Event) {
        for uid in &self.in_flight {
            if let Some(Entry { state: State::InFlight { events, .. }, .. }) = self.entries.get_mut(uid) {
                events.insert(event);
            }
        }
        let waiting = self.waiting.range((event, String::new())..).take_while(|(wanted, _)| *wanted == event);
        let helped: Vec<_> = waiting.map(|(_, uid)| uid.clone()).collect();
        for uid in helped {
            self.resume(&uid);
        }
    }

    /// The pod no longer waits: it was bound, has ended or is gone.
    pub fn remove(&mut self, uid: &str) {
        self.take(uid);
    }

    /// How many pods wait or are being tried.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no pod waits or is being tried.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn put_back(&mut self, uid: &str, now: Duration, wait: impl FnOnce(&BTreeSet<Event>, bool) -> Option<State>) {
        let Some(Entry { state: State::InFlight { events, edited }, .. }) = self.entries.get_mut(uid) else { return };
        let (events, edited) = (mem::take(events), *edited);
        let Some(mut entry) = self.take(uid) else { return };
        entry.arrival = self.next_arrival();
        let backoff = State::Backoff { until: now.saturating_add(pause(entry.attempts)) };
        entry.state = if entry.pod.gated { State::Gated } else { wait(&events, edited).unwrap_or(backoff) };
        self.put(entry);
    }

    /// From waiting to its pause, which may well be over.
    fn resume(&mut self, uid: &str) {
        let Some(mut entry) = self.take(uid) else { return };
        if let State::Unschedulable { since, .. } = entry.state {
            entry.state = State::Backoff { until: since.saturating_add(pause(entry.attempts)) };
        }
        self.put(entry);
    }

    fn wake(&mut self, now: Duration) {
        while let Some((_, uid)) =
            self.unschedulable.first().filter(|(since, _)| since.saturating_add(LEFT_OVER) <= now).cloned()
        {
            self.resume(&uid);
        }
        while let Some((_, uid)) = self.backoff.first().filter(|(until, _)| *until <= now).cloned() {
            let Some(mut entry) = self.take(&uid) else { return };
            entry.state = State::Active;
            self.put(entry);
        }
    }

    fn next_arrival(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    fn take(&mut self, uid: &str) -> Option<Entry> {
        let entry = self.entries.remove(uid)?;
        match &entry.state {
            State::Gated => {}
            State::Active => {
                self.active.remove(&(Reverse(entry.pod.priority), entry.arrival, uid.to_owned()));
            }
            State::InFlight { .. } => {
                self.in_flight.remove(uid);
            }
            State::Backoff { until } => {
                self.backoff.remove(&(*until, uid.to_owned()));
            }
            State::Unschedulable { since, cured_by } => {
                self.unschedulable.remove(&(*since, uid.to_owned()));
                for event in cured_by {
                    self.waiting.remove(&(*event, uid.to_owned()));
                }
            }
        }
        Some(entry)
    }

    fn put(&mut self, entry: Entry) {
        let uid = entry.pod.uid.clone();
        match &entry.state {
            State::Gated => {}
            State::Active => {
                self.active.insert((Reverse(entry.pod.priority), entry.arrival, uid.clone()));
            }
            State::InFlight { .. } => {
                self.in_flight.insert(uid.clone());
            }
            State::Backoff { until } => {
                self.backoff.insert((*until, uid.clone()));
            }
            State::Unschedulable { since, cured_by } => {
                self.unschedulable.insert((*since, uid.clone()));
                self.waiting.extend(cured_by.iter().map(|event| (*event, uid.clone())));
            }
        }
        self.entries.insert(uid, entry);
    }
}

fn pause(attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1);
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(doublings)).min(LONGEST_PAUSE)
}
