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

/// The seeds of a test that usually has so many: those in the variable (`7`, or `100..200` without the last), or as many as
/// there are rounds.
#[must_use]
pub fn seeds(variable: &str, usual: usize) -> Range<u64> {
    if let Ok(text) = std::env::var(variable) {
        return range(&text)
            .unwrap_or_else(|| panic!("{variable}={text} is neither a number nor a range such as 1..9"));
    }
    let first = number(BASE).unwrap_or(0);
    first..first + u64::try_from(rounds(usual)).unwrap()
}

fn range(text: &str) -> Option<Range<u64>> {
    match text.split_once("..") {
        Some((first, end)) => {
            let range = first.parse().ok()?..end.parse().ok()?;
            (!range.is_empty()).then_some(range)
        }
        None => text.parse().ok().map(|seed: u64| seed..seed.saturating_add(1)),
    }
}

/// The seed of a test that has one: the one in the variable, or the usual.
#[must_use]
pub fn seed(variable: &str) -> u64 {
    number(variable).or_else(|| number(BASE)).unwrap_or(1)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_one_or_a_range_that_is_not_empty() {
        assert_eq!(range("7"), Some(7..8));
        assert_eq!(range("7..9"), Some(7..9));
        for text in ["", "x", "9..9", "9..7", "..7", "7.."] {
            assert_eq!(range(text), None, "{text}");
        }
    }
}
