//! How long a guest takes to run, and what that costs: by `orlop run`, by `orlop up`, and by QEMU alone.

pub mod cost;
pub mod foreground;
pub mod guests;
pub mod machine;
pub mod many;
pub mod start;

use std::io::{BufRead as _, BufReader, Read};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::time::Instant;

use crate::rounds;

/// The first thing that the guest's own code says.
pub const USERLAND: &str = "guest: userland";
/// Nothing takes longer.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The program to measure: the one beside this one, or the release.
///
/// # Errors
/// When there is neither.
pub fn program() -> Result<PathBuf> {
    let beside = std::env::current_exe().context("find this program")?.with_file_name("orlop");
    let release = e2e::root().join("target/release/orlop");
    let found = [beside, release].into_iter().find(|path| path.exists());
    found.context("orlop is not built; run `cargo build --release -p orlop`")
}

/// Tells when `words` came, and reads on so that nobody blocks.
pub fn watch(stream: impl Read + Send + 'static, words: &'static str) -> mpsc::Receiver<Instant> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stream);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if String::from_utf8_lossy(&line).contains(words) {
                // Only the first time counts; nobody may listen any more.
                let _ = send.send(Instant::now());
            }
            line.clear();
        }
    });
    receive
}

/// The middle one, the later of two.
#[must_use]
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// The one that so many in a hundred do not exceed.
#[must_use]
pub fn percentile(times: &[Duration], percentile: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let index = (sorted.len() * percentile / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}

/// How much longer one took than the other, run by run.
#[must_use]
pub fn ratio(one: &[Duration], other: &[Duration]) -> Value {
    let pairs = one.iter().zip(other).map(|(one, other)| (one.as_secs_f64(), other.as_secs_f64()));
    rounds::ratios(pairs).map_or(Value::Null, |ratios| ratios.json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_a_line_and_the_rest_is_read() {
        let text: &[u8] = b"first\nthen guest: userland and more\nlast\n";
        let seen = watch(text, USERLAND);
        assert!(seen.recv().is_ok());
        assert!(seen.recv().is_err(), "the stream has ended");
    }

    #[test]
    fn medians_and_percentiles_are_of_the_sorted_times() {
        let times: Vec<Duration> = [40, 10, 30, 20].map(Duration::from_millis).to_vec();
        assert_eq!(median(times.clone()), Duration::from_millis(30));
        assert_eq!(percentile(&times, 95), Duration::from_millis(40));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
        assert_eq!(ratio(&times[..1], &times[3..])["median"], 2.0);
    }
}
