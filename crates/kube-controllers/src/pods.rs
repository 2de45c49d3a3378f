//! What a pod's status says, reduced to what controllers ask.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};

/// Neither finished nor being deleted.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_none()
}

/// Being deleted, and its containers may still run.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && pod.metadata.deletion_timestamp.is_some()
}

/// Its containers have ended for good.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some()
}

/// Since when it is ready without a break.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    ready_condition(pod)?.last_transition_time.as_ref().map(|time| time.0)
}

/// Ready for at least `min_ready`.
pub(crate) fn is_available(pod: &Pod, min_ready: SignedDuration, now: Timestamp) -> bool {
    is_ready(pod)
        && (min_ready.is_zero() || ready_since(pod).is_some_and(|since| now.duration_since(since) >= min_ready))
}

/// How long until a ready pod counts as available, if time alone makes it so.
pub(crate) fn available_in(pod: &Pod, min_ready: SignedDuration, now: Timestamp) -> Option<Duration> {
    let left = min_ready.saturating_sub(now.duration_since(ready_since(pod)?));
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

/// A field that counts seconds; none or a negative one is zero.
pub(crate) fn seconds(field: Option<i32>) -> SignedDuration {
    SignedDuration::from_secs(i64::from(field.unwrap_or(0).max(0)))
}

fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == "Ready" && condition.status == "True")
}
