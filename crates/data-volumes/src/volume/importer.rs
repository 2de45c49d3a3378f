//! The pod that imports: when it is made, how far it is, and what becomes of it.

use std::time::Duration;

use api::data_volume::DataVolumePhase as Phase;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt as _;

use super::{Act, Observed, Setback, Told, VolumePlan};
use crate::names::{DONE, REFUSED};

/// A pod that was made shows within this time, or was not made.
const SHOWS: Duration = Duration::from_secs(1);
/// Between the first importer that died and the next one; each time twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The longest time between two importers.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// How long to wait after so many importers have died.
pub(super) fn wait(died: u32) -> Duration {
    let doubled = 1_u32.checked_shl(died.saturating_sub(1)).and_then(|times| FIRST_WAIT.checked_mul(times));
    doubled.map_or(LONGEST_WAIT, |wait| wait.min(LONGEST_WAIT))
}

/// An importer is needed, and there is none: it is made, unless it is too early for that.
pub(super) fn import(seen: &Observed<'_>, told: Told) -> VolumePlan {
    if let Some(Setback { message, left }) = &seen.setback {
        let message = format!("{message}; another attempt follows");
        return VolumePlan { again: Some(*left), ..VolumePlan::new(Act::Nothing, Told { message, ..told }) };
    }
    if seen.taken {
        let pod = crate::pod::name(seen.volume);
        let message = format!("waiting until the Pod {pod}, which belongs to somebody else, is gone");
        return VolumePlan::new(Act::Nothing, Told { message, ..told });
    }
    VolumePlan { again: Some(SHOWS), ..VolumePlan::new(Act::CreatePod, told) }
}

/// How far the importer's pod is.
pub(super) fn importing(seen: &Observed<'_>, pod: &Pod) -> VolumePlan {
    let volume = seen.volume.name_any();
    let container = container(pod);
    let restarts = container.map(|container| container.restart_count);
    let at = |phase, is_running, message| Told {
        is_bound: true,
        is_running: Some(is_running),
        message,
        restarts,
        progress: seen.progress.clone(),
        ..Told::of(phase)
    };
    let plan = |act, told: Told| VolumePlan::new(act, told);
    let retry = |message: String| plan(Act::Retry(message.clone()), at(Phase::ImportScheduled, false, message));
    if pod.metadata.deletion_timestamp.is_some() {
        // Another comes when it is gone.
        return plan(Act::Nothing, at(Phase::ImportScheduled, false, "the importer is being removed".to_owned()));
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    match phase {
        "Succeeded" => match last_words(container).as_deref() {
            Some(words) if words.starts_with(REFUSED) => {
                let message = words.trim_start_matches(REFUSED).to_owned();
                plan(Act::Nothing, at(Phase::Failed, false, message))
            }
            Some(DONE) => VolumePlan::new(Act::Populate, None),
            // It ended well and did not say so: whoever cannot tell what it did does it again.
            _ => retry("the importer ended without a word".to_owned()),
        },
        "Failed" => retry(last_words(container).unwrap_or_else(|| "the importer's pod failed".to_owned())),
        _ => {
            let state = container.and_then(|container| container.state.as_ref());
            if state.is_some_and(|state| state.running.is_some()) {
                return plan(
                    Act::Nothing,
                    at(Phase::ImportInProgress, true, format!("import into {volume} in progress")),
                );
            }
            let waiting = state.and_then(|state| state.waiting.as_ref());
            let reason = waiting.and_then(|waiting| waiting.message.clone().or_else(|| waiting.reason.clone()));
            // What it died of says more than that it will be started again.
            let message = last_words(container).or(reason);
            let phase =
                if restarts.is_some_and(|count| count > 0) { Phase::ImportInProgress } else { Phase::ImportScheduled };
            plan(Act::Nothing, at(phase, false, message.unwrap_or_else(|| format!("import into {volume} scheduled"))))
        }
    }
}

fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

/// What the container said when it last ended.
fn last_words(container: Option<&ContainerStatus>) -> Option<String> {
    let container = container?;
    let ended = |state: Option<&k8s_openapi::api::core::v1::ContainerState>| state?.terminated.clone();
    let terminated = ended(container.state.as_ref()).or_else(|| ended(container.last_state.as_ref()))?;
    terminated.message.map(|words| words.trim().to_owned()).filter(|words| !words.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn who_dies_again_waits_longer_and_not_for_ever(died in 1_u32..200) {
            prop_assert!(wait(died) >= FIRST_WAIT && wait(died) <= LONGEST_WAIT);
            prop_assert!(wait(died + 1) >= wait(died));
            prop_assert!(died < 6 || wait(died) == LONGEST_WAIT);
        }
    }
}
