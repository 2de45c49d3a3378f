use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NODE: &str = "node";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn vmi(phase: &str, grace: Option<i64>, deleted: Option<i64>) -> VirtualMachineInstance {
    let deleted: Value = deleted.map_or(Value::Null, |second| json!(at(second).to_string()));
    serde_json::from_value(json!({
        "metadata": { "name": "a", "labels": { "kubevirt.io/nodeName": NODE }, "deletionTimestamp": deleted },
        "spec": { "domain": { "devices": {} }, "terminationGracePeriodSeconds": grace },
        "status": { "phase": phase },
    }))
    .unwrap()
}

fn reached(state: State) -> Launcher {
    Launcher::Connected { state, end: End::Unspecified }
}

fn ended(end: End) -> Launcher {
    Launcher::Connected { state: State::Ended, end }
}

fn look(vmi: Option<&VirtualMachineInstance>, launcher: Launcher, memory: &Memory, now: i64) -> Plan {
    decide(&Observed { node: NODE, vmi, launcher, memory, grace: seconds(20) }, at(now))
}

fn plain(vmi: &VirtualMachineInstance, launcher: Launcher) -> Plan {
    look(Some(vmi), launcher, &Memory::default(), 100)
}

#[test]
fn an_instance_of_another_node_or_not_handed_over_is_left_alone() {
    let mut other = vmi("Scheduled", None, None);
    other.metadata.labels.as_mut().unwrap().insert(label::NODE_NAME.to_owned(), "other".to_owned());
    assert_eq!(plain(&other, reached(State::Absent)), Plan::default());
    other.metadata.labels = None;
    assert_eq!(plain(&other, reached(State::Absent)), Plan::default());
    for phase in ["", "Pending", "Scheduling", "Unknown", "WaitingForSync"] {
        assert_eq!(plain(&vmi(phase, None, None), reached(State::Absent)), Plan::default(), "{phase}");
    }
}

#[test]
fn nothing_is_done_about_a_launcher_that_was_not_reached() {
    for phase in ["Scheduled", "Running", "Failed"] {
        for deleted in [None, Some(0)] {
            assert_eq!(plain(&vmi(phase, None, deleted), Launcher::Connecting), Plan::default());
        }
    }
    assert_eq!(look(None, Launcher::Connecting, &Memory::default(), 100), Plan::default());
}

#[test]
fn a_scheduled_instance_is_started() {
    assert_eq!(plain(&vmi("Scheduled", None, None), reached(State::Absent)), act(Action::Start));
    assert_eq!(plain(&vmi("Scheduled", None, None), reached(State::Starting)), Plan::default());
    assert_eq!(plain(&vmi("Scheduled", None, None), reached(State::Running)), enter(Phase::Running));
}

#[test]
fn a_failed_start_waits_and_one_that_cannot_succeed_is_the_end() {
    let failure = |is_final| Some(Failure { message: String::new(), is_final });
    let waits = Memory { failure: failure(false), retry_at: Some(at(107)), failures: 3, ..Memory::default() };
    let scheduled = vmi("Scheduled", None, None);
    let plan = look(Some(&scheduled), reached(State::Absent), &waits, 100);
    assert_eq!(plan, Plan { again: Some(seconds(7)), ..Plan::default() });
    assert_eq!(look(Some(&scheduled), reached(State::Absent), &waits, 107), act(Action::Start));
    let hopeless = Memory { failure: failure(true), ..waits };
    assert_eq!(look(Some(&scheduled), reached(State::Absent), &hopeless, 100), enter(Phase::Failed));
}

#[test]
fn a_running_instance_without_a_guest_has_failed() {
    assert_eq!(plain(&vmi("Running", None, None), reached(State::Absent)), enter(Phase::Failed));
}

#[test]
fn a_guest_that_runs_or_is_paused_is_running() {
    for state in [State::Running, State::PausedByUser, State::PausedByQemu, State::Stopping] {
        assert_eq!(plain(&vmi("Running", None, None), reached(state)), enter(Phase::Running), "{state:?}");
    }
}

#[test]
fn an_io_error_is_followed_by_attempts_to_resume() {
    let running = vmi("Running", None, None);
    let plan = plain(&running, reached(State::PausedByIoError));
    assert_eq!((plan.action, plan.phase), (Action::Resume, Some(Phase::Running)));
    let memory = Memory { retry_at: Some(at(130)), ..Memory::default() };
    let plan = look(Some(&running), reached(State::PausedByIoError), &memory, 100);
    assert_eq!((plan.action, plan.again), (Action::Nothing, Some(seconds(30))));
    let waits = [1, 2, 3, 4, 5, 6, 40].map(|times| until(resume_again(times, at(0)), at(0)).as_secs());
    assert_eq!(waits, [10, 20, 40, 80, 160, 180, 180]);
}

#[test]
fn how_a_guest_ended_says_what_its_instance_has_become() {
    let scheduled = vmi("Scheduled", None, None);
    for (end, phase) in [
        (End::PoweredOff, Phase::Succeeded),
        (End::Rebooted, Phase::Succeeded),
        (End::Killed, Phase::Failed),
        (End::KilledFromOutside, Phase::Failed),
        (End::Panicked, Phase::Failed),
        (End::OutOfMemory, Phase::Failed),
        (End::Crashed, Phase::Failed),
        (End::FailedToStart, Phase::Failed),
        (End::InternalError, Phase::Failed),
        (End::KvmFailed, Phase::Failed),
        (End::Unspecified, Phase::Failed),
    ] {
        assert_eq!(plain(&scheduled, ended(end)), enter(phase.clone()), "{end:?}");
        assert_eq!(plain(&scheduled, Launcher::Gone { end: Some(end) }), enter(phase), "{end:?}");
    }
    let mut without_acpi = vmi("Running", None, None);
    without_acpi.spec.domain.features = serde_json::from_value(json!({ "acpi": { "enabled": false } })).unwrap();
    assert_eq!(plain(&without_acpi, ended(End::Killed)), enter(Phase::Succeeded));
    assert_eq!(plain(&vmi("Running", Some(0), None), ended(End::Killed)), enter(Phase::Succeeded));
}

#[test]
fn a_launcher_that_is_gone_took_its_guest_along() {
    assert_eq!(plain(&vmi("Running", None, None), Launcher::Gone { end: None }), enter(Phase::Failed));
    assert_eq!(plain(&vmi("Scheduled", None, Some(0)), Launcher::Gone { end: None }), enter(Phase::Failed));
}

#[test]
fn a_deleted_instance_is_shut_down_and_killed_when_its_time_is_over() {
    let deleted = vmi("Running", Some(30), Some(0));
    let alive = reached(State::Running);
    let plan = look(Some(&deleted), alive, &Memory::default(), 10);
    let wanted = Action::Shutdown { rest: seconds(20) };
    assert_eq!((plan.action, plan.phase, plan.again), (wanted, Some(Phase::Running), Some(seconds(5))));
    let asked = Memory { asked: Some(at(10)), ..Memory::default() };
    let plan = look(Some(&deleted), reached(State::Stopping), &asked, 12);
    assert_eq!((plan.action, plan.again), (Action::Nothing, Some(seconds(3))));
    let late = Memory { asked: Some(at(29)), ..Memory::default() };
    let plan = look(Some(&deleted), reached(State::Stopping), &late, 29);
    assert_eq!(plan.again, Some(seconds(1)));
    let plan = look(Some(&deleted), reached(State::Stopping), &late, 30);
    assert_eq!((plan.action, plan.again), (Action::Kill, Some(seconds(5))));
}

#[test]
fn a_deleted_instance_that_never_ran_has_failed() {
    assert_eq!(plain(&vmi("Scheduled", None, Some(0)), reached(State::Absent)), enter(Phase::Failed));
}

#[test]
fn what_is_final_is_killed_let_go_and_cleaned_up() {
    let failed = vmi("Failed", None, None);
    assert_eq!(plain(&failed, reached(State::Running)), act(Action::Kill));
    assert_eq!(plain(&failed, ended(End::PoweredOff)), act(Action::Delete));
    assert_eq!(plain(&failed, reached(State::Absent)), act(Action::Delete));
    assert_eq!(plain(&failed, Launcher::Gone { end: None }), act(Action::CleanUp));
    assert_eq!(plain(&failed, Launcher::None), act(Action::CleanUp));
    let done = Memory { done: true, ..Memory::default() };
    assert_eq!(look(Some(&failed), Launcher::None, &done, 0), Plan::default());
}

#[test]
fn what_is_gone_is_shut_down_as_its_record_says() {
    let memory = Memory { gone_since: Some(at(0)), ..Memory::default() };
    let plan = look(None, reached(State::Running), &memory, 5);
    assert_eq!(plan.action, Action::Shutdown { rest: seconds(15) });
    assert_eq!(look(None, reached(State::Running), &memory, 20).action, Action::Kill);
    assert_eq!(look(None, ended(End::Killed), &memory, 5), act(Action::Delete));
    assert_eq!(look(None, Launcher::Gone { end: None }, &memory, 5), act(Action::CleanUp));
}

fn any_state() -> impl Strategy<Value = State> {
    (0..=8_i32).prop_map(|number| State::try_from(number).unwrap())
}

fn any_launcher() -> impl Strategy<Value = Launcher> {
    let end = (0..=10_i32).prop_map(|number| End::try_from(number).unwrap());
    prop_oneof![
        Just(Launcher::None),
        Just(Launcher::Connecting),
        (any_state(), end.clone()).prop_map(|(state, end)| Launcher::Connected { state, end }),
        prop::option::of(end).prop_map(|end| Launcher::Gone { end }),
    ]
}

fn any_memory() -> impl Strategy<Value = Memory> {
    let time = || prop::option::of((0..200_i64).prop_map(at));
    let failure = prop::option::of(any::<bool>().prop_map(|is_final| Failure { message: String::new(), is_final }));
    (time(), time(), time(), time(), 0..9_u32, failure, any::<bool>()).prop_map(
        |(gone_since, asked, killed, retry_at, failures, failure, done)| Memory {
            gone_since,
            asked,
            killed,
            failures,
            retry_at,
            failure,
            done,
        },
    )
}

fn any_instance() -> impl Strategy<Value = VirtualMachineInstance> {
    let phase = prop::sample::select(vec!["", "Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed"]);
    (phase, prop::option::of(0..60_i64), prop::option::of(0..200_i64))
        .prop_map(|(phase, grace, deleted)| vmi(phase, grace, deleted))
}

proptest! {
    #[test]
    fn whatever_is_seen_the_guarantees_hold(
        seen in prop::option::of(any_instance()),
        launcher in any_launcher(),
        memory in any_memory(),
        now in 0..300_i64,
    ) {
        let plan = look(seen.as_ref(), launcher, &memory, now);
        let is_final = seen.as_ref().is_some_and(VirtualMachineInstance::is_final);
        let deleted = seen.as_ref().and_then(|vmi| vmi.metadata.deletion_timestamp.as_ref().map(|Time(at)| *at));
        if plan.action == Action::Start {
            let vmi = seen.as_ref().unwrap();
            prop_assert!(vmi.phase().is_scheduled() && deleted.is_none());
            let is_absent = matches!(launcher, Launcher::Connected { state: State::Absent, .. });
            prop_assert!(is_absent);
        }
        if plan.action == Action::Kill && !is_final {
            let (since, grace) = match &seen {
                Some(vmi) => (deleted.unwrap(), grace_of(vmi)),
                None => (memory.gone_since.unwrap_or(at(now)), seconds(20)),
            };
            prop_assert!(at(now) >= since + grace, "killed before its grace period was over");
        }
        if matches!(plan.action, Action::Delete | Action::CleanUp) {
            prop_assert!(seen.is_none() || is_final);
        }
        if let Some(phase) = &plan.phase {
            let vmi = seen.as_ref().unwrap();
            prop_assert!(!vmi.is_final() && (phase.is_final() || phase.is_running()));
        }
        if seen.is_none() || is_final {
            prop_assert_eq!(plan.phase, None);
        }
    }

    /// A launcher that obeys, one step after the other: the instance comes to an end once it is deleted, and then nothing
    /// more is done.
    #[test]
    fn a_deleted_instance_comes_to_rest(
        grace in prop::option::of(0..60_i64),
        state in any_state(),
        obeys in any::<bool>(),
        running in any::<bool>(),
    ) {
        let mut seen = vmi(if running { "Running" } else { "Scheduled" }, grace, Some(0));
        let mut launcher = reached(state);
        let mut memory = Memory::default();
        let mut now = 0;
        for _ in 0..100 {
            let plan = look(Some(&seen), launcher, &memory, now);
            match plan.action {
                Action::Nothing | Action::Start | Action::Resume => {}
                Action::Shutdown { .. } => {
                    memory.asked = Some(at(now));
                    if obeys {
                        launcher = ended(End::PoweredOff);
                    }
                }
                Action::Kill => {
                    memory.killed = Some(at(now));
                    launcher = ended(End::Killed);
                }
                Action::Delete | Action::CleanUp => {
                    launcher = Launcher::None;
                    memory.done = true;
                }
            }
            if let Some(phase) = plan.phase.clone() {
                seen.status.as_mut().unwrap().phase = Some(phase);
            }
            // One that is being started either runs or has failed in the end.
            if launcher == reached(State::Starting) {
                launcher = reached(State::Running);
            }
            now += plan.again.map_or(0, |again| i64::try_from(again.as_secs()).unwrap());
        }
        prop_assert!(seen.is_final());
        prop_assert_eq!(launcher, Launcher::None);
        prop_assert_eq!(look(Some(&seen), launcher, &memory, now), Plan::default());
    }
}
