//! An instance's pods, as far as it cares.

use api::conditions::{ConditionStatus, has};
use api::names::{UNPAUSED_READINESS_GATE, annotation};
use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use manager::writing::whole_second;
use virt_rules::launchers::{Launcher, Role, role};

use super::Target;
use crate::render::COMPUTE;

const PULL_PROBLEMS: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];

/// The launchers among the pods of an instance.
#[derive(Clone, Debug, Default)]
pub(super) struct Launchers<'a> {
    /// The one that holds the guest, or will boot it.
    pub(super) holder: Option<&'a Pod>,
    /// Those that a guest may come to, and that have not ended.
    pub(super) targets: Vec<&'a Pod>,
}

/// Which pods of an instance are what to it.
pub(super) fn launchers<'a>(vmi: &VirtualMachineInstance, pods: &[&'a Pod]) -> Launchers<'a> {
    let mut all = Launchers::default();
    for pod in pods.iter().copied().filter(|pod| !only_provisions(pod)) {
        match role(&Launcher::of(pod), vmi) {
            Role::Sole | Role::Source => all.holder = Some(pod),
            Role::Target if !has_ended(pod) => all.targets.push(pod),
            Role::Target | Role::Orphan => {}
        }
    }
    all
}

/// The pods that only have claims bound.
pub(super) fn provisioning<'a>(pods: &[&'a Pod]) -> impl Iterator<Item = &'a Pod> {
    pods.iter().copied().filter(|pod| only_provisions(pod))
}

fn only_provisions(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(annotation::EPHEMERAL_PROVISIONING))
}

pub(crate) fn target(pod: &Pod) -> Target {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    Target { name: text(&pod.metadata.name), uid: text(&pod.metadata.uid) }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether no container of it runs any more, nor ever will.
#[must_use]
pub fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether somebody asked for its end.
#[must_use]
pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// The node it is bound to, or nothing.
#[must_use]
pub fn node(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

fn statuses(pod: &Pod) -> &[ContainerStatus] {
    pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default()
}

/// Whether the launcher runs and all other containers are ready. The launcher's own readiness may be that of the guest, by
/// its probe, and so is the pod's: both wait for the guest, and the guest for this.
#[must_use]
pub fn is_ready_to_run(pod: &Pod) -> bool {
    let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let runs = |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
    phase(pod) == "Running"
        && !node(pod).is_empty()
        && statuses(pod).len() == containers
        && statuses(pod).iter().all(|status| if status.name == COMPUTE { runs(status) } else { status.ready })
}

/// Whether all its containers are ready, which says what probes of the guest say.
pub(super) fn are_containers_ready(pod: &Pod) -> bool {
    is_ready_to_run(pod) && statuses(pod).iter().all(|status| status.ready)
}

/// A condition of the pod.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// Whether a condition that somebody else waits for does not hold.
pub(super) fn waits_for_others(pod: &Pod) -> bool {
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let others = gates.map(|gate| gate.condition_type.as_str()).filter(|gate| *gate != UNPAUSED_READINESS_GATE);
    others.into_iter().any(|gate| condition(pod, gate).is_none_or(|condition| condition.status != "True"))
}

/// Why an image of the pod does not come, if one does not.
pub(super) fn image_problem(pod: &Pod) -> Option<(&'static str, String)> {
    let status = pod.status.as_ref()?;
    let first = status.init_container_statuses.iter().flatten();
    first.chain(status.container_statuses.iter().flatten()).find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = PULL_PROBLEMS.into_iter().find(|known| Some(*known) == waiting.reason.as_deref())?;
        let message = waiting.message.clone().unwrap_or_else(|| format!("cannot pull the image {:?}", container.image));
        Some((reason, message))
    })
}

/// What an ended pod says about its end.
pub(crate) fn last_words(pod: &Pod) -> String {
    let status = pod.status.as_ref();
    let of_pod = status.and_then(|status| status.message.clone().or_else(|| status.reason.clone()));
    let ended = |container: &ContainerStatus| container.state.as_ref()?.terminated.clone();
    let of_container = statuses(pod).iter().filter_map(ended).find(|end| end.exit_code != 0).map(|end| {
        let words = end.message.or(end.reason).unwrap_or_default();
        format!("exit code {}: {}", end.exit_code, words.trim())
    });
    of_container.or(of_pod).unwrap_or_else(|| "no reason was given".to_owned())
}

/// What the launcher pod's readiness gate shall tell, if it tells something else: whether the guest runs unpaused.
///
/// Before the guest runs nothing is told; a gate that is not there does not hold.
pub(super) fn gate(vmi: &VirtualMachineInstance, pod: &Pod, now: Timestamp) -> Option<(Target, PodCondition)> {
    if !vmi.is_running() || has_ended(pod) {
        return None;
    }
    let paused = is_paused(vmi);
    let (status, reason, message) = match paused {
        false => ("True", "NotPaused", "the virtual machine is not paused"),
        true => ("False", "Paused", "the virtual machine is paused"),
    };
    let known = condition(pod, UNPAUSED_READINESS_GATE);
    if known.is_some_and(|known| known.status == status) {
        return None;
    }
    let condition = PodCondition {
        type_: UNPAUSED_READINESS_GATE.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(whole_second(now)),
        ..PodCondition::default()
    };
    Some((target(pod), condition))
}

pub(super) fn is_paused(vmi: &VirtualMachineInstance) -> bool {
    let conditions = vmi.status.as_ref().and_then(|status| status.conditions.as_deref());
    has(conditions, "Paused", &ConditionStatus::True)
}
