//! Expectations: what a controller has asked for and its cache does not show yet.
//!
//! A controller that acts on a cache must not act again before the cache has seen the first action. It notes what it
//! asked for, what it sees is taken off, and until nothing is left it does not act. A note that is never fulfilled (the
//! request was lost, the object went before it was seen) is forgotten after a while: acting twice is then the lesser evil.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// After this long an expectation holds nobody back any more.
const PATIENCE: Duration = Duration::from_secs(300);

/// What is expected, by key of the owner.
#[derive(Debug)]
pub struct Expectations<K> {
    open: BTreeMap<K, Open>,
}

#[derive(Debug)]
struct Open {
    creations: usize,
    /// UIDs: a deletion is seen twice, when it is asked for and when the object is gone, and counts once.
    deletions: BTreeSet<String>,
    since: Instant,
}

impl<K: Ord> Default for Expectations<K> {
    fn default() -> Self {
        Self { open: BTreeMap::new() }
    }
}

impl<K: Ord> Expectations<K> {
    /// Whether the owner may act: all it asked for was seen, or was long enough not seen.
    #[must_use]
    pub fn are_met(&self, key: &K, now: Instant) -> bool {
        self.open.get(key).is_none_or(|open| open.is_met() || now.saturating_duration_since(open.since) > PATIENCE)
    }

    /// How long the owner still has to wait at most; none if it may act. Whoever waits must look again then: what was made and
    /// went before it was seen is no news to anybody.
    #[must_use]
    pub fn remaining(&self, key: &K, now: Instant) -> Option<Duration> {
        let open = self.open.get(key).filter(|_| !self.are_met(key, now))?;
        // A moment more, because patience must be over then.
        Some((open.since + PATIENCE).saturating_duration_since(now) + Duration::from_millis(1))
    }

    /// Starts anew: what was open before no longer counts.
    pub fn expect(&mut self, key: K, creations: usize, deletions: impl IntoIterator<Item = String>, now: Instant) {
        let open = Open { creations, deletions: deletions.into_iter().collect(), since: now };
        self.open.insert(key, open);
    }

    /// One of the creations was seen, or will never be because it failed.
    pub fn created(&mut self, key: &K) {
        if let Some(open) = self.open.get_mut(key) {
            open.creations = open.creations.saturating_sub(1);
        }
    }

    /// The deletion of an object was seen, or will never be because it failed.
    pub fn deleted(&mut self, key: &K, uid: &str) {
        if let Some(open) = self.open.get_mut(key) {
            open.deletions.remove(uid);
        }
    }

    /// What is not seen yet, by owner and in words.
    pub fn open(&self, now: Instant) -> impl Iterator<Item = (&K, String)> {
        let open = self.open.iter().filter(move |(key, _)| !self.are_met(key, now));
        open.map(|(key, Open { creations, deletions, .. })| {
            (key, format!("expects {creations} creations and the deletions of {deletions:?}"))
        })
    }

    /// The owner is gone.
    pub fn forget(&mut self, key: &K) {
        self.open.remove(key);
    }
}

impl Open {
    fn is_met(&self) -> bool {
        self.creations == 0 && self.deletions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_waits_for_all_it_asked_for() {
        let now = Instant::now();
        let mut expectations = Expectations::default();
        assert!(expectations.are_met(&"rs", now));
        expectations.expect("rs", 2, ["u".to_owned()], now);
        expectations.created(&"rs");
        expectations.created(&"rs");
        assert!(!expectations.are_met(&"rs", now));
        expectations.deleted(&"rs", "u");
        // It is seen again when the object is gone.
        expectations.deleted(&"rs", "u");
        expectations.created(&"rs");
        assert!(expectations.are_met(&"rs", now));
    }

    #[test]
    fn what_is_never_seen_holds_for_five_minutes() {
        let now = Instant::now();
        let mut expectations = Expectations::default();
        expectations.expect("rs", 1, [], now);
        assert!(!expectations.are_met(&"rs", now + Duration::from_secs(299)));
        assert!(expectations.are_met(&"rs", now + Duration::from_secs(301)));
        let left = expectations.remaining(&"rs", now + Duration::from_secs(100)).unwrap();
        assert!(expectations.are_met(&"rs", now + Duration::from_secs(100) + left));
        assert_eq!(expectations.remaining(&"rs", now + Duration::from_secs(301)), None);
    }
}
