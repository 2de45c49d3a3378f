//! Whether a pod stays, and how long.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use tokio::time::Instant;

use crate::scheduler::tolerates;

/// What to do about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Nothing,
    /// It would have had to go, and may stay.
    Spare,
    /// It goes when its time is over.
    EvictAt {
        since: Instant,
        at: Instant,
    },
    /// It goes now.
    Evict,
}

/// The taints of a node that drive pods away.
pub(super) fn evicting(node: Option<&Node>) -> Vec<Taint> {
    let taints = node.and_then(|node| node.spec.as_ref()).and_then(|spec| spec.taints.as_deref());
    taints.unwrap_or_default().iter().filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

/// `doomed` is since when the pod tolerates for some time only.
///
/// # Guarantees
/// - A pod stays as long as it tolerates all taints, and no longer than the shortest of its tolerations for them.
/// - Nobody is spared who was not doomed, and who goes already is not sent again.
pub(super) fn decide(pod: &Pod, taints: &[Taint], doomed: Option<Instant>, now: Instant) -> Plan {
    if pod.metadata.deletion_timestamp.is_some() {
        return Plan::Nothing;
    }
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let staying = if doomed.is_some() { Plan::Spare } else { Plan::Nothing };
    match patience(taints, tolerations) {
        Patience::Endless => staying,
        Patience::None => Plan::Evict,
        Patience::For(time) => {
            let since = doomed.unwrap_or(now);
            match since.checked_add(time) {
                // Longer than any clock runs.
                None => staying,
                Some(at) if at <= now => Plan::Evict,
                Some(at) => Plan::EvictAt { since, at },
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    None,
    For(Duration),
    Endless,
}

/// The first toleration that fits a taint counts for it, and of those the shortest.
fn patience(taints: &[Taint], tolerations: &[Toleration]) -> Patience {
    let mut least = Patience::Endless;
    for taint in taints {
        let Some(fitting) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Patience::None;
        };
        let Some(seconds) = fitting.toleration_seconds else { continue };
        let time = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        least = match least {
            Patience::For(before) => Patience::For(before.min(time)),
            Patience::None | Patience::Endless => Patience::For(time),
        };
    }
    least
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn taint(key: &str) -> Taint {
        Taint { key: key.to_owned(), effect: "NoExecute".to_owned(), ..Taint::default() }
    }

    fn toleration(key: &str, seconds: Option<i64>) -> Value {
        json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds })
    }

    fn pod(tolerations: &[Value]) -> Pod {
        serde_json::from_value(json!({ "spec": { "containers": [], "tolerations": tolerations } })).unwrap()
    }

    #[test]
    fn who_does_not_tolerate_goes_at_once() {
        let now = Instant::now();
        assert_eq!(decide(&pod(&[]), &[taint("a")], None, now), Plan::Evict);
        assert_eq!(decide(&pod(&[toleration("a", None)]), &[taint("a"), taint("b")], Some(now), now), Plan::Evict);
        assert_eq!(decide(&pod(&[toleration("a", Some(-1))]), &[taint("a")], None, now), Plan::Evict);
    }

    #[test]
    fn the_shortest_toleration_counts_from_the_first_taint_on() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let pod = pod(&[toleration("a", Some(300)), toleration("b", Some(60)), toleration("c", None)]);
        let both = [taint("a"), taint("c"), taint("b")];
        assert_eq!(decide(&pod, &both[..1], None, start), Plan::EvictAt { since: start, at: at(300) });
        assert_eq!(decide(&pod, &both, Some(start), at(10)), Plan::EvictAt { since: start, at: at(60) });
        assert_eq!(decide(&pod, &both, Some(start), at(60)), Plan::Evict);
        assert_eq!(decide(&pod, &both[1..2], None, start), Plan::Nothing);
    }

    #[test]
    fn when_the_taint_goes_the_pod_is_spared() {
        let now = Instant::now();
        let pod = pod(&[toleration("a", Some(300))]);
        assert_eq!(decide(&pod, &[], Some(now), now), Plan::Spare);
        assert_eq!(decide(&pod, &[], None, now), Plan::Nothing);
    }

    #[test]
    fn who_goes_already_is_not_sent_again() {
        let mut pod = pod(&[]);
        pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(decide(&pod, &[taint("a")], None, Instant::now()), Plan::Nothing);
    }

    proptest! {
        #[test]
        fn a_pod_stays_exactly_as_long_as_it_may(
            taints in prop::collection::btree_set("[abc]", 0..4),
            tolerations in prop::collection::btree_map("[abc]", prop::option::of(-1_i64..100), 0..4),
            doomed in prop::option::of(0_u64..100), passed in 100_u64..200,
        ) {
            let start = Instant::now();
            let now = start + Duration::from_secs(passed);
            let list: Vec<Value> = tolerations.iter().map(|(key, seconds)| toleration(key, *seconds)).collect();
            let doomed = doomed.map(|seconds| start + Duration::from_secs(seconds));
            let nodes_taints: Vec<Taint> = taints.iter().map(|key| taint(key)).collect();
            let plan = decide(&pod(&list), &nodes_taints, doomed, now);
            let since = doomed.unwrap_or(now);
            let end = taints.iter().filter_map(|key| match tolerations.get(key) {
                None => Some(now),
                Some(seconds) => seconds.map(|seconds| since + Duration::from_secs(seconds.max(0).unsigned_abs())),
            }).min();
            let expected = match end {
                None if doomed.is_some() => Plan::Spare,
                None => Plan::Nothing,
                Some(end) if end <= now => Plan::Evict,
                Some(end) => Plan::EvictAt { since, at: end },
            };
            prop_assert_eq!(plan, expected);
        }
    }
}
