//! The queue without tasks and clocks: a state machine that is told the time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long a key waits after its failures: twice as long each time, between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// Never longer than this.
    pub most: Duration,
}

impl Default for Backoff {
    /// As in Kubernetes.
    fn default() -> Self {
        Self { first: Duration::from_millis(5), most: Duration::from_secs(1000) }
    }
}

impl Backoff {
    pub(crate) fn after(self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.most)
    }
}

/// The keys of a queue at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueState<K> {
    /// Those that wait to be handed out, the next one first.
    pub waiting: Vec<K>,
    /// Those that are being worked on, and since when.
    pub working: Vec<(K, Instant)>,
    /// Those that come later, and when.
    pub delayed: Vec<(K, Instant)>,
    /// Those that failed, and how often in a row.
    pub failures: Vec<(K, u32)>,
}

/// Where a key stands among those that are ready.
type Place = (Reverse<i32>, u64);

pub(super) struct Core<K> {
    backoff: Backoff,
    /// Added and not handed out since: with its place, and since when.
    dirty: BTreeMap<K, (Place, Instant)>,
    /// Those of them that nobody works on, in order.
    ready: BTreeMap<Place, K>,
    /// With since when.
    working: BTreeMap<K, Instant>,
    delayed: BTreeMap<K, Instant>,
    failures: BTreeMap<K, u32>,
    arrivals: u64,
    closed: bool,
}

impl<K: Ord + Clone> Core<K> {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            dirty: BTreeMap::new(),
            ready: BTreeMap::new(),
            working: BTreeMap::new(),
            delayed: BTreeMap::new(),
            failures: BTreeMap::new(),
            arrivals: 0,
            closed: false,
        }
    }

    /// Adds a key. Tells whether it was not waiting already.
    pub(super) fn add(&mut self, key: K, priority: i32, now: Instant) -> bool {
        if self.closed {
            return false;
        }
        if let Some(((old, arrival), since)) = self.dirty.get(&key).copied() {
            if Reverse(priority) < old {
                let place = (Reverse(priority), arrival);
                self.dirty.insert(key, (place, since));
                if let Some(key) = self.ready.remove(&(old, arrival)) {
                    self.ready.insert(place, key);
                }
            }
            return false;
        }
        self.arrivals += 1;
        let place = (Reverse(priority), self.arrivals);
        self.dirty.insert(key.clone(), (place, now));
        if !self.working.contains_key(&key) {
            self.ready.insert(place, key);
        }
        true
    }

    pub(super) fn add_at(&mut self, key: K, at: Instant) {
        if !self.closed {
            let slot = self.delayed.entry(key).or_insert(at);
            *slot = at.min(*slot);
        }
    }

    /// Hands a key out, with how long it waited.
    pub(super) fn take(&mut self, now: Instant) -> Option<(K, Duration)> {
        let due: Vec<K> = self.delayed.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.delayed.remove(&key);
            self.add(key, 0, now);
        }
        let (_, key) = self.ready.pop_first()?;
        let since = self.dirty.remove(&key).map_or(now, |(_, since)| since);
        self.working.insert(key.clone(), now);
        Some((key, now.saturating_duration_since(since)))
    }

    pub(super) fn done(&mut self, key: &K) {
        self.working.remove(key);
        if let Some((place, _)) = self.dirty.get(key) {
            self.ready.insert(*place, key.clone());
        }
    }

    /// Counts a failure and tells how long to wait.
    pub(super) fn failed(&mut self, key: &K) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        *failures = failures.saturating_add(1);
        self.backoff.after(*failures)
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    pub(super) fn failures(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    /// When the next delayed key is due.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.delayed.values().min().copied()
    }

    pub(super) fn state(&self) -> QueueState<K> {
        let pairs = |times: &BTreeMap<K, Instant>| times.iter().map(|(key, at)| (key.clone(), *at)).collect();
        QueueState {
            waiting: self.ready.values().cloned().collect(),
            working: pairs(&self.working),
            delayed: pairs(&self.delayed),
            failures: self.failures.iter().map(|(key, failures)| (key.clone(), *failures)).collect(),
        }
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Add(u8, i32),
        AddAt(u8, u64),
        Take,
        Done(u8),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0_u8..4, 0_i32..3).prop_map(|(key, priority)| Step::Add(key, priority)),
            1 => (0_u8..4, 0_u64..20).prop_map(|(key, delay)| Step::AddAt(key, delay)),
            4 => Just(Step::Take),
            2 => (0_u8..4).prop_map(Step::Done),
            1 => (0_u64..20).prop_map(Step::Pass),
        ]
    }

    proptest! {
        /// Against a model that keeps lists: what waits, with priorities and arrivals, and what is worked on.
        #[test]
        fn keys_come_in_order_and_never_twice_at_once(steps in prop::collection::vec(step(), 0..60)) {
            let start = Instant::now();
            let mut now = start;
            let mut core = Core::new(Backoff::default());
            let (mut waiting, mut working, mut delayed) = (Vec::<(u8, i32)>::new(), Vec::<u8>::new(), Vec::<(u8, Instant)>::new());
            let add = |waiting: &mut Vec<(u8, i32)>, key: u8, priority: i32| {
                match waiting.iter_mut().find(|(one, _)| *one == key) {
                    Some((_, old)) => *old = (*old).max(priority),
                    None => waiting.push((key, priority)),
                }
            };
            for step in steps {
                match step {
                    Step::Add(key, priority) => {
                        core.add(key, priority, now);
                        add(&mut waiting, key, priority);
                    }
                    Step::AddAt(key, delay) => {
                        let at = now + Duration::from_secs(delay);
                        core.add_at(key, at);
                        match delayed.iter_mut().find(|(one, _)| *one == key) {
                            Some((_, old)) => *old = at.min(*old),
                            None => delayed.push((key, at)),
                        }
                    }
                    Step::Take => {
                        let mut due: Vec<u8> = delayed.iter().filter(|(_, at)| *at <= now).map(|(key, _)| *key).collect();
                        due.sort_unstable();
                        delayed.retain(|(_, at)| *at > now);
                        for key in due {
                            add(&mut waiting, key, 0);
                        }
                        let free = waiting.iter().filter(|(key, _)| !working.contains(key));
                        let best = free.clone().map(|(_, priority)| *priority).max();
                        let expected = free.clone().find(|(_, priority)| Some(*priority) == best).map(|(key, _)| *key);
                        let taken = core.take(now).map(|(key, _)| key);
                        prop_assert_eq!(taken, expected);
                        if let Some(key) = taken {
                            waiting.retain(|(one, _)| *one != key);
                            working.push(key);
                        }
                    }
                    Step::Done(key) => {
                        core.done(&key);
                        working.retain(|one| *one != key);
                    }
                    Step::Pass(seconds) => now += Duration::from_secs(seconds),
                }
                // Done of a key that nobody took changes nothing that can be seen.
                prop_assert!(core.ready() <= waiting.len());
            }
        }
    }

    #[test]
    fn a_backoff_grows_to_its_limit() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) };
        let waits: Vec<u64> = [1, 2, 3, 7, 40, u32::MAX].map(|failures| backoff.after(failures).as_secs()).to_vec();
        assert_eq!(waits, [1, 2, 4, 60, 60, 60]);
    }
}
