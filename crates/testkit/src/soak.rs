//! How long tests go on that could go on for ever: kills, seeds, random sequences.

use crate::needs::CHOICE;

/// How many times as long as usual. `make soak` sets it.
pub const FACTOR: &str = "ORLOP_SOAK";

/// How many rounds a test makes that usually makes so many: more when soaking, a tenth when it must be fast.
#[must_use]
pub fn rounds(usual: usize) -> usize {
    let factor = std::env::var(FACTOR).ok().and_then(|text| text.parse::<usize>().ok());
    match factor {
        Some(factor) => usual.saturating_mul(factor.max(1)),
        None if std::env::var(CHOICE).is_ok_and(|choice| choice == "fast") => usual.div_ceil(10),
        None => usual,
    }
}

/// The seed in a variable, or the one that is used when nobody asks for another.
#[must_use]
pub fn seed(variable: &str) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
