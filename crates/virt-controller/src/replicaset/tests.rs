//! The rules of replica sets of instances.

use std::collections::BTreeSet;

use json_patch::merge;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn set(replicas: Option<i32>, paused: bool) -> VirtualMachineInstanceReplicaSet {
    let set = json!({
        "metadata": { "name": "web", "namespace": "n", "uid": "s", "resourceVersion": "7" },
        "spec": {
            "replicas": replicas,
            "paused": paused,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" }, "annotations": { "a": "b" } },
                "spec": { "domain": { "devices": {} } },
            },
        },
    });
    serde_json::from_value(set).unwrap()
}

/// What an instance looks like to its set, in the terms of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looks {
    Going,
    Succeeded,
    FailedLater,
    /// It never ran, and ended at this second, after so many like it.
    FailedAtOnce(i64, u32),
    Lost,
    Starting,
    Running,
    Ready,
}

fn instance(name: &str, looks: Looks) -> VirtualMachineInstance {
    let (phase, ready, reason) = match looks {
        Looks::Going => ("Running", "True", ""),
        Looks::Succeeded => ("Succeeded", "False", ""),
        Looks::FailedLater | Looks::FailedAtOnce(..) => ("Failed", "False", ""),
        Looks::Lost => ("Running", "False", "PodTerminating"),
        Looks::Starting => ("Scheduling", "False", "GuestNotRunning"),
        Looks::Running => ("Running", "False", ""),
        Looks::Ready => ("Running", "True", ""),
    };
    let time = |second: i64| at(second).to_string();
    let (entered, annotations) = match looks {
        Looks::FailedAtOnce(second, before) => (
            json!([{ "phase": "Failed", "phaseTransitionTimestamp": time(second) }]),
            json!({ FAILED_STARTS: before.to_string() }),
        ),
        Looks::FailedLater => (
            json!([
                { "phase": "Running", "phaseTransitionTimestamp": time(1) },
                { "phase": "Failed", "phaseTransitionTimestamp": time(2) },
            ]),
            json!({}),
        ),
        _ => (json!([]), json!({})),
    };
    let owner = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet", "name": "web", "uid": "s",
        "controller": true, "blockOwnerDeletion": true,
    });
    let vmi = json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": format!("u-{name}"), "resourceVersion": "3",
            "labels": { "app": "web" }, "annotations": annotations, "ownerReferences": [owner],
            "deletionTimestamp": (looks == Looks::Going).then(|| time(5)),
        },
        "spec": { "domain": { "devices": {} } },
        "status": {
            "phase": phase, "phaseTransitionTimestamps": entered,
            "conditions": [{ "type": "Ready", "status": ready, "reason": reason }],
        },
    });
    serde_json::from_value(vmi).unwrap()
}

fn plan_of(set: &VirtualMachineInstanceReplicaSet, all: &[VirtualMachineInstance], now: i64) -> ReplicaSetPlan {
    let (taken_names, failure) = (BTreeSet::new(), None);
    decide(&Observed { set, instances: all.iter().collect(), taken_names, failure }, at(now)).unwrap()
}

fn deleted(plan: &ReplicaSetPlan) -> Vec<&str> {
    plan.delete.iter().map(|deletion| deletion.target.name.as_str()).collect()
}

#[test]
fn each_instance_is_to_its_set_what_the_table_says() {
    use Looks::{FailedAtOnce, FailedLater, Going, Lost, Ready, Running, Starting, Succeeded};
    // With one replica wanted and one instance at second 100: how many are created, whether the instance is deleted, and
    // whether somebody looks again later.
    let table = [
        (Going, 1, false, false),
        (Succeeded, 1, true, false),
        (FailedLater, 1, true, false),
        (FailedAtOnce(95, 0), 0, false, true),
        (FailedAtOnce(80, 0), 1, true, false),
        (FailedAtOnce(80, 1), 0, false, true),
        (Lost, 1, true, false),
        (Starting, 0, false, false),
        (Running, 0, false, false),
        (Ready, 0, false, false),
    ];
    for (looks, created, is_deleted, waits) in table {
        let plan = plan_of(&set(Some(1), false), &[instance("a", looks)], 100);
        let got = (plan.create.len(), !plan.delete.is_empty(), plan.recheck_after.is_some());
        assert_eq!(got, (created, is_deleted, waits), "{looks:?}");
    }
}

/// More than that at a time would keep everybody else waiting.
#[test]
fn never_more_than_a_burst_is_made_or_deleted_at_once() {
    assert_eq!(plan_of(&set(Some(600), false), &[], 100).create.len(), BURST);
    assert_eq!(plan_of(&set(Some(251), false), &[instance("a", Looks::Ready)], 100).create.len(), BURST);
    let many = |looks: Looks| (0..600).map(|number| instance(&format!("i{number}"), looks)).collect::<Vec<_>>();
    assert_eq!(plan_of(&set(Some(0), false), &many(Looks::Ready), 100).delete.len(), BURST);
    assert_eq!(plan_of(&set(Some(600), false), &many(Looks::Succeeded), 100).delete.len(), BURST);
}

#[test]
fn a_template_that_never_runs_is_tried_more_and_more_seldom() {
    let mut looks = Looks::FailedAtOnce(0, 0);
    let mut waits = Vec::new();
    for _ in 0..7 {
        let plan = plan_of(&set(Some(1), false), &[instance("a", looks)], 0);
        let wait = plan.recheck_after.unwrap();
        waits.push(wait.as_secs());
        let due = plan_of(&set(Some(1), false), &[instance("a", looks)], i64::try_from(wait.as_secs()).unwrap());
        let [made] = due.create.as_slice() else { panic!("{due:?}") };
        assert_eq!(deleted(&due), ["a"]);
        looks = Looks::FailedAtOnce(0, failures_before(made));
    }
    assert_eq!(waits, [10, 40, 90, 160, 250, 300, 300]);
    // One that ran once begins anew.
    let plan = plan_of(&set(Some(1), false), &[instance("a", Looks::FailedLater)], 100);
    assert_eq!(failures_before(&plan.create[0]), 0);
    // Nobody waits for the replacement of one that is too many.
    let plan = plan_of(&set(Some(0), false), &[instance("a", Looks::FailedAtOnce(100, 3))], 100);
    assert_eq!((deleted(&plan), plan.create.len(), plan.recheck_after), (vec!["a"], 0, None));
}

#[test]
fn those_that_are_missed_least_go_first() {
    let mut young = instance("young", Looks::Ready);
    young.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(50)));
    let mut old = instance("old", Looks::Ready);
    old.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(10)));
    let mut moving = instance("moving", Looks::Ready);
    moving.status.as_mut().unwrap().migration_state =
        Some(api::migration::VirtualMachineInstanceMigrationState::default());
    let all = [
        old,
        young,
        instance("running", Looks::Running),
        moving,
        instance("b", Looks::Starting),
        instance("a", Looks::Starting),
    ];
    let plan = plan_of(&set(Some(0), false), &all, 100);
    assert_eq!(deleted(&plan), ["a", "b", "moving", "running", "young", "old"]);
    assert_eq!(deleted(&plan_of(&set(Some(4), false), &all, 100)), ["a", "b"]);
}

#[test]
fn a_paused_set_claims_and_counts_but_neither_creates_nor_deletes() {
    let mut orphan = instance("orphan", Looks::Ready);
    orphan.metadata.owner_references = None;
    let all = [orphan, instance("over", Looks::Succeeded)];
    let plan = plan_of(&set(Some(5), true), &all, 100);
    assert!(plan.create.is_empty() && plan.delete.is_empty());
    assert_eq!(plan.adopt.len(), 1);
    assert_eq!(plan.adopt[0].patch["metadata"]["resourceVersion"], "3");
    assert_eq!(plan.events[0].reason, "SuccessfulPaused");
    let status = &plan.status.as_ref().unwrap()["status"];
    assert_eq!((&status["replicas"], &status["readyReplicas"]), (&json!(1), &json!(1)));
    assert_eq!(status["labelSelector"], "app=web");
    assert_eq!(status["conditions"][0]["type"], "ReplicaPaused");
}

#[test]
fn a_failure_is_shown_as_long_as_somebody_tries() {
    let failure = Some(Failure { reason: "FailedCreate", message: "no room".to_owned() });
    let condition = |set: &VirtualMachineInstanceReplicaSet| {
        let observed = Observed { set, instances: vec![], taken_names: BTreeSet::new(), failure: failure.clone() };
        decide(&observed, at(9)).unwrap().status.unwrap()["status"]["conditions"][0].clone()
    };
    assert_eq!(condition(&set(Some(1), false))["message"], "no room");
    assert!(condition(&set(Some(0), false)).is_null());
}

#[test]
fn a_name_begins_as_the_template_says_and_is_the_same_for_every_leader() {
    let mut set = set(Some(2), false);
    let made = |set: &VirtualMachineInstanceReplicaSet, taken: &[&str]| -> Vec<String> {
        let taken_names = taken.iter().map(|name| (*name).to_owned()).collect();
        let observed = Observed { set, instances: vec![], taken_names, failure: None };
        let plan = decide(&observed, at(9)).unwrap();
        plan.create.iter().filter_map(|one| one.metadata.name.clone()).collect()
    };
    let names = made(&set, &[]);
    assert!(names.iter().all(|name| name.starts_with("web") && name.len() == 8), "{names:?}");
    assert_eq!(names, made(&set, &[]));
    assert_eq!(made(&set, &[&names[0]])[0], names[1]);
    set.spec.template.metadata.as_mut().unwrap().generate_name = Some("x-".to_owned());
    assert!(made(&set, &[])[0].starts_with("x-"));
    set.spec.template.metadata.as_mut().unwrap().name = Some("y".to_owned());
    assert!(made(&set, &[])[0].starts_with('y'));
}

#[test]
fn what_cannot_be_acted_on_is_left_alone() {
    let error = |change: fn(&mut VirtualMachineInstanceReplicaSet)| {
        let mut set = set(Some(1), false);
        change(&mut set);
        let observed = Observed { set: &set, instances: vec![], taken_names: BTreeSet::new(), failure: None };
        decide(&observed, at(9)).unwrap_err().to_string()
    };
    assert_eq!(error(|set| set.spec.template.spec = None), "spec.template.spec is missing");
    let everything = error(|set| set.spec.selector = Default::default());
    assert_eq!(everything, "spec.selector is empty and would match everything in the namespace");
    let nothing = error(|set| set.spec.template.metadata.as_mut().unwrap().labels = None);
    assert_eq!(nothing, "spec.selector does not match spec.template.metadata.labels");
}

fn any_looks() -> impl Strategy<Value = Looks> {
    prop_oneof![
        Just(Looks::Going),
        Just(Looks::Succeeded),
        Just(Looks::FailedLater),
        (0..100_i64, 0..4_u32).prop_map(|(second, before)| Looks::FailedAtOnce(second, before)),
        Just(Looks::Lost),
        Just(Looks::Starting),
        Just(Looks::Running),
        Just(Looks::Ready),
    ]
}

/// Whether an instance counts.
fn is_active(instance: &VirtualMachineInstance) -> bool {
    !instance.is_marked_for_deletion() && !instance.is_final() && !is_lost(instance)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(256)))]

    /// From wherever it begins, a set comes to rest at the number asked for, without ever creating more than are missing.
    #[test]
    fn a_set_comes_to_rest_at_what_is_asked_for(
        looks in prop::collection::vec((any_looks(), any::<bool>()), 0..9),
        replicas in prop::option::of(-1..7_i32),
        paused: bool,
    ) {
        let mut set = set(replicas, paused);
        let wanted = usize::try_from(replicas.unwrap_or(1)).unwrap_or(0);
        let mut all: Vec<VirtualMachineInstance> = looks
            .iter()
            .enumerate()
            .map(|(index, (looks, owned))| {
                let mut one = instance(&format!("i{index}"), *looks);
                if !owned {
                    one.metadata.owner_references = None;
                }
                one
            })
            .collect();
        let mut now = 100;
        for round in 0..20 {
            let plan = plan_of(&set, &all, now);
            prop_assert_eq!(&plan, &plan_of(&set, &all, now), "equal observations, equal plans");
            let active = all.iter().filter(|one| is_active(one)).count();
            prop_assert!(plan.create.is_empty() || active + plan.create.len() <= wanted);
            let victims = plan.delete.iter().filter(|deletion| !deletion.over).count();
            prop_assert!(victims == 0 || active - victims == wanted);
            prop_assert!(!paused || (plan.create.is_empty() && plan.delete.is_empty()));
            if plan == ReplicaSetPlan::default() {
                prop_assert!(paused || active == wanted);
                prop_assert_eq!(set.status.as_ref().and_then(|status| status.replicas), i32::try_from(active).ok());
                return Ok(());
            }
            prop_assert!(round < 19, "no rest: {plan:?}");
            for patch in &plan.adopt {
                let one = all.iter_mut().find(|one| one.metadata.name.as_ref() == Some(&patch.target.name)).unwrap();
                let mut json = serde_json::to_value(&*one).unwrap();
                merge(&mut json, &patch.patch);
                *one = serde_json::from_value(json).unwrap();
            }
            if let Some(status) = &plan.status {
                let mut json = serde_json::to_value(&set).unwrap();
                merge(&mut json, status);
                set = serde_json::from_value(json).unwrap();
            }
            all.retain(|one| !plan.delete.iter().any(|gone| one.metadata.uid.as_ref() == Some(&gone.target.uid)));
            for mut made in plan.create.clone() {
                made.metadata.uid = Some(format!("made-{}-{}", round, all.len()));
                prop_assert!(all.iter().all(|one| one.metadata.name != made.metadata.name), "a name is used once");
                all.push(made);
            }
            now += plan.recheck_after.map_or(1, |wait| i64::try_from(wait.as_secs()).unwrap_or(1) + 1);
        }
    }
}
