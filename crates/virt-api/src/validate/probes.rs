//! Probes: one way of asking each.

use api::vmi::{Probe, StartStrategy, VirtualMachineInstanceSpec};

use super::word;
use crate::denial::Problems;

pub(super) fn check(spec: &VirtualMachineInstanceSpec, problems: &mut Problems) {
    let pod = spec.networks.iter().flatten().any(|network| network.pod.is_some());
    for (field, probe) in [("spec.livenessProbe", &spec.liveness_probe), ("spec.readinessProbe", &spec.readiness_probe)]
    {
        if let Some(probe) = probe {
            check_probe(probe, field, pod, problems);
        }
    }
    let Some(strategy) = &spec.start_strategy else { return };
    word(Some(strategy.as_str()), StartStrategy::KNOWN, "spec.startStrategy", problems);
    if *strategy == StartStrategy::Paused && spec.liveness_probe.is_some() {
        problems.invalid("spec.startStrategy", "a paused guest cannot answer spec.livenessProbe; remove one of them");
    }
}

fn check_probe(probe: &Probe, field: &str, pod: bool, problems: &mut Problems) {
    let ways = [
        ("httpGet", probe.http_get.is_some()),
        ("tcpSocket", probe.tcp_socket.is_some()),
        ("exec", probe.exec.is_some()),
        ("guestAgentPing", probe.guest_agent_ping.is_some()),
    ];
    match ways.iter().filter(|(_, set)| *set).count() {
        1 => {}
        0 => problems.required(field, "has no action; set one of httpGet, tcpSocket, exec and guestAgentPing"),
        _ => problems.invalid(field, "has more than one action; keep one"),
    }
    for (name, _) in ways.iter().take(2).filter(|(_, set)| *set && !pod) {
        let message =
            "needs an interface on the pod network, which the guest does not have; use exec or guestAgentPing";
        problems.invalid(format!("{field}.{name}"), message);
    }
    let numbers = [
        ("failureThreshold", probe.failure_threshold),
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("timeoutSeconds", probe.timeout_seconds),
    ];
    for (name, number) in numbers {
        if number.is_some_and(|number| number < 0) {
            problems.invalid(format!("{field}.{name}"), "must not be negative; use 0 or more");
        }
    }
}
