//! Revisions: which template came when, and which replica sets are kept for a way back.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};

use manager::claim::Target;

use super::sets::{DESIRED_REPLICAS, MAX_REPLICAS, Member, Sets, age};

const REVISION: &str = "deployment.kubernetes.io/revision";
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotations of a deployment that say nothing about its replica sets.
const NOT_COPIED: [&str; 6] = [
    "deprecated.deployment.rollback.to",
    DESIRED_REPLICAS,
    "kubectl.kubernetes.io/last-applied-configuration",
    MAX_REPLICAS,
    REVISION,
    REVISION_HISTORY,
];
/// An object's annotations are bounded; a deployment rolled back and forth by a script must not fill them.
const HISTORY_LENGTH: usize = 2000;

/// Brings the annotations and `minReadySeconds` of the new replica set, if there is one, up to date. Says whether an
/// old set became the new one again.
pub(super) fn sync(deployment: &Deployment, spec: &DeploymentSpec, sets: &mut Sets<'_>) -> bool {
    let next = next_revision(sets);
    let Some(new) = &mut sets.new else { return false };
    let known = new.set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    let wanted = spec.min_ready_seconds.unwrap_or(0);
    new.min_ready_seconds = (known != wanted).then_some(wanted);
    annotate(deployment, new, next)
}

/// What a replica set that becomes the new one has for a revision, unless it has a higher one.
pub(super) fn next_revision(sets: &Sets<'_>) -> i64 {
    sets.old.iter().filter_map(revision).max().unwrap_or(0).saturating_add(1)
}

/// Copies the deployment's annotations and raises the revision to `next`. Says whether there was a lower one before.
pub(super) fn annotate(deployment: &Deployment, new: &mut Member<'_>, next: i64) -> bool {
    for (key, value) in deployment.metadata.annotations.iter().flatten() {
        if !NOT_COPIED.contains(&key.as_str()) {
            new.annotate(key, value.as_str());
        }
    }
    let before = revision(new);
    if before.is_some_and(|before| before >= next) {
        return false;
    }
    new.annotate(REVISION, next.to_string());
    if let Some(before) = before {
        let history = lengthened(new.annotation(REVISION_HISTORY).unwrap_or_default(), before);
        new.annotate(REVISION_HISTORY, history);
    }
    before.is_some()
}

/// The revision that the deployment should be annotated with, if it is not.
pub(super) fn deployment_revision(deployment: &Deployment, sets: &Sets<'_>) -> Option<String> {
    let wanted = sets.new.as_ref()?.annotation(REVISION)?;
    let known = deployment.metadata.annotations.as_ref().and_then(|annotations| annotations.get(REVISION));
    (known.map(String::as_str) != Some(wanted)).then(|| wanted.to_owned())
}

/// The old replica sets beyond the history limit that nothing runs in, the lowest revisions.
pub(super) fn surplus(spec: &DeploymentSpec, sets: &Sets<'_>) -> Vec<Target> {
    let Some(limit) = spec.revision_history_limit.filter(|limit| *limit != i32::MAX) else { return Vec::new() };
    let mut kept: Vec<_> = sets.old.iter().filter(|old| old.set.metadata.deletion_timestamp.is_none()).collect();
    kept.sort_by_key(|old| (revision(old).unwrap_or(0), age(&old.set)));
    let excess = kept.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    kept.into_iter().take(excess).filter(|old| is_idle(old)).map(|old| Target::of(&old.set.metadata)).collect()
}

fn is_idle(old: &Member<'_>) -> bool {
    let status = old.status();
    let seen_by_its_controller = status.observed_generation.unwrap_or(0) >= old.set.metadata.generation.unwrap_or(0);
    let observed_size = old.set.spec.as_ref().and_then(|spec| spec.replicas);
    old.size == 0 && observed_size == Some(0) && status.replicas == 0 && seen_by_its_controller
}

fn revision(member: &Member<'_>) -> Option<i64> {
    member.annotation(REVISION)?.parse().ok()
}

/// `history` with `revision` at its end, and as much cut off its beginning as it takes to stay within bounds.
fn lengthened(history: &str, revision: i64) -> String {
    let mut longer = if history.is_empty() { revision.to_string() } else { format!("{history},{revision}") };
    while longer.len() > HISTORY_LENGTH {
        match longer.split_once(',') {
            Some((_oldest, rest)) => longer = rest.to_owned(),
            None => break,
        }
    }
    longer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_grows_at_its_end_and_forgets_from_its_beginning() {
        assert_eq!(lengthened("", 1), "1");
        assert_eq!(lengthened("1,3", 5), "1,3,5");
        let full = vec!["1234567"; 250].join(",");
        let longer = lengthened(&full, 99);
        assert!(longer.len() <= HISTORY_LENGTH && longer.ends_with(",1234567,99"), "{longer}");
    }
}
