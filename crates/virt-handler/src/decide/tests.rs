mod moving;
mod roles;

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

fn look(vmi: Option<&VirtualMachineInstance>, launcher: Launcher, efforts: &Efforts, now: i64) -> Plan {
    let role = if vmi.is_some() { Role::Sole } else { Role::Orphan };
    decide(&observed(vmi, role, launcher, efforts), at(now))
}

fn observed<'a>(
    vmi: Option<&'a VirtualMachineInstance>,
    role: Role,
    launcher: Launcher,
    efforts: &'a Efforts,
) -> Observed<'a> {
    Observed { node: NODE, role, vmi, launcher, efforts, grace: seconds(20), is_synced: true, way: &Way::None }
}

fn as_role(role: Role, vmi: &VirtualMachineInstance, launcher: Launcher) -> Plan {
    decide(&observed(Some(vmi), role, launcher, &Efforts::default()), at(100))
}

fn plain(vmi: &VirtualMachineInstance, launcher: Launcher) -> Plan {
    look(Some(vmi), launcher, &Efforts::default(), 100)
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
    assert_eq!(look(None, Launcher::Connecting, &Efforts::default(), 100), Plan::default());
}

#[test]
fn a_scheduled_instance_is_started() {
    assert_eq!(plain(&vmi("Scheduled", None, None), reached(State::Absent)), act(Action::Start));
    assert_eq!(plain(&vmi("Scheduled", None, None), reached(State::Starting)), Plan::default());
    assert_eq!(plain(&vmi("Scheduled", None, None), reached(State::Running)), enter(Phase::Running));
}

#[test]
fn a_failed_start_waits_and_one_that_cannot_succeed_is_the_end() {
    let waits = Efforts {
        outcome: Some(Outcome::retry("not now")),
        retry_at: Some(at(107)),
        failures: 3,
        ..Efforts::default()
    };
    let scheduled = vmi("Scheduled", None, None);
    let plan = look(Some(&scheduled), reached(State::Absent), &waits, 100);
    assert_eq!(plan, Plan { again: Some(seconds(7)), ..Plan::default() });
    assert_eq!(look(Some(&scheduled), reached(State::Absent), &waits, 107), act(Action::Start));
    let hopeless = Efforts { outcome: Some(Outcome::never("spec", "no")), ..waits };
    assert_eq!(look(Some(&scheduled), reached(State::Absent), &hopeless, 100), enter(Phase::Failed));
}

#[test]
fn a_change_is_told_to_the_launcher_whose_guest_runs() {
    let seen = |vmi: &VirtualMachineInstance, state: State, efforts: &Efforts| {
        let launcher = reached(state);
        let observed = Observed { is_synced: false, ..observed(Some(vmi), Role::Sole, launcher, efforts) };
        decide(&observed, at(100))
    };
    let running = vmi("Running", None, None);
    let sync = Plan { phase: Some(Phase::Running), ..act(Action::Sync) };
    assert_eq!(seen(&running, State::Running, &Efforts::default()), sync);
    assert_eq!(seen(&running, State::PausedByUser, &Efforts::default()), sync);
    let waits = Efforts { retry_at: Some(at(107)), ..Efforts::default() };
    assert_eq!(seen(&running, State::Running, &waits), Plan { again: Some(seconds(7)), ..enter(Phase::Running) });
    assert_eq!(seen(&running, State::Stopping, &Efforts::default()), enter(Phase::Running));
}

#[test]
fn only_the_launcher_that_holds_a_guest_says_its_phase() {
    let running = vmi("Running", None, None);
    for state in [State::Awaiting, State::Loaded, State::Left] {
        assert_eq!(plain(&running, reached(state)), Plan::default());
    }
    for end in [End::Moved, End::NotTaken] {
        assert_eq!(plain(&running, ended(end)), Plan::default(), "it lives on in another launcher");
    }
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
    let efforts = Efforts { retry_at: Some(at(130)), ..Efforts::default() };
    let plan = look(Some(&running), reached(State::PausedByIoError), &efforts, 100);
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
    let plan = look(Some(&deleted), alive, &Efforts::default(), 10);
    let wanted = Action::Shutdown { rest: seconds(20) };
    assert_eq!((plan.action, plan.phase, plan.again), (wanted, Some(Phase::Running), Some(seconds(5))));
    let asked = Efforts { asked: Some(at(10)), ..Efforts::default() };
    let plan = look(Some(&deleted), reached(State::Stopping), &asked, 12);
    assert_eq!((plan.action, plan.again), (Action::Nothing, Some(seconds(3))));
    let late = Efforts { asked: Some(at(29)), ..Efforts::default() };
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
    let done = Efforts { done: true, ..Efforts::default() };
    assert_eq!(look(Some(&failed), Launcher::None, &done, 0), Plan::default());
}

#[test]
fn what_is_gone_is_shut_down_as_its_record_says() {
    let efforts = Efforts { gone_since: Some(at(0)), ..Efforts::default() };
    let plan = look(None, reached(State::Running), &efforts, 5);
    assert_eq!(plan.action, Action::Shutdown { rest: seconds(15) });
    assert_eq!(look(None, reached(State::Running), &efforts, 20).action, Action::Kill);
    assert_eq!(look(None, ended(End::Killed), &efforts, 5), act(Action::Delete));
    assert_eq!(look(None, Launcher::Gone { end: None }, &efforts, 5), act(Action::CleanUp));
}

fn any_state() -> impl Strategy<Value = State> {
    (0..=11_i32).prop_map(|number| State::try_from(number).unwrap())
}

fn any_launcher() -> impl Strategy<Value = Launcher> {
    let end = (0..=12_i32).prop_map(|number| End::try_from(number).unwrap());
    prop_oneof![
        Just(Launcher::None),
        Just(Launcher::Connecting),
        (any_state(), end.clone()).prop_map(|(state, end)| Launcher::Connected { state, end }),
        prop::option::of(end).prop_map(|end| Launcher::Gone { end }),
    ]
}

fn any_efforts() -> impl Strategy<Value = Efforts> {
    let time = || prop::option::of((0..200_i64).prop_map(at));
    let outcome = prop::option::of(prop::sample::select(vec![
        Outcome::Done,
        Outcome::retry(""),
        Outcome::never("", ""),
        Outcome::NeedsMigration(vec![]),
        Outcome::NeedsRestart(vec![]),
    ]));
    (time(), time(), time(), time(), 0..9_u32, outcome, any::<bool>()).prop_map(
        |(gone_since, asked, killed, retry_at, failures, outcome, done)| Efforts {
            gone_since,
            asked,
            killed,
            failures,
            retry_at,
            outcome,
            moving: Attempts::default(),
            done,
        },
    )
}

fn any_role() -> impl Strategy<Value = Role> {
    prop::sample::select(vec![Role::Sole, Role::Source, Role::Target, Role::Orphan])
}

fn any_way() -> impl Strategy<Value = Way> {
    let given = Way::Given { paused: launcher_api::rpc::Paused::Not };
    let stayed = Way::Stayed { why: "slow".to_owned() };
    prop::sample::select(vec![Way::None, Way::Sending, Way::Parted, Way::Cut, given, stayed])
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
        efforts in any_efforts(),
        now in 0..300_i64,
        is_synced in any::<bool>(),
        role in any_role(),
        way in any_way(),
    ) {
        let grace = seconds(20);
        let role = if seen.is_some() { role } else { Role::Orphan };
        let observed = Observed { node: NODE, role, vmi: seen.as_ref(), launcher, efforts: &efforts, grace, is_synced, way: &way };
        let plan = decide(&observed, at(now));
        let is_final = seen.as_ref().is_some_and(VirtualMachineInstance::is_final);
        let deleted = seen.as_ref().and_then(|vmi| vmi.metadata.deletion_timestamp.as_ref().map(|Time(at)| *at));
        if plan.action == Action::Start {
            let vmi = seen.as_ref().unwrap();
            prop_assert!(vmi.phase().is_scheduled() && deleted.is_none() && role == Role::Sole);
            let is_absent = matches!(launcher, Launcher::Connected { state: State::Absent, .. });
            prop_assert!(is_absent);
        }
        if plan.action == Action::Return {
            let has_left = matches!(launcher, Launcher::Connected { state: State::Left, .. });
            prop_assert!(role == Role::Sole && way == Way::Cut && has_left, "it may be elsewhere");
        }
        if plan.action == Action::Sync {
            prop_assert!(!is_synced && deleted.is_none() && !is_final && role == Role::Sole);
            let runs = [State::Running, State::PausedByUser, State::PausedByQemu];
            let is_alive = matches!(launcher, Launcher::Connected { state, .. } if runs.contains(&state));
            prop_assert!(is_alive);
        }
        let lives_elsewhere = seen.is_some() && role == Role::Orphan;
        if plan.action == Action::Kill && !is_final && lives_elsewhere {
            let away = [State::Awaiting, State::Loaded, State::Left];
            let is_away = matches!(launcher, Launcher::Connected { state, .. } if away.contains(&state));
            prop_assert!(is_away, "a launcher that holds the guest is left alone");
        } else if plan.action == Action::Kill && !is_final {
            let (since, grace) = match &seen {
                Some(vmi) => (deleted.unwrap(), grace_of(vmi)),
                None => (efforts.gone_since.unwrap_or(at(now)), seconds(20)),
            };
            prop_assert!(at(now) >= since + grace, "killed before its grace period was over");
        }
        if matches!(plan.action, Action::Delete | Action::CleanUp) {
            prop_assert!(seen.is_none() || is_final || lives_elsewhere);
        }
        if let Some(phase) = &plan.phase {
            let vmi = seen.as_ref().unwrap();
            prop_assert!(role.holds(), "only who holds the guest says its phase");
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
        let mut efforts = Efforts::default();
        let mut now = 0;
        for _ in 0..100 {
            let plan = look(Some(&seen), launcher, &efforts, now);
            match plan.action {
                Action::Nothing | Action::Start | Action::Sync | Action::Resume => {}
                Action::Prepare
                | Action::Send
                | Action::Cancel
                | Action::Settle
                | Action::HandOver
                | Action::Return
                | Action::Take => prop_assert!(false, "it does not move: {:?}", plan.action),
                Action::Shutdown { .. } => {
                    efforts.asked = Some(at(now));
                    if obeys {
                        launcher = ended(End::PoweredOff);
                    }
                }
                Action::Kill => {
                    efforts.killed = Some(at(now));
                    launcher = ended(End::Killed);
                }
                Action::Delete | Action::CleanUp => {
                    launcher = Launcher::None;
                    efforts.done = true;
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
        prop_assert_eq!(look(Some(&seen), launcher, &efforts, now), Plan::default());
    }
}
