//! The limit on open files and connections of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as the API server's connections, watches of launchers and shims ever need. No more: programs that it starts inherit
/// it, and some of them go through all that they could have.
const WANTED: u64 = 65_536;

/// Raises the limit as far as it is wanted and allowed. What most machines start a process with, 1024, is what a few clients of
/// the API server can use up.
pub(crate) fn raise() {
    let now = getrlimit(Resource::Nofile);
    let Some(current) = raised(&now) else { return };
    match setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..now }) {
        Ok(()) => tracing::debug!(limit = current, "raised the limit on open files"),
        Err(error) => tracing::warn!(%error, "cannot raise the limit on open files"),
    }
}

/// The limit to set, if it is another. None stands for no limit.
fn raised(now: &Rlimit) -> Option<u64> {
    let wanted = now.maximum.map_or(WANTED, |most| most.min(WANTED));
    now.current.is_some_and(|current| current < wanted).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_allowed_and_never_lowered() {
        let of = |current, maximum| raised(&Rlimit { current, maximum });
        assert_eq!(of(Some(1024), Some(1 << 20)), Some(WANTED));
        assert_eq!(of(Some(1024), None), Some(WANTED));
        assert_eq!(of(Some(1024), Some(4096)), Some(4096));
        assert_eq!(of(Some(1 << 20), Some(1 << 20)), None);
        assert_eq!(of(None, None), None);
    }
}
