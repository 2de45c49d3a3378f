//! Time and chance, passed in: a simulation runs on a clock of its own and repeats by its seed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::Instant;

/// Tells the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Option<(Timestamp, Instant)>,
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub const fn system() -> Self {
        Self { start: None }
    }

    /// A clock that starts at a moment and goes on with tokio's, which may be paused and stepped.
    #[must_use]
    pub fn starting_at(moment: Timestamp) -> Self {
        Self { start: Some((moment, Instant::now())) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self.start {
            Some((moment, started)) => {
                let passed = SignedDuration::try_from(started.elapsed()).unwrap_or_default();
                moment.saturating_add(passed).unwrap_or(moment)
            }
            #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
            None => Timestamp::now(),
        }
    }
}

/// As Kubernetes writes times: whole seconds, UTC.
pub(crate) fn text(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// UIDs and suffixes of generated names.
pub(crate) struct Chance(Mutex<StdRng>);

impl Chance {
    /// By seed, or as the machine gives it.
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self(Mutex::new(seed.map_or_else(rand::make_rng, StdRng::seed_from_u64)))
    }

    /// A random UUID (version 4).
    pub(crate) fn uid(&self) -> String {
        let random: u128 = self.0.lock().unwrap_or_else(PoisonError::into_inner).random();
        // Version and variant take six bits of it.
        let bits = (random & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
        let text = format!("{bits:032x}");
        [&text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]].join("-")
    }

    /// Some of a duration, in whole milliseconds: timers have no finer ones, and rounding would make runs differ.
    pub(crate) fn part_of(&self, whole: Duration) -> Duration {
        let part = whole.mul_f64(self.0.lock().unwrap_or_else(PoisonError::into_inner).random());
        Duration::from_millis(u64::try_from(part.as_millis()).unwrap_or(u64::MAX))
    }

    /// Five letters and digits that spell no words and are not mistaken for each other.
    pub(crate) fn suffix(&self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (0..5).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_have_their_form_and_follow_the_seed() {
        let (one, two) = (Chance::new(Some(7)), Chance::new(Some(7)));
        let uid = one.uid();
        assert_eq!(uid, two.uid());
        assert_ne!(uid, one.uid());
        assert_eq!((uid.len(), &uid[14..15]), (36, "4"));
        assert!("89ab".contains(&uid[19..20]), "{uid}");
    }
}
