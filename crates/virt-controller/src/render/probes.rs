//! Health checks: the pod's probes that stand for the guest's.
//!
//! A port is probed by the kubelet itself, since the guest answers on the pod's address. What happens inside the guest,
//! a command or a ping of its agent, is asked of the launcher by a small program in the compute container.

use api::vmi::Probe;
use k8s_openapi::api::core::v1::{ExecAction, Probe as PodProbe};

use super::{Input, PROGRAM, arguments};

/// Seconds until there can be a guest to ask.
const GUEST_START: i32 = 10;
/// Seconds that the probing program has beyond the guest's answer.
const PROBE_MARGIN: i32 = 1;

/// The readiness and the liveness probe of the compute container.
pub(super) fn probes(input: &Input<'_>) -> (Option<PodProbe>, Option<PodProbe>) {
    let spec = &input.vmi.spec;
    let translate = |probe: &Option<Probe>| probe.as_ref().map(|probe| translate(input, probe));
    (translate(&spec.readiness_probe), translate(&spec.liveness_probe))
}

fn translate(input: &Input<'_>, probe: &Probe) -> PodProbe {
    let pod_probe = PodProbe {
        http_get: probe.http_get.clone(),
        tcp_socket: probe.tcp_socket.clone(),
        initial_delay_seconds: probe.initial_delay_seconds,
        timeout_seconds: probe.timeout_seconds,
        period_seconds: probe.period_seconds,
        success_threshold: probe.success_threshold,
        failure_threshold: probe.failure_threshold,
        ..PodProbe::default()
    };
    let asked = match (&probe.exec, &probe.guest_agent_ping) {
        (Some(exec), _) => exec.command.clone().unwrap_or_default(),
        (None, Some(_)) => Vec::new(),
        (None, None) => return pod_probe,
    };
    let timeout = probe.timeout_seconds.unwrap_or(1).max(1);
    let mut command: Vec<String> = [PROGRAM, "virt-probe", "--socket"].map(str::to_owned).into();
    command.push(arguments::socket(input));
    command.extend(["--timeout-seconds".to_owned(), timeout.to_string()]);
    if asked.is_empty() {
        command.push("--guest-agent-ping".to_owned());
    } else {
        command.push("--".to_owned());
        command.extend(asked);
    }
    PodProbe {
        exec: Some(ExecAction { command: Some(command) }),
        initial_delay_seconds: Some(probe.initial_delay_seconds.unwrap_or(0).saturating_add(GUEST_START)),
        timeout_seconds: Some(timeout.saturating_add(PROBE_MARGIN)),
        ..pod_probe
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Bench, vmi};
    use super::*;
    use serde_json::{Value, json};

    fn readiness(probe: &Value) -> Value {
        let vmi = vmi(json!({ "readinessProbe": probe }));
        serde_json::to_value(probes(&Bench::default().input(&vmi)).0).unwrap()
    }

    #[test]
    fn ports_are_probed_by_the_kubelet() {
        let probe = json!({ "tcpSocket": { "port": 80 }, "initialDelaySeconds": 5, "failureThreshold": 2 });
        assert_eq!(readiness(&probe), probe);
        let probe = json!({ "httpGet": { "port": 80, "path": "/" }, "periodSeconds": 3 });
        assert_eq!(readiness(&probe), probe);
    }

    #[test]
    fn the_guest_is_asked_through_the_launcher() {
        let probe = readiness(&json!({ "exec": { "command": ["cat", "/x"] }, "timeoutSeconds": 4 }));
        assert_eq!(
            probe["exec"]["command"],
            json!([
                "/usr/bin/orlop",
                "virt-probe",
                "--socket",
                "/var/run/kubevirt/sockets/launcher-sock",
                "--timeout-seconds",
                "4",
                "--",
                "cat",
                "/x",
            ])
        );
        assert_eq!((probe["initialDelaySeconds"].as_i64(), probe["timeoutSeconds"].as_i64()), (Some(10), Some(5)));
        let ping = readiness(&json!({ "guestAgentPing": {} }));
        assert_eq!(ping["exec"]["command"].as_array().unwrap().last().unwrap(), "--guest-agent-ping");
    }
}
