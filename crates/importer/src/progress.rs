//! How far an import is, for whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that have arrived, of how many. Shared between whoever imports and whoever tells of it.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    /// Zero if nobody knows.
    total: AtomicU64,
}

impl Progress {
    pub(crate) fn update(&self, done: u64, total: Option<u64>) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total.unwrap_or_default(), Ordering::Relaxed);
    }

    pub(crate) fn finish(&self) {
        self.update(1, Some(1));
    }

    /// In percent with two digits, such as `42.00%`; nothing if nobody knows how much is to come.
    #[must_use]
    pub fn percent(&self) -> Option<String> {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        if total == 0 {
            return None;
        }
        // In hundredths of a percent.
        let share = u128::from(done.min(total)) * 10_000 / u128::from(total);
        Some(format!("{}.{:02}%", share / 100, share % 100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_in_hundredths_and_never_beyond_the_whole() {
        let progress = Progress::default();
        assert_eq!(progress.percent(), None);
        progress.update(1, Some(3));
        assert_eq!(progress.percent().as_deref(), Some("33.33%"));
        progress.update(u64::MAX, Some(3));
        assert_eq!(progress.percent().as_deref(), Some("100.00%"));
    }
}
