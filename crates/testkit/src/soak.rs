//! How long tests go on that could go on for ever: kills, seeds, random sequences.

use std::ops::Range;

use crate::needs::CHOICE;

/// How many times as long as usual. `make soak` sets it.
pub const FACTOR: &str = "ORLOP_SOAK";
/// What seeds begin with: another in each round of `make soak`.
pub const BASE: &str = "ORLOP_SOAK_SEED";

/// How many rounds a test makes that usually makes so many: more when soaking, a tenth when it must be fast.
#[must_use]
pub fn rounds(usual: usize) -> usize {
    match number(FACTOR).and_then(|factor| usize::try_from(factor).ok()) {
        Some(factor) => usual.saturating_mul(factor.max(1)),
        None if std::env::var(CHOICE).is_ok_and(|choice| choice == "fast") => usual.div_ceil(10),
        None => usual,
    }
}

/// How many cases a property test makes up that usually makes so many.
#[must_use]
pub fn cases(usual: u32) -> u32 {
    usize::try_from(usual).ok().and_then(|usual| u32::try_from(rounds(usual)).ok()).unwrap_or(u32::MAX)
}

/// The seeds of a test that usually has so many: the one in the variable, or as many as there are rounds.
#[must_use]
pub fn seeds(variable: &str, usual: usize) -> Range<u64> {
    let first = number(variable).or_else(|| number(BASE)).unwrap_or(0);
    let count = if number(variable).is_some() { 1 } else { rounds(usual) };
    first..first + u64::try_from(count).unwrap()
}

/// The seed of a test that has one: the one in the variable, or the usual.
#[must_use]
pub fn seed(variable: &str) -> u64 {
    number(variable).or_else(|| number(BASE)).unwrap_or(1)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}
