//! When a migration that does not come to an end is helped, and when it is given up. Pure: time is told.

use std::time::Duration;

use tokio::time::Instant;

/// How a migration is to go.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Limits {
    /// Bytes per second; zero is without a limit.
    pub bandwidth: u64,
    /// The longest pause at the switch.
    pub downtime: Duration,
    /// Without any progress, it is given up after this long; zero is never.
    pub progress_timeout: Duration,
    /// For each gigabyte, it may take this long; zero is for ever.
    pub timeout_per_gigabyte: Duration,
    /// A guest that writes faster than its memory is sent is slowed down.
    pub auto_converge: bool,
    /// A guest that is out of time is stopped instead of staying where it is.
    pub may_disrupt: bool,
}

/// What is to be done about a migration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Judgement {
    GoOn,
    /// Stop the guest: then what is left can only shrink.
    Halt,
    GiveUp(String),
}

/// Watches over one migration.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    limits: Limits,
    began: Instant,
    /// Everything that is to be sent at least once.
    bytes: u64,
    /// The least that was ever left, and since when.
    least: (u64, Instant),
    has_halted: bool,
}

const GIGABYTE: u64 = 1_000_000_000;

impl Pace {
    pub(crate) fn new(limits: Limits, bytes: u64, now: Instant) -> Self {
        Self { limits, began: now, bytes, least: (u64::MAX, now), has_halted: false }
    }

    /// Something else is sent from now on, of which other amounts are left. Its time goes on.
    pub(crate) fn turn(&mut self, now: Instant) {
        self.least = (u64::MAX, now);
    }

    /// How long it may take, if there is a limit.
    fn budget(&self) -> Option<Duration> {
        let gigabytes = u32::try_from(self.bytes.div_ceil(GIGABYTE).max(1)).unwrap_or(u32::MAX);
        let budget = self.limits.timeout_per_gigabyte.saturating_mul(gigabytes);
        // A guest that was stopped has as much again: it cannot write any more.
        let budget = if self.has_halted { budget.saturating_mul(2) } else { budget };
        (!budget.is_zero()).then_some(budget)
    }

    /// # Guarantees
    /// - Nothing is given up that makes progress and is within its time.
    /// - A guest is stopped once at most, and only where that is allowed.
    pub(crate) fn judge(&mut self, remaining: u64, now: Instant) -> Judgement {
        if remaining < self.least.0 {
            self.least = (remaining, now);
        }
        let stuck = now.duration_since(self.least.1);
        let patience = self.limits.progress_timeout;
        if !patience.is_zero() && stuck > patience {
            // KubeVirt's words.
            let seconds = stuck.as_secs();
            return Judgement::GiveUp(format!("Live migration stuck for {seconds} sec and has been aborted"));
        }
        let took = now.duration_since(self.began);
        match self.budget() {
            Some(budget) if took > budget && self.limits.may_disrupt && !self.has_halted => {
                self.has_halted = true;
                Judgement::Halt
            }
            Some(budget) if took > budget => {
                let seconds = took.as_secs();
                Judgement::GiveUp(format!(
                    "Live migration is not completed after {seconds} seconds and has been aborted"
                ))
            }
            Some(_) | None => Judgement::GoOn,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        bandwidth: 0,
        downtime: Duration::from_millis(300),
        progress_timeout: Duration::from_secs(150),
        timeout_per_gigabyte: Duration::from_secs(100),
        auto_converge: false,
        may_disrupt: false,
    };

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn what_does_not_get_less_is_given_up() {
        let start = Instant::now();
        let mut pace = Pace::new(LIMITS, 100 * GIGABYTE, start);
        assert_eq!(pace.judge(1000, start), Judgement::GoOn);
        assert_eq!(pace.judge(2000, start + seconds(150)), Judgement::GoOn);
        let stuck = "Live migration stuck for 151 sec and has been aborted".to_owned();
        assert_eq!(pace.judge(1000, start + seconds(151)), Judgement::GiveUp(stuck));
        assert_eq!(pace.clone().judge(999, start + seconds(151)), Judgement::GoOn, "it gets less");
    }

    #[test]
    fn what_takes_too_long_is_given_up_or_stopped_as_is_allowed() {
        let start = Instant::now();
        let late = start + seconds(201);
        let mut pace = Pace::new(LIMITS, 2 * GIGABYTE, start);
        let words = "Live migration is not completed after 201 seconds and has been aborted".to_owned();
        assert_eq!(pace.judge(5, late), Judgement::GiveUp(words));

        let mut pace = Pace::new(Limits { may_disrupt: true, ..LIMITS }, 2 * GIGABYTE, start);
        assert_eq!(pace.judge(5, late), Judgement::Halt);
        assert_eq!(pace.judge(4, late), Judgement::GoOn, "once is enough");
        assert!(matches!(pace.judge(3, start + seconds(401)), Judgement::GiveUp(_)), "as much again, and no more");
    }

    #[test]
    fn memory_has_the_patience_of_its_own_and_the_time_that_disks_have_left() {
        let start = Instant::now();
        let mut pace = Pace::new(LIMITS, 2 * GIGABYTE, start);
        assert_eq!(pace.judge(0, start + seconds(1)), Judgement::GoOn, "the disks are equal");
        pace.turn(start + seconds(140));
        assert_eq!(pace.judge(1 << 30, start + seconds(160)), Judgement::GoOn, "more is left than of the disks");
        assert!(matches!(pace.judge(1, start + seconds(201)), Judgement::GiveUp(_)), "the time is that of both");
    }

    #[test]
    fn zero_is_without_a_limit() {
        let start = Instant::now();
        let none = Limits { progress_timeout: Duration::ZERO, timeout_per_gigabyte: Duration::ZERO, ..LIMITS };
        let mut pace = Pace::new(none, GIGABYTE, start);
        assert_eq!(pace.judge(5, start + seconds(1_000_000)), Judgement::GoOn);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(256)))]

        #[test]
        fn progress_within_time_is_never_given_up(steps in prop::collection::vec((1u64..30, 1u64..100), 1..60)) {
            let start = Instant::now();
            let mut pace = Pace::new(LIMITS, 20 * GIGABYTE, start);
            let (mut now, mut remaining) = (start, 1_000_000u64);
            for (pause, less) in steps {
                now += seconds(pause);
                remaining -= less;
                if now.duration_since(start) <= seconds(2000) {
                    prop_assert_eq!(pace.judge(remaining, now), Judgement::GoOn);
                }
            }
        }
    }
}
