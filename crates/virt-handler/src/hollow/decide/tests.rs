use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::status::{ended, enter};
use super::*;

const STAY: Life = Life { fate: Fate::Stay, run_for: Duration::ZERO };

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn vmi(phase: &str, seconds: i64) -> VirtualMachineInstance {
    serde_json::from_value(json!({
        "metadata": { "name": "a", "creationTimestamp": "1970-01-01T00:00:00Z" },
        "spec": { "domain": { "devices": {} } },
        "status": {
            "phase": phase,
            "phaseTransitionTimestamps": [{ "phase": phase, "phaseTransitionTimestamp": at(seconds).to_string() }],
        },
    }))
    .unwrap()
}

fn pod(phase: &str, metadata: &Value) -> Pod {
    serde_json::from_value(json!({ "metadata": metadata, "status": { "phase": phase } })).unwrap()
}

fn plan(vmi: &VirtualMachineInstance, pod: Option<&Pod>, life: Life, behaviour: &Behaviour, second: i64) -> Plan {
    decide(&Seen { vmi, pod, life, behaviour }, at(second))
}

fn usual(vmi: &VirtualMachineInstance, pod: Option<&Pod>) -> Plan {
    plan(vmi, pod, STAY, &Behaviour::default(), 100)
}

#[test]
fn an_instance_runs_after_its_delay() {
    let slow = Behaviour { start_delay: Duration::from_secs(5), ..Behaviour::default() };
    let (scheduled, pod) = (vmi("Scheduled", 10), pod("Running", &json!({})));
    assert_eq!(plan(&scheduled, Some(&pod), STAY, &slow, 12), Plan::Later(Duration::from_secs(3)));
    assert_eq!(plan(&scheduled, Some(&pod), STAY, &slow, 15), Plan::Enter(Phase::Running));
    let broken = Life { fate: Fate::FailToStart, ..STAY };
    assert_eq!(plan(&scheduled, Some(&pod), broken, &slow, 15), Plan::Enter(Phase::Failed));
}

#[test]
fn a_launcher_that_is_not_there_starts_nothing() {
    let scheduled = vmi("Scheduled", 0);
    assert_eq!(usual(&scheduled, None), Plan::Nothing);
    assert_eq!(usual(&scheduled, Some(&pod("Pending", &json!({})))), Plan::Nothing);
    let leaving = json!({ "deletionTimestamp": "1970-01-01T00:02:00Z", "deletionGracePeriodSeconds": 60 });
    assert_eq!(usual(&scheduled, Some(&pod("Running", &leaving))), Plan::Nothing);
    assert_eq!(usual(&vmi("Running", 0), None), Plan::Nothing);
}

#[test]
fn an_instance_ends_as_its_launcher_did() {
    for phase in ["Scheduled", "Running"] {
        let vmi = vmi(phase, 0);
        assert_eq!(usual(&vmi, Some(&pod("Failed", &json!({})))), Plan::Enter(Phase::Failed));
        assert_eq!(usual(&vmi, Some(&pod("Succeeded", &json!({})))), Plan::Enter(Phase::Succeeded));
    }
}

#[test]
fn a_deleted_instance_shuts_down_in_its_time() {
    let slow = Behaviour { stop_delay: Duration::from_secs(5), ..Behaviour::default() };
    let mut running = vmi("Running", 0);
    running.metadata.deletion_timestamp = Some(Time(at(100)));
    assert_eq!(plan(&running, None, STAY, &slow, 102), Plan::Later(Duration::from_secs(3)));
    assert_eq!(plan(&running, None, STAY, &slow, 105), Plan::Enter(Phase::Succeeded));
    running.spec.termination_grace_period_seconds = Some(2);
    assert_eq!(plan(&running, None, STAY, &slow, 101), Plan::Later(Duration::from_secs(1)));
    assert_eq!(plan(&running, None, STAY, &slow, 102), Plan::Enter(Phase::Failed));
    running.spec.termination_grace_period_seconds = Some(0);
    assert_eq!(plan(&running, None, STAY, &slow, 100), Plan::Enter(Phase::Succeeded));
}

#[test]
fn a_guest_that_hangs_is_killed_after_its_grace_period() {
    let hanging = Life { fate: Fate::Hang, ..STAY };
    let mut running = vmi("Running", 0);
    running.metadata.deletion_timestamp = Some(Time(at(100)));
    let behaviour = Behaviour::default();
    assert_eq!(plan(&running, None, hanging, &behaviour, 100), Plan::Later(GRACE));
    assert_eq!(plan(&running, None, hanging, &behaviour, 130), Plan::Enter(Phase::Failed));
}

#[test]
fn a_launcher_that_is_deleted_shuts_its_guest_down() {
    let slow = Behaviour { stop_delay: Duration::from_secs(5), ..Behaviour::default() };
    // Asked for at 60.
    let leaving = json!({ "deletionTimestamp": "1970-01-01T00:02:00Z", "deletionGracePeriodSeconds": 60 });
    let (running, pod) = (vmi("Running", 0), pod("Running", &leaving));
    assert_eq!(plan(&running, Some(&pod), STAY, &slow, 61), Plan::Later(Duration::from_secs(4)));
    assert_eq!(plan(&running, Some(&pod), STAY, &slow, 65), Plan::Enter(Phase::Succeeded));
}

#[test]
fn a_guest_ends_by_itself_unless_it_is_paused() {
    let (mut running, pod, behaviour) = (vmi("Running", 10), pod("Running", &json!({})), Behaviour::default());
    let succeeds = Life { fate: Fate::Succeed, run_for: Duration::from_secs(5) };
    assert_eq!(plan(&running, Some(&pod), succeeds, &behaviour, 11), Plan::Later(Duration::from_secs(4)));
    assert_eq!(plan(&running, Some(&pod), succeeds, &behaviour, 15), Plan::Enter(Phase::Succeeded));
    let crashes = Life { fate: Fate::Crash, ..succeeds };
    assert_eq!(plan(&running, Some(&pod), crashes, &behaviour, 15), Plan::Enter(Phase::Failed));
    let paused = json!([{ "type": "Paused", "status": "True" }]);
    running.status.as_mut().unwrap().conditions = serde_json::from_value(paused).unwrap();
    assert_eq!(plan(&running, Some(&pod), crashes, &behaviour, 15), Plan::Nothing);
}

#[test]
fn a_launcher_ends_with_its_guest() {
    let running = pod("Running", &json!({}));
    assert_eq!(usual(&vmi("Failed", 0), Some(&running)), Plan::EndPod);
    assert_eq!(usual(&vmi("Succeeded", 0), Some(&pod("Succeeded", &json!({})))), Plan::Nothing);
    assert_eq!(usual(&vmi("Succeeded", 0), None), Plan::Nothing);
    let leaving = pod("Running", &json!({ "deletionTimestamp": "1970-01-01T00:02:00Z" }));
    assert_eq!(usual(&vmi("Succeeded", 0), Some(&leaving)), Plan::Nothing);
    let mut deleted = vmi("Succeeded", 0);
    deleted.metadata.deletion_timestamp = Some(Time(at(1)));
    assert_eq!(usual(&deleted, Some(&running)), Plan::Nothing);
}

/// What others do to an instance and its pod.
#[derive(Clone, Debug)]
enum Event {
    DeleteInstance,
    DeletePod,
    LosePod,
    EndPod(bool),
    Wait(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let one = prop_oneof![
        1 => Just(Event::DeleteInstance),
        1 => Just(Event::DeletePod),
        1 => Just(Event::LosePod),
        1 => any::<bool>().prop_map(Event::EndPod),
        6 => (0_u8..20).prop_map(Event::Wait),
    ];
    prop::collection::vec(one, 0..12)
}

fn lives() -> impl Strategy<Value = Life> {
    let fates = [Fate::Stay, Fate::Succeed, Fate::Crash, Fate::FailToStart, Fate::Hang];
    (prop::sample::select(fates.to_vec()), 0_u64..10)
        .prop_map(|(fate, seconds)| Life { fate, run_for: Duration::from_secs(seconds) })
}

/// What a patch leaves of an object.
fn patched<T: serde::Serialize + serde::de::DeserializeOwned>(object: &T, patch: &Value) -> T {
    let mut value = serde_json::to_value(object).unwrap();
    for (key, new) in patch["status"].as_object().unwrap() {
        value["status"][key] = new.clone();
    }
    serde_json::from_value(value).unwrap()
}

proptest! {
    /// Phases only go forward, each plan is carried out once, and in the end there is nothing to do.
    #[test]
    fn every_life_comes_to_rest(events in events(), life in lives(), start in 0_u64..10, stop in 0_u64..40) {
        let behaviour = Behaviour {
            start_delay: Duration::from_secs(start),
            stop_delay: Duration::from_secs(stop),
            ..Behaviour::default()
        };
        let (mut vmi, mut pod, mut second) = (vmi("Scheduled", 0), Some(pod("Running", &json!({}))), 0_i64);
        let mut writes = 0;
        // Long enough to start, and then long enough to end.
        for event in events.into_iter().map(Some).chain([None, None]) {
            match event {
                Some(Event::DeleteInstance) => {
                    vmi.metadata.deletion_timestamp.get_or_insert(Time(at(second)));
                }
                Some(Event::DeletePod) => {
                    if let Some(pod) = &mut pod {
                        pod.metadata.deletion_timestamp.get_or_insert(Time(at(second)));
                    }
                }
                Some(Event::LosePod) => pod = None,
                Some(Event::EndPod(well)) => {
                    if let Some(status) = pod.as_mut().filter(|pod| !has_ended(pod)).and_then(|pod| pod.status.as_mut()) {
                        status.phase = Some(if well { "Succeeded" } else { "Failed" }.to_owned());
                    }
                }
                Some(Event::Wait(seconds)) => second += i64::from(seconds),
                None => second += 1000,
            }
            loop {
                let was = vmi.phase().clone();
                match plan(&vmi, pod.as_ref(), life, &behaviour, second) {
                    Plan::Nothing => break,
                    Plan::Later(rest) => {
                        prop_assert!(!rest.is_zero());
                        break;
                    }
                    Plan::Enter(next) => {
                        prop_assert!(!was.is_final(), "{was} becomes {next}");
                        prop_assert!(next.is_final() || (was == Phase::Scheduled && next == Phase::Running));
                        vmi = patched(&vmi, &enter(&vmi, pod.as_ref(), &next, at(second)));
                        prop_assert_eq!(vmi.phase(), &next);
                    }
                    Plan::EndPod => {
                        prop_assert!(was.is_final());
                        let live = pod.take().unwrap();
                        pod = Some(patched(&live, &ended(&live, &vmi, at(second))));
                    }
                }
                writes += 1;
                prop_assert!(writes <= 3, "running, its end, and that of its pod");
            }
        }
        let last = plan(&vmi, pod.as_ref(), life, &behaviour, second);
        prop_assert_eq!(last, Plan::Nothing);
    }
}
