//! How fast a registry must send at least. One that sends a byte now and then never stands still, and would keep a place among
//! the pulls for ever.

use std::time::Duration;

/// Looked at each time so long has been waited for the registry; what this machine takes to unpack does not count.
const WINDOW: Duration = Duration::from_secs(60);
/// The fewest bytes that come in it: a kilobyte a second.
const LEAST: u64 = 60 << 10;

/// What has come since the last look.
#[derive(Debug, Default)]
pub struct Pace {
    waited: Duration,
    received: u64,
}

impl Pace {
    /// Counts a piece that was waited for. False if the registry is too slow.
    #[must_use]
    pub fn keeps_up(&mut self, waited: Duration, bytes: u64) -> bool {
        self.waited += waited;
        self.received += bytes;
        if self.waited < WINDOW {
            return true;
        }
        let Self { received, .. } = std::mem::take(self);
        received >= LEAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_now_and_then_is_too_slow() {
        let mut pace = Pace::default();
        let pieces = (0..).take_while(|_| pace.keeps_up(Duration::from_secs(7), 1)).count();
        assert_eq!(pieces, 8, "the ninth ends the first minute");
    }

    #[test]
    fn a_slow_line_is_good_enough_as_long_as_it_lasts() {
        let mut pace = Pace::default();
        assert!((0..1000).all(|_| pace.keeps_up(Duration::from_secs(1), 1 << 10)));
        // What is buffered comes without waiting, however little it is.
        assert!((0..1000).all(|_| pace.keeps_up(Duration::ZERO, 1)));
    }

    #[test]
    fn a_fast_start_does_not_pay_for_a_slow_rest() {
        let mut pace = Pace::default();
        assert!(pace.keeps_up(Duration::from_secs(60), 1 << 30));
        assert!(!pace.keeps_up(Duration::from_secs(60), 1));
    }
}
