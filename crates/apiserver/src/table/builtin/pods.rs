//! Pods: what their containers add up to.

use jiff::Timestamp;
use serde_json::Value;

use super::parts::{at, flag, has, is_deleted, is_true, items, number, or};
use super::{AGE, Cell, NAME};
use crate::table::duration;

pub(super) const PODS: &[Cell] = &[
    NAME,
    Cell::text("Ready", "Number of ready containers, and of all containers.", |pod, _| ready(pod).into()),
    Cell::text("Status", "Status of the pod, or the reason why it is waiting.", |pod, _| status(pod).into()),
    Cell::text("Restarts", "Number of restarts, and time since the last one.", |pod, now| restarts(pod, now).into()),
    AGE,
    Cell::text("IP", "First address of the pod.", |pod, _| or(pod, "/status/podIPs/0/ip", "<none>").into()).wide(),
    Cell::text("Node", "Node that the pod runs on.", |pod, _| or(pod, "/spec/nodeName", "<none>").into()).wide(),
    Cell::text("Nominated Node", "Node where other pods are preempted for this one.", |pod, _| {
        or(pod, "/status/nominatedNodeName", "<none>").into()
    })
    .wide(),
    Cell::text("Readiness Gates", "Number of readiness gates that are true, and of all gates.", |pod, _| {
        gates(pod).into()
    })
    .wide(),
];

/// What was found so far.
#[derive(Default)]
struct Sum {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += number(container, "/restartCount");
        let ended = at(container, "/lastState/terminated/finishedAt").parse().ok();
        self.last = self.last.max(ended);
    }
}

fn ready(pod: &Value) -> String {
    let sidecars = items(pod, "/spec/initContainers").iter().filter(|container| is_sidecar(container)).count();
    format!("{}/{}", sum(pod).ready, items(pod, "/spec/containers").len() + sidecars)
}

fn status(pod: &Value) -> String {
    let ended = matches!(at(pod, "/status/phase"), "Succeeded" | "Failed");
    match is_deleted(pod) {
        true if at(pod, "/status/reason") == "NodeLost" => "Unknown".to_owned(),
        true if !ended => "Terminating".to_owned(),
        _ => sum(pod).reason,
    }
}

fn restarts(pod: &Value, now: Timestamp) -> String {
    match sum(pod).restarts {
        Restarts { count, last: Some(last) } if count != 0 => {
            format!("{count} ({} ago)", duration::text(now.as_second() - last.as_second()))
        }
        Restarts { count, .. } => count.to_string(),
    }
}

fn gates(pod: &Value) -> String {
    let gates = items(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|gate| is_true(pod, at(gate, "/conditionType"))).count();
    format!("{open}/{}", gates.len())
}

fn sum(pod: &Value) -> Sum {
    let mut sum = Sum { reason: own_reason(pod), ..Sum::default() };
    let mut sidecars = Restarts::default();
    let initializing = add_init(pod, &mut sum, &mut sidecars);
    if !initializing || is_true(pod, "Initialized") {
        // What came before no longer counts; what runs beside still does.
        sum.restarts = sidecars;
        add_main(pod, &mut sum);
    }
    sum
}

/// Before any container is looked at.
fn own_reason(pod: &Value) -> String {
    let gated = |condition: &Value| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated";
    if items(pod, "/status/conditions").iter().any(gated) {
        return "SchedulingGated".to_owned();
    }
    or(pod, "/status/reason", at(pod, "/status/phase"))
}

/// Goes through the init containers up to the one that is not through; whether there is one.
fn add_init(pod: &Value, sum: &mut Sum, sidecars: &mut Restarts) -> bool {
    let specs = items(pod, "/spec/initContainers");
    for (index, container) in items(pod, "/status/initContainerStatuses").iter().enumerate() {
        sum.restarts.add(container);
        let sidecar = specs.iter().any(|spec| spec["name"] == container["name"] && is_sidecar(spec));
        if sidecar {
            sidecars.add(container);
        }
        let terminated = container.pointer("/state/terminated").filter(|state| !state.is_null());
        if terminated.is_some_and(|state| number(state, "/exitCode") == 0) {
            continue;
        }
        if sidecar && flag(container, "/started", false) {
            sum.ready += usize::from(flag(container, "/ready", false));
            continue;
        }
        sum.reason = match (terminated, at(container, "/state/waiting/reason")) {
            (Some(state), _) => format!("Init:{}", ending(state)),
            (None, "" | "PodInitializing") => format!("Init:{index}/{}", specs.len()),
            (None, waiting) => format!("Init:{waiting}"),
        };
        return true;
    }
    false
}

/// Goes through the main containers, the first last: its word counts.
fn add_main(pod: &Value, sum: &mut Sum) {
    let mut running = false;
    let mut failure = None;
    for container in items(pod, "/status/containerStatuses").iter().rev() {
        sum.restarts.add(container);
        let waiting = at(container, "/state/waiting/reason");
        let terminated = container.pointer("/state/terminated").filter(|state| !state.is_null());
        if !waiting.is_empty() {
            waiting.clone_into(&mut sum.reason);
        } else if let Some(state) = terminated {
            sum.reason = ending(state);
            if number(state, "/exitCode") != 0 {
                failure = Some(sum.reason.clone());
            }
        } else if flag(container, "/ready", false) && has(container, "/state/running") {
            running = true;
            sum.ready += 1;
        }
    }
    if sum.reason != "Completed" {
        return;
    }
    // One is done; others may not be.
    if running && is_true(pod, "Ready") {
        "Running".clone_into(&mut sum.reason);
    } else if let Some(failure) = failure {
        sum.reason = failure;
    } else if running {
        "NotReady".clone_into(&mut sum.reason);
    }
}

/// How a container ended.
fn ending(state: &Value) -> String {
    match (at(state, "/reason"), number(state, "/signal")) {
        ("", 0) => format!("ExitCode:{}", number(state, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

/// An init container that keeps running beside the others.
fn is_sidecar(spec: &Value) -> bool {
    spec["restartPolicy"] == "Always"
}
