//! How long to wait before something that failed is tried again.

use std::time::Duration;

use jiff::Timestamp;

/// The shortest pause.
const FIRST: Duration = Duration::from_secs(10);
/// The longest.
pub(super) const MOST: Duration = Duration::from_secs(300);
/// A container that ran this long starts afresh: its next end counts as its first.
pub(super) const FORGIVEN: Duration = Duration::from_secs(600);

/// The pause after so many restarts in a row. The first restart is not put off.
#[must_use]
pub(super) fn restart(crashes: u32) -> Duration {
    match crashes {
        0 => Duration::ZERO,
        crashes => FIRST.saturating_mul(2_u32.saturating_pow(crashes - 1)).min(MOST),
    }
}

/// The pause after so many failures in a row of anything that is not a container's end.
#[must_use]
pub(super) fn retry(failures: u32) -> Duration {
    Duration::from_millis(500)
        .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)))
        .min(Duration::from_secs(60))
}

/// What is left of a pause that began at some time.
#[must_use]
pub(super) fn remaining(since: Timestamp, pause: Duration, now: Timestamp) -> Option<Duration> {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    pause.checked_sub(passed).filter(|rest| !rest.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let seconds: Vec<u64> = (0..8).map(|crashes| restart(crashes).as_secs()).collect();
        assert_eq!(seconds, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!((retry(1).as_millis(), retry(2).as_millis(), retry(40).as_secs()), (500, 1000, 60));
        assert_eq!(restart(u32::MAX), MOST);
    }
}
