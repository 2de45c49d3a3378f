use super::*;

fn vm(spec: &Value) -> VirtualMachine {
    vm_with(spec, &json!(null))
}

fn vm_with(spec: &Value, status: &Value) -> VirtualMachine {
    let mut whole = json!({ "template": { "spec": { "domain": { "devices": {} } } } });
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let metadata = json!({ "name": "v", "uid": "u", "resourceVersion": "7" });
    let mut vm =
        json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": whole });
    if !status.is_null() {
        vm["status"] = status.clone();
    }
    api::decode::object(vm).unwrap().object
}

fn vmi(phase: &str) -> VirtualMachineInstance {
    api::decode::object(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "v", "uid": "i", "resourceVersion": "9" },
        "spec": { "domain": { "devices": {} }, "terminationGracePeriodSeconds": 30 }, "status": { "phase": phase },
    }))
    .unwrap()
    .object
}

fn told(plan: Result<Plan, Refusal>) -> String {
    match plan.map(|plan| plan.vm) {
        Ok(Change::Object(patch)) => patch["spec"].to_string(),
        Ok(Change::Status(patch)) => patch["status"]["stateChangeRequests"].to_string(),
        Err(refusal) => refusal.to_string(),
    }
}

const START: &str = r#"[{"action":"Start"}]"#;
const STOP: &str = r#"[{"action":"Stop","uid":"i"}]"#;
const RESTART: &str = r#"[{"action":"Stop","uid":"i"},{"action":"Start"}]"#;
const ON: &str = r#"{"runStrategy":"Always"}"#;
const OFF: &str = r#"{"runStrategy":"Halted"}"#;
const RUNNING: &str = "VM is already running";
const IDLE: &str = "VM is not running";
const GONE: &str = "VM is not running: Halted";

/// Each strategy with no instance, with one that failed, one that succeeded and one that runs: start, stop, restart.
#[test]
fn every_strategy_answers_every_verb() {
    let always = "Always does not support manual start requests";
    let once = "Once does not support manual start requests";
    let (halted_again, once_again) = (
        "RunStategy Halted does not support manual restart requests",
        "RunStategy Once does not support manual restart requests",
    );
    let longer = "Halted only supports manual stop requests with a shorter graceperiod";
    let failed = "RerunOnFailure does not support starting VM from failed state";
    type Row<'a> = (&'a str, [&'a str; 3], [&'a str; 3], [&'a str; 3], [&'a str; 3]);
    let table: [Row<'_>; 5] = [
        (
            "Halted",
            [ON, IDLE, halted_again],
            [ON, IDLE, halted_again],
            [ON, IDLE, halted_again],
            [RUNNING, longer, halted_again],
        ),
        ("Always", [always, OFF, GONE], [always, OFF, RESTART], [always, OFF, RESTART], [RUNNING, OFF, RESTART]),
        ("Once", [once, OFF, once_again], [once, OFF, once_again], [once, OFF, once_again], [RUNNING, OFF, once_again]),
        ("Manual", [START, IDLE, GONE], [RESTART, IDLE, RESTART], [RESTART, IDLE, RESTART], [RUNNING, STOP, RESTART]),
        (
            "RerunOnFailure",
            [START, IDLE, GONE],
            [failed, IDLE, RESTART],
            [RESTART, IDLE, RESTART],
            [RUNNING, STOP, RESTART],
        ),
    ];
    for (strategy, none, failed, succeeded, running) in table {
        let vm = vm(&json!({ "runStrategy": strategy }));
        let cases = [
            (None, none),
            (Some("Failed"), failed),
            (Some("Succeeded"), succeeded),
            (Some("Running"), running),
            (Some("Scheduling"), running),
        ];
        for (phase, expected) in cases {
            let vmi = phase.map(vmi);
            let vmi = vmi.as_ref();
            let answers = [told(start(&vm, vmi, false)), told(stop(&vm, vmi, None)), told(restart(&vm, vmi, None))];
            assert_eq!(answers, expected, "{strategy}, {phase:?}");
        }
    }
}

/// A strategy that only a newer release knows is neither started nor stopped by hand.
#[test]
fn a_strategy_that_waits_for_somebody_else_is_left_alone() {
    let vm = vm(&json!({ "runStrategy": "WaitAsReceiver" }));
    assert_eq!(told(start(&vm, None, false)), "WaitAsReceiver does not support manual start requests");
    assert_eq!(told(stop(&vm, None, None)), "WaitAsReceiver does not support manual stop requests");
}

#[test]
fn a_start_may_begin_paused() {
    let paused = r#"[{"action":"Start","data":{"paused":"true"}}]"#;
    for strategy in ["Halted", "Manual", "RerunOnFailure"] {
        assert_eq!(told(start(&vm(&json!({ "runStrategy": strategy })), None, true)), paused, "{strategy}");
    }
}

#[test]
fn the_old_field_stays_in_use() {
    assert_eq!(told(start(&vm(&json!({ "running": false })), None, false)), r#"{"running":true}"#);
    assert_eq!(told(stop(&vm(&json!({ "running": true })), None, None)), r#"{"running":false}"#);
}

#[test]
fn what_was_asked_for_before_comes_first_unless_it_is_a_stop() {
    let status = json!({ "stateChangeRequests": [{ "action": "Start" }] });
    let asked = vm_with(&json!({ "runStrategy": "Manual" }), &status);
    let (none, running) = (None, vmi("Running"));
    for refused in [start(&asked, none, false), restart(&asked, Some(&running), None)] {
        let refusal = refused.unwrap_err();
        assert_eq!(refusal.to_string(), "unable to complete request: stop/start already underway");
        assert_eq!(refusal.fault(), Fault::Internal);
    }
    assert_eq!(told(stop(&asked, Some(&running), None)), STOP);
}

#[test]
fn a_start_failure_is_forgotten_with_a_request_and_kept_otherwise() {
    let status = json!({ "startFailure": { "consecutiveFailCount": 3 } });
    let asked = vm_with(&json!({ "runStrategy": "Manual" }), &status);
    let Change::Status(patch) = start(&asked, None, false).unwrap().vm else { panic!() };
    assert_eq!(patch["status"], json!({ "stateChangeRequests": [{ "action": "Start" }], "startFailure": null }));
    let fresh = vm(&json!({ "runStrategy": "Manual" }));
    let Change::Status(patch) = start(&fresh, None, false).unwrap().vm else { panic!() };
    assert_eq!(patch["status"], json!({ "stateChangeRequests": [{ "action": "Start" }] }));
}

#[test]
fn grace_periods_go_to_the_instance() {
    let running = vmi("Running");
    let grace = |plan: Plan| plan.instance.map(|patch| patch["spec"]["terminationGracePeriodSeconds"].clone());
    let (manual, halted) = (vm(&json!({ "runStrategy": "Manual" })), vm(&json!({ "runStrategy": "Halted" })));
    assert_eq!(grace(stop(&manual, Some(&running), Some(5)).unwrap()), Some(json!(5)));
    assert_eq!(grace(stop(&manual, Some(&running), None).unwrap()), None);
    // One that is stopping already can be stopped sooner, and not later.
    assert_eq!(grace(stop(&halted, Some(&running), Some(29)).unwrap()), Some(json!(29)));
    assert_eq!(stop(&halted, Some(&running), Some(30)).unwrap_err(), Refusal::LongerGrace);
    assert_eq!(stop(&manual, Some(&running), Some(-1)).unwrap_err().fault(), Fault::Request);
    // A restart by force leaves the guest no more than a second.
    assert_eq!(grace(restart(&manual, Some(&running), Some(0)).unwrap()), Some(json!(1)));
    let refused = restart(&manual, Some(&running), Some(5)).unwrap_err();
    assert_eq!(refused.to_string(), "For force restart, only gracePeriod=0 is supported for now");
    let refused = restart(&manual, Some(&running), Some(-5)).unwrap_err();
    assert_eq!(refused.to_string(), "gracePeriod has to be greater or equal to 0");
}

#[test]
fn a_vm_that_needs_people_is_not_touched() {
    for (condition, verb) in [(RECOVERY, "start"), (VOLUMES_CHANGE, "restart")] {
        let status = json!({ "conditions": [{ "type": condition, "status": "True" }] });
        let vm = vm_with(&json!({ "runStrategy": "Manual" }), &status);
        let refused = match verb {
            "start" => start(&vm, None, false),
            _ => restart(&vm, Some(&vmi("Running")), None),
        };
        assert_eq!(refused.unwrap_err(), Refusal::Recovery, "{condition}");
    }
}

#[test]
fn a_change_holds_for_the_version_that_was_seen() {
    let vm = vm(&json!({ "runStrategy": "Always" }));
    let plan = stop(&vm, Some(&vmi("Running")), Some(3)).unwrap();
    let Change::Object(patch) = plan.vm else { panic!() };
    assert_eq!(patch["metadata"], json!({ "uid": "u", "resourceVersion": "7" }));
    assert_eq!(plan.instance.unwrap()["metadata"], json!({ "uid": "i", "resourceVersion": "9" }));
}
