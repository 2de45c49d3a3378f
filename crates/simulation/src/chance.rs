//! Chance, drawn from one seed.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// A generator of its own for each purpose, so that one more draw here does not change everything there.
pub(crate) struct Chance(StdRng);

impl Chance {
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        Self(StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(purpose)))
    }

    /// True so many times of a thousand.
    pub(crate) fn permille(&mut self, times: u32) -> bool {
        self.0.random_range(0..1000) < times
    }

    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.0.random_range(0..end.max(1))
    }

    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let (least, most) = (least.as_millis(), most.as_millis());
        let millis = self.0.random_range(least..=most.max(least));
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    pub(crate) fn one_of<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        let index = self.below(u32::try_from(choices.len()).unwrap_or(u32::MAX));
        choices.get(usize::try_from(index).unwrap_or(0))
    }
}
