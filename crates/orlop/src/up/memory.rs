//! What was needed once and is not any more goes back to the machine: a start, or many VMs at once, take several times the
//! memory that is needed afterwards, and the C library would keep it.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;

/// Between two looks at how much there is.
const LOOK: Duration = Duration::from_secs(5);
/// So much more than after the last time, and it is worth the effort.
const GROWTH: u64 = 8 << 20;

/// Gives memory back whenever much has come, for ever.
pub(crate) async fn give_back() -> Infallible {
    let mut kept = 0;
    loop {
        sleep(LOOK).await;
        if is_worth_it(resident(), kept) {
            // It takes milliseconds, in which other threads may have to wait for memory; not the one that runs this.
            let trimmed = tokio::task::spawn_blocking(trim).await;
            kept = resident();
            tracing::debug!(is_ok = trimmed.is_ok(), bytes = kept, "memory was given back");
        }
    }
}

fn is_worth_it(resident: u64, kept: u64) -> bool {
    resident > kept.saturating_add(GROWTH)
}

/// The process' own memory in bytes; pages of files are not.
fn resident() -> u64 {
    own_memory(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn own_memory(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() << 10
}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "there is no safe way to tell the C library")]
fn trim() {
    // SAFETY: it touches nothing but what is free, and may be called from any thread at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries give back by themselves.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_what_is_of_no_file() {
        assert_eq!(own_memory("VmRSS:\t   300 kB\nRssAnon:\t   200 kB\nRssFile:\t   100 kB\n"), 200 << 10);
        assert_eq!(own_memory(""), 0);
        assert!(resident() > 0);
    }

    #[test]
    fn only_much_that_came_is_worth_the_effort() {
        assert!(is_worth_it(GROWTH + 2, 1));
        assert!(!is_worth_it(GROWTH + 1, 1));
        assert!(!is_worth_it(0, GROWTH));
    }

    #[test]
    fn memory_that_is_free_goes_back() {
        // Small pieces between pieces that stay: the library cannot give these back by itself.
        let mut pieces: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 2000]).collect();
        let full = resident();
        let mut number = 0;
        pieces.retain(|_| {
            number += 1;
            number % 100 == 0
        });
        trim();
        let left = resident();
        assert!(left + (20 << 20) < full, "{left} of {full} are left");
        assert_eq!(pieces.len(), 200);
    }
}
