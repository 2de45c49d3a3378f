//! What is on its way: which writes, for how long, and what becomes of one whose sender is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::chance::Chance;

/// So many writes of a thousand arrive although their sender is gone.
const OUTLIVE: u32 = 700;
/// So long after the end of its sender a write arrives at most.
const LATEST: Duration = Duration::from_secs(20);

pub(crate) struct Travels {
    chance: Chance,
    /// Writes that are on their way, by process.
    writes: BTreeMap<String, usize>,
    /// When requests were on their way, by sender. Where they overlap, they are one.
    times: BTreeMap<String, Vec<(Instant, Instant)>>,
}

impl Travels {
    pub(crate) fn new(seed: u64) -> Self {
        Self { chance: Chance::new(seed, 6), writes: BTreeMap::new(), times: BTreeMap::new() }
    }

    pub(crate) fn departs(&mut self, process: &str) {
        *self.writes.entry(process.to_owned()).or_default() += 1;
    }

    pub(crate) fn arrives(&mut self, process: &str) {
        if let Some(count) = self.writes.get_mut(process) {
            *count = count.saturating_sub(1);
        }
    }

    pub(crate) fn has_departed(&self, process: &str) -> bool {
        self.writes.get(process).is_some_and(|count| *count > 0)
    }

    pub(crate) fn outlives(&mut self) -> Option<Duration> {
        self.chance.permille(OUTLIVE).then(|| self.chance.between(Duration::ZERO, LATEST))
    }

    pub(crate) fn took(&mut self, who: &str, since: Instant, until: Instant) {
        let times = self.times.entry(who.to_owned()).or_default();
        let mut merged = (since, until);
        times.retain(|(from, to)| {
            let apart = *to < merged.0 || merged.1 < *from;
            if !apart {
                merged = (merged.0.min(*from), merged.1.max(*to));
            }
            apart
        });
        times.push(merged);
    }

    pub(crate) fn between(&self, who: &str, from: Instant, to: Instant) -> Duration {
        let times = self.times.get(who).map(Vec::as_slice).unwrap_or_default();
        times.iter().map(|(since, until)| (*until).min(to).saturating_duration_since((*since).max(from))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_the_way_counts_once_and_only_within_its_bounds() {
        let (start, mut travels) = (Instant::now(), Travels::new(0));
        let at = |seconds| start + Duration::from_secs(seconds);
        travels.took("a", at(10), at(20));
        travels.took("a", at(15), at(25));
        travels.took("a", at(40), at(50));
        travels.took("b", at(0), at(100));
        assert_eq!(travels.between("a", at(0), at(100)), Duration::from_secs(25));
        assert_eq!(travels.between("a", at(12), at(45)), Duration::from_secs(18));
        assert_eq!(travels.between("c", at(0), at(100)), Duration::ZERO);
    }
}
