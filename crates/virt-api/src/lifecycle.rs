//! What starting, stopping and restarting a VM mean for its object, by its run strategy. Pure.

use api::vm::{
    StateChangeRequestAction as Action, VirtualMachine, VirtualMachineRunStrategy as Strategy,
    VirtualMachineStateChangeRequest as ChangeRequest,
};
use api::vmi::VirtualMachineInstance;
use serde_json::{Value, json};

/// A change of the VM, as a merge patch. It holds for the version of the VM that was looked at, and for no other.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Of the object itself.
    Object(Value),
    /// Of its status.
    Status(Value),
}

/// Why a VM cannot be asked for that. A conflict, in the words of HTTP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is nothing to start.
    #[error("VM is already running")]
    Running,
    /// There is nothing to stop or restart.
    #[error("VM is not running")]
    NotRunning,
    /// The run strategy forbids it.
    #[error("{strategy} does not support manual {verb} requests")]
    Strategy {
        /// The strategy.
        strategy: Strategy,
        /// What was asked for.
        verb: &'static str,
    },
}

/// Starts a VM.
///
/// # Errors
/// When it runs, or its strategy decides about that alone.
pub fn start(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>) -> Result<Change, Refusal> {
    match strategy(vm) {
        Strategy::Halted => Ok(run(vm, true)),
        Strategy::Manual | Strategy::RerunOnFailure if is_live(vmi) => Err(Refusal::Running),
        // Nobody else removes what has ended, and before that nothing starts.
        Strategy::Manual => Ok(ask(vm, vmi.map(stop_request).into_iter().chain([start_request()]))),
        Strategy::RerunOnFailure => Ok(ask(vm, [start_request()])),
        _ if is_live(vmi) => Err(Refusal::Running),
        strategy => Err(Refusal::Strategy { strategy, verb: "start" }),
    }
}

/// Stops a VM.
///
/// # Errors
/// When it does not run.
pub fn stop(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>) -> Result<Change, Refusal> {
    match (strategy(vm), vmi.filter(|vmi| is_live(Some(vmi)))) {
        (Strategy::Halted, None) => Err(Refusal::NotRunning),
        (Strategy::Manual | Strategy::RerunOnFailure, None) => Err(Refusal::NotRunning),
        (Strategy::Manual | Strategy::RerunOnFailure, Some(vmi)) => Ok(ask(vm, [stop_request(vmi)])),
        // Also between two attempts to start it: it would be started again.
        _ => Ok(run(vm, false)),
    }
}

/// Stops a VM and starts it again.
///
/// # Errors
/// When it does not run, or its strategy does not allow a second start.
pub fn restart(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>) -> Result<Change, Refusal> {
    match (strategy(vm), vmi.filter(|vmi| is_live(Some(vmi)))) {
        (strategy @ (Strategy::Halted | Strategy::Once), _) => Err(Refusal::Strategy { strategy, verb: "restart" }),
        (_, None) => Err(Refusal::NotRunning),
        (_, Some(vmi)) => Ok(ask(vm, [stop_request(vmi), start_request()])),
    }
}

/// The strategy, also where it is said in the old way.
fn strategy(vm: &VirtualMachine) -> Strategy {
    let old = || if vm.spec.running == Some(true) { Strategy::Always } else { Strategy::Halted };
    vm.spec.run_strategy.clone().unwrap_or_else(old)
}

fn is_live(vmi: Option<&VirtualMachineInstance>) -> bool {
    vmi.is_some_and(|vmi| !vmi.is_final())
}

/// In the field that the user has chosen.
fn run(vm: &VirtualMachine, on: bool) -> Change {
    let strategy = if on { Strategy::Always } else { Strategy::Halted };
    let spec = if vm.spec.running.is_some() {
        json!({ "running": on })
    } else {
        json!({ "runStrategy": strategy.to_string() })
    };
    Change::Object(json!({ "metadata": seen(vm), "spec": spec }))
}

/// After what was asked for before.
fn ask(vm: &VirtualMachine, requests: impl IntoIterator<Item = ChangeRequest>) -> Change {
    let earlier = vm.status.iter().flat_map(|status| status.state_change_requests.iter().flatten().cloned());
    let all: Vec<ChangeRequest> = earlier.chain(requests).collect();
    Change::Status(json!({ "metadata": seen(vm), "status": { "stateChangeRequests": all } }))
}

fn seen(vm: &VirtualMachine) -> Value {
    json!({ "uid": vm.metadata.uid, "resourceVersion": vm.metadata.resource_version })
}

fn start_request() -> ChangeRequest {
    ChangeRequest { action: Action::Start, ..ChangeRequest::default() }
}

fn stop_request(vmi: &VirtualMachineInstance) -> ChangeRequest {
    ChangeRequest { action: Action::Stop, uid: vmi.metadata.uid.clone(), ..ChangeRequest::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(spec: &Value) -> VirtualMachine {
        let mut whole = json!({ "template": { "spec": { "domain": { "devices": {} } } } });
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let metadata = json!({ "name": "v", "uid": "u", "resourceVersion": "7" });
        let vm =
            json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": whole });
        api::decode::object(vm).unwrap().object
    }

    fn vmi(phase: &str) -> VirtualMachineInstance {
        api::decode::object(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "v", "uid": "i" },
            "spec": { "domain": { "devices": {} } }, "status": { "phase": phase },
        }))
        .unwrap()
        .object
    }

    fn told(change: Result<Change, Refusal>) -> String {
        match change {
            Ok(Change::Object(patch)) => patch["spec"].to_string(),
            Ok(Change::Status(patch)) => patch["status"]["stateChangeRequests"].to_string(),
            Err(refusal) => refusal.to_string(),
        }
    }

    /// Each strategy, with nothing running and with a running instance: start, stop, restart.
    #[test]
    fn every_strategy_answers_every_verb() {
        let start_asked = r#"[{"action":"Start"}]"#;
        let stop_asked = r#"[{"action":"Stop","uid":"i"}]"#;
        let restart_asked = r#"[{"action":"Stop","uid":"i"},{"action":"Start"}]"#;
        let (on, off) = (r#"{"runStrategy":"Always"}"#, r#"{"runStrategy":"Halted"}"#);
        let (running, idle) = ("VM is already running", "VM is not running");
        for (strategy, still, live) in [
            (
                "Halted",
                [on, idle, "Halted does not support manual restart requests"],
                [on, off, "Halted does not support manual restart requests"],
            ),
            ("Always", ["Always does not support manual start requests", off, idle], [running, off, restart_asked]),
            (
                "Once",
                ["Once does not support manual start requests", off, "Once does not support manual restart requests"],
                [running, off, "Once does not support manual restart requests"],
            ),
            ("Manual", [start_asked, idle, idle], [running, stop_asked, restart_asked]),
            ("RerunOnFailure", [start_asked, idle, idle], [running, stop_asked, restart_asked]),
        ] {
            let vm = vm(&json!({ "runStrategy": strategy }));
            let (gone, there) = (vmi("Failed"), vmi("Running"));
            // One that has ended stands in the way of a manual start.
            let ended = if strategy == "Manual" { [restart_asked, idle, idle] } else { still };
            for (vmi, still) in [(None, still), (Some(&gone), ended)] {
                let answers = [told(start(&vm, vmi)), told(stop(&vm, vmi)), told(restart(&vm, vmi))];
                assert_eq!(answers, still, "{strategy}");
            }
            let vmi = Some(&there);
            let answers = [told(start(&vm, vmi)), told(stop(&vm, vmi)), told(restart(&vm, vmi))];
            assert_eq!(answers, live, "{strategy} while it runs");
        }
    }

    #[test]
    fn the_old_field_stays_in_use_and_earlier_requests_are_kept() {
        assert_eq!(told(start(&vm(&json!({ "running": false })), None)), r#"{"running":true}"#);
        assert_eq!(told(stop(&vm(&json!({ "running": true })), None)), r#"{"running":false}"#);
        let mut asked = vm(&json!({ "runStrategy": "Manual" }));
        let status = json!({ "stateChangeRequests": [{ "action": "Start" }] });
        asked.status = Some(serde_json::from_value(status).unwrap());
        let twice = r#"[{"action":"Start"},{"action":"Start"}]"#;
        assert_eq!(told(start(&asked, None)), twice);
    }

    #[test]
    fn a_change_holds_for_the_version_that_was_seen() {
        let Ok(Change::Object(patch)) = stop(&vm(&json!({ "runStrategy": "Always" })), None) else { panic!() };
        assert_eq!(patch["metadata"], json!({ "uid": "u", "resourceVersion": "7" }));
    }
}
