//! What came about in a run: a run in which nothing happens holds every rule.

use std::collections::BTreeMap;
use std::fmt;

/// How many guests, or pods where there are no guests, were made, ran, and ended after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Were made.
    pub made: usize,
    /// Ran at some time.
    pub ran: usize,
    /// Ran, and have ended or are gone.
    pub ended: usize,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} were made, {} ran, {} of them ended", self.made, self.ran, self.ended)
    }
}

impl std::ops::AddAssign for Progress {
    fn add_assign(&mut self, other: Self) {
        let Self { made, ran, ended } = other;
        self.made += made;
        self.ran += ran;
        self.ended += ended;
    }
}

/// The lives of all that were ever seen, by UID.
#[derive(Debug, Default)]
pub(crate) struct Lives(BTreeMap<String, Life>);

#[derive(Debug, Default)]
struct Life {
    ran: bool,
    ended: bool,
}

impl Lives {
    /// One was seen: whether it runs, or has ended.
    pub(crate) fn see(&mut self, uid: &str, runs: bool, ended: bool) {
        if !self.0.contains_key(uid) {
            self.0.insert(uid.to_owned(), Life::default());
        }
        if let Some(life) = self.0.get_mut(uid) {
            life.ran |= runs;
            life.ended |= ended;
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        let count = |of: fn(&Life) -> bool| self.0.values().filter(|life| of(life)).count();
        Progress { made: self.0.len(), ran: count(|life| life.ran), ended: count(|life| life.ran && life.ended) }
    }
}
