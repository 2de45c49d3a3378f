//! Which containers are to be ended now: first asked, then killed when their grace period is over.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::{Action, Observed, Plan};
use crate::agent::backoff;
use crate::agent::record::Record;
use crate::agent::view;

/// Ends the whole pod: sidecars after all others, the last one first.
pub(super) fn all(observed: &Observed<'_>, pod: &Pod, spec: &PodSpec, record: &Record) -> Plan {
    let mut plan = Plan::default();
    let alive = |container: &&Container| view::at(record, observed.state, &container.name).is_alive();
    let (sidecars, others): (Vec<&Container>, Vec<&Container>) =
        view::containers(spec).filter(alive).partition(|container| view::is_sidecar(container));
    let grace = view::grace(pod);
    let over = record.stopping.is_some_and(|since| backoff::remaining(since, grace, observed.now).is_none());
    let in_turn: Vec<&Container> = if over || grace.is_zero() {
        others.into_iter().chain(sidecars).collect()
    } else if others.is_empty() {
        sidecars.into_iter().next_back().into_iter().collect()
    } else {
        others
    };
    for container in in_turn {
        // One that was asked before the pod as a whole was keeps its own time, if that is shorter.
        let since = record.stopping.unwrap_or(observed.now);
        let why = format!("Stopping container {}", container.name);
        one(observed, record, container, Time { since, grace, whole: true }, &why, &mut plan);
    }
    plan
}

/// Ends containers that their probes have given up.
pub(super) fn unhealthy(observed: &Observed<'_>, pod: &Pod, spec: &PodSpec, record: &Record) -> Plan {
    let mut plan = Plan::default();
    for container in view::containers(spec) {
        let at = view::at(record, observed.state, &container.name);
        let Some(why) = observed.health.get(&container.name).and_then(|health| health.failed.as_deref()) else {
            continue;
        };
        if at.is_alive() {
            let since = record.containers.get(&container.name).and_then(|kept| kept.stopping.as_ref());
            let since = since.map_or(observed.now, |stopping| stopping.since);
            let time = Time { since, grace: view::grace(pod), whole: false };
            one(observed, record, container, time, why, &mut plan);
        }
    }
    plan
}

/// How long it has.
#[derive(Clone, Copy)]
struct Time {
    since: Timestamp,
    grace: Duration,
    /// The whole pod ends.
    whole: bool,
}

fn one(observed: &Observed<'_>, record: &Record, container: &Container, time: Time, why: &str, plan: &mut Plan) {
    let stopping = record.containers.get(&container.name).and_then(|kept| kept.stopping.as_ref());
    let name = container.name.clone();
    if stopping.is_some_and(|stopping| stopping.killed) {
        return;
    }
    let Time { since, grace, whole } = time;
    match backoff::remaining(since, grace, observed.now) {
        None => plan.actions.push(Action::Kill { container: name, whole }),
        Some(_) if stopping.is_none() => {
            plan.actions.push(Action::Stop { container: name, why: why.to_owned(), whole });
        }
        Some(left) => plan.wait(left),
    }
}
