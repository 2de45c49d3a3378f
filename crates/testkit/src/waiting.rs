//! Waiting until something is so, in real time.

use std::time::{Duration, Instant};

/// Longer than anything takes on any machine, however busy: whoever waits that long waits in vain. It is no measure of how
/// fast something is.
pub const NEVER: Duration = Duration::from_secs(300);
/// Between two looks, where nobody tells.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks again and again until it is so.
///
/// # Panics
/// When it never is.
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(comes_true(is_so), "it never came true: {what}");
}

/// Looks again and again until it is so, for callers with more to say if it never is.
#[expect(clippy::disallowed_methods, reason = "tests wait for other processes in real time")]
pub fn comes_true(mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() >= NEVER {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Looks again and again until there is something to see.
///
/// # Panics
/// When there never is.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    within(what, looking).await
}

/// Waits for what must come.
///
/// # Panics
/// When it never does.
pub async fn within<T>(what: &str, coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(NEVER, coming).await.unwrap_or_else(|_| panic!("it never came: {what}"))
}
