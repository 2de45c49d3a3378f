//! From single results to a verdict.

/// What so many results in a row say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passes,
    Fails,
}

/// Counts equal results in a row.
#[derive(Debug)]
pub(super) struct Counter {
    successes: u32,
    failures: u32,
    last: Option<bool>,
    run: u32,
}

impl Counter {
    /// Thresholds as a probe says them: 1 and 3 where it does not.
    pub(super) fn new(success_threshold: Option<i32>, failure_threshold: Option<i32>) -> Self {
        let threshold = |value: Option<i32>, unsaid: u32| {
            value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(unsaid)
        };
        Self {
            successes: threshold(success_threshold, 1),
            failures: threshold(failure_threshold, 3),
            last: None,
            run: 0,
        }
    }

    /// Takes a result; gives a verdict when its threshold is reached.
    pub(super) fn count(&mut self, passed: bool) -> Option<Verdict> {
        self.run = if self.last == Some(passed) { self.run.saturating_add(1) } else { 1 };
        self.last = Some(passed);
        match passed {
            true => (self.run >= self.successes).then_some(Verdict::Passes),
            false => (self.run >= self.failures).then_some(Verdict::Fails),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_thresholds_one_success_and_three_failures_count() {
        let mut counter = Counter::new(None, None);
        let verdicts: Vec<_> = [true, false, false, false, true].into_iter().map(|one| counter.count(one)).collect();
        assert_eq!(verdicts, [Some(Verdict::Passes), None, None, Some(Verdict::Fails), Some(Verdict::Passes)]);
    }

    proptest! {
        /// Against the definition: the last `threshold` results are all the same.
        #[test]
        fn a_verdict_needs_its_threshold_of_equal_results(
            results in prop::collection::vec(any::<bool>(), 1..50), most in 1_usize..5, least in 1_usize..5,
        ) {
            let mut counter = Counter::new(i32::try_from(most).ok(), i32::try_from(least).ok());
            for end in 1..=results.len() {
                let seen = &results[..end];
                let all = |count: usize, value: bool| end >= count && seen[end - count..].iter().all(|one| *one == value);
                let expected = match seen[end - 1] {
                    true => all(most, true).then_some(Verdict::Passes),
                    false => all(least, false).then_some(Verdict::Fails),
                };
                prop_assert_eq!(counter.count(seen[end - 1]), expected);
            }
        }
    }
}
