//! The conditions that a node sets on a pod.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use manager::writing::whole_second;

use crate::agent::decide::Observed;
use crate::agent::record::Record;
use crate::agent::view;

/// Those that are there, with the node's own brought up to date.
pub(super) fn conditions(
    observed: &Observed<'_>,
    pod: &Pod,
    record: &Record,
    over: bool,
    (init, main): (&[ContainerStatus], &[ContainerStatus]),
) -> Vec<PodCondition> {
    let known = pod.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let framed = record.sandbox && record.addresses.is_some() && observed.state.is_some_and(|state| !state.lost);
    let finished = over || view::is_terminal(view::phase(pod));
    let unready: Vec<&str> = main.iter().filter(|one| !one.ready).map(|one| one.name.as_str()).collect();
    let not_init: Vec<&str> =
        init.iter().filter(|one| !one.ready && one.started != Some(true)).map(|one| one.name.as_str()).collect();
    let initialized = record.initialized || not_init.is_empty();
    let all_ready = initialized && unready.is_empty() && !finished;
    let closed = closed_gates(pod, &known);
    let list = |what: &str, names: &[&str]| Some(format!("containers with {what} status: [{}]", names.join(" ")));
    let succeeded = main.iter().all(|one| {
        one.state.as_ref().and_then(|state| state.terminated.as_ref()).is_some_and(|end| end.exit_code == 0)
    });
    let unready_reason = if finished && succeeded { "PodCompleted" } else { "ContainersNotReady" };
    let containers =
        (!all_ready).then(|| (unready_reason, list("unready", &unready).filter(|_| unready_reason != "PodCompleted")));
    let ready = containers.clone().or_else(|| {
        (!closed.is_empty()).then(|| {
            let message = format!("the status of pod readiness gate {:?} is not \"True\"", closed.join(", "));
            ("ReadinessGatesNotReady", Some(message))
        })
    });
    let initialized = (!initialized).then(|| ("ContainersNotInitialized", list("incomplete", &not_init)));
    let mut conditions = known;
    let mut set = |kind: &str, why_not: Option<(&str, Option<String>)>| {
        let new = PodCondition {
            type_: kind.to_owned(),
            status: if why_not.is_none() { "True" } else { "False" }.to_owned(),
            reason: why_not.as_ref().map(|(reason, _)| (*reason).to_owned()).filter(|reason| !reason.is_empty()),
            message: why_not.and_then(|(_, message)| message),
            last_transition_time: Some(whole_second(observed.now)),
            ..PodCondition::default()
        };
        put(&mut conditions, new);
    };
    set("PodReadyToStartContainers", (!framed || over).then_some(("", None)));
    set("Initialized", initialized);
    set("Ready", ready);
    set("ContainersReady", containers);
    if !conditions.iter().any(|one| one.type_ == "PodScheduled") {
        put(
            &mut conditions,
            PodCondition {
                type_: "PodScheduled".to_owned(),
                status: "True".to_owned(),
                last_transition_time: Some(whole_second(observed.now)),
                ..PodCondition::default()
            },
        );
    }
    conditions
}

fn put(conditions: &mut Vec<PodCondition>, mut new: PodCondition) {
    match conditions.iter_mut().find(|one| one.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time.clone_from(&old.last_transition_time);
            }
            new.last_probe_time.clone_from(&old.last_probe_time);
            new.observed_generation = old.observed_generation;
            *old = new;
        }
        None => conditions.push(new),
    }
}

fn closed_gates<'a>(pod: &'a Pod, known: &[PodCondition]) -> Vec<&'a str> {
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let open = |kind: &str| known.iter().any(|one| one.type_ == kind && one.status == "True");
    gates.map(|gate| gate.condition_type.as_str()).filter(|kind| !open(kind)).collect()
}
