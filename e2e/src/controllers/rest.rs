//! Whether a cluster is at rest: nobody has written what is compared, from before a look until a while after it.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::clients::kubectl::Kubectl;

/// For how many seconds nobody writes: longer than a controller takes from what it hears to what it does.
const QUIET: u32 = 2;
/// A version of everything that a server keeps.
pub(super) struct Moment {
    version: String,
    /// What is looked at.
    collections: &'static [&'static str],
}

impl Moment {
    pub(super) fn now(kubectl: &Kubectl, collections: &'static [&'static str]) -> Result<Self> {
        let first = collections.first().context("nothing to look at")?;
        let list: Value = serde_json::from_str(&kubectl.ok(&["get", "--raw", &format!("{first}?limit=1")])?)?;
        let version = list["metadata"]["resourceVersion"].as_str().context("a list without a version")?.to_owned();
        Ok(Self { version, collections })
    }

    /// What was written since, and within the next seconds: watches from this moment on tell it, so that nothing that came
    /// and went between two looks is missed.
    pub(super) fn writes_since(&self, kubectl: &Kubectl) -> Result<Vec<String>> {
        let watched: Vec<Result<String>> = std::thread::scope(|scope| {
            let watch = |collection: &&str| {
                let path = format!("{collection}?watch=true&resourceVersion={}&timeoutSeconds={QUIET}", self.version);
                scope.spawn(move || kubectl.ok(&["get", "--raw", &path]))
            };
            let watches: Vec<_> = self.collections.iter().map(watch).collect();
            watches.into_iter().map(|watch| watch.join().unwrap_or_else(|_| anyhow::bail!("it panicked"))).collect()
        });
        let mut writes = Vec::new();
        for frames in watched {
            writes.extend(written(&frames?)?);
        }
        Ok(writes)
    }
}

/// What the frames of a watch tell, in a few words each.
fn written(frames: &str) -> Result<Vec<String>> {
    let mut writes = Vec::new();
    for frame in frames.lines() {
        let frame: Value = serde_json::from_str(frame).with_context(|| format!("a frame {frame:?}"))?;
        ensure!(frame["type"] != "ERROR", "the watch failed: {frame}");
        let object = &frame["object"];
        writes.push(format!("{} {} {}", frame["type"], object["kind"], object["metadata"]["name"]));
    }
    Ok(writes)
}

/// What a look at both clusters comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They may still come to be the same.
    LookAgain,
    /// The look counts.
    Final,
    /// They are the same at this moment, and one goes on writing for ever.
    Restless,
}

/// Judges a look: whether both are the same, whether nobody wrote around it, and whether there was time enough.
pub(super) fn judge(is_same: bool, is_at_rest: bool, is_late: bool) -> Verdict {
    match (is_same, is_at_rest, is_late) {
        (true, true, _) | (false, _, true) => Verdict::Final,
        (true, false, true) => Verdict::Restless,
        (_, _, false) => Verdict::LookAgain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_that_are_alike_for_a_moment_are_looked_at_again() {
        assert_eq!(judge(true, false, false), Verdict::LookAgain);
        assert_eq!(judge(true, true, false), Verdict::Final);
        assert_eq!(judge(true, false, true), Verdict::Restless);
    }

    #[test]
    fn clusters_that_differ_have_time_until_it_is_late() {
        assert_eq!(judge(false, true, false), Verdict::LookAgain);
        assert_eq!(judge(false, true, true), Verdict::Final);
        assert_eq!(judge(false, false, true), Verdict::Final);
    }

    #[test]
    fn a_watch_that_fails_is_no_rest() {
        assert_eq!(written("").unwrap(), Vec::<String>::new());
        let pod = r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a"}}}"#;
        assert_eq!(written(pod).unwrap(), [r#""ADDED" "Pod" "a""#]);
        assert!(written(r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#).is_err());
        assert!(written("404 page not found").is_err());
    }
}
