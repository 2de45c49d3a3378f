use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A pod: its name, what it was made for, and its node.
type PodOf = (&'static str, Option<&'static str>, &'static str);

const FIRST: PodOf = ("first", None, "one");
const SECOND: PodOf = ("second", Some("m1"), "two");
const THIRD: PodOf = ("third", Some("m2"), "three");

fn pod((name, migration, node): PodOf) -> Pod {
    let owner = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "v", "uid": "u", "controller": true });
    let labels = migration.map(|uid| json!({ label::MIGRATION_JOB_UID: uid }));
    let metadata = json!({ "name": name, "uid": format!("uid-{name}"), "labels": labels, "ownerReferences": [owner] });
    serde_json::from_value(json!({ "metadata": metadata, "spec": { "nodeName": node, "containers": [] } })).unwrap()
}

fn vmi(node: Option<&str>, state: &Value, listed: &[PodOf]) -> VirtualMachineInstance {
    let pods: serde_json::Map<_, _> =
        listed.iter().map(|(name, _, node)| (format!("uid-{name}"), json!(node))).collect();
    let status = json!({ "nodeName": node, "migrationState": state, "activePods": pods });
    serde_json::from_value(
        json!({ "metadata": { "name": "v", "uid": "u" }, "spec": { "domain": { "devices": {} } }, "status": status }),
    )
    .unwrap()
}

/// From the first pod to the second.
fn migration(more: &Value) -> Value {
    let mut state = json!({ "migrationUid": "m1", "sourcePod": "first", "sourceNode": "one", "targetPod": "second", "targetNode": "two" });
    state.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    state
}

/// As virt-controller sees a pod, and as its node sees the launcher in it.
fn roles(of: PodOf, vmi: &VirtualMachineInstance) -> (Role, Role) {
    let pod = pod(of);
    let launcher = Launcher::of(&pod);
    (role(&launcher, vmi), role(&Launcher { pod: None, ..launcher }, vmi))
}

fn both(role: Role) -> (Role, Role) {
    (role, role)
}

#[test]
fn without_a_migration_there_is_one_launcher() {
    for node in [None, Some("one")] {
        let vmi = vmi(node, &Value::Null, &[FIRST]);
        assert_eq!(roles(FIRST, &vmi), both(Role::Sole));
        // Its migration has not been handed over to the instance yet.
        assert_eq!(roles(SECOND, &vmi).0, Role::Target);
        assert_eq!(roles(SECOND, &vmi).1, Role::Orphan, "its node was not told of it");
    }
}

#[test]
fn while_a_guest_moves_one_launcher_holds_it_and_another_waits() {
    let vmi = vmi(Some("one"), &migration(&json!({})), &[FIRST, SECOND]);
    assert_eq!(roles(FIRST, &vmi), both(Role::Source));
    assert_eq!(roles(SECOND, &vmi), both(Role::Target));
    assert_eq!(roles(THIRD, &vmi), both(Role::Orphan));
}

#[test]
fn a_guest_that_has_arrived_is_its_targets() {
    for (more, third) in [(json!({}), Role::Orphan), (json!({ "completed": true }), Role::Target)] {
        let vmi = vmi(Some("two"), &migration(&more), &[FIRST, SECOND]);
        assert_eq!(roles(FIRST, &vmi), both(Role::Orphan));
        assert_eq!(roles(SECOND, &vmi), both(Role::Sole));
        assert_eq!(roles(THIRD, &vmi).0, third);
    }
}

#[test]
fn a_migration_that_failed_leaves_the_guest_where_it_was() {
    for end in [
        json!({ "failed": true }),
        json!({ "failed": true, "completed": true, "endTimestamp": "2026-07-01T10:00:00Z" }),
    ] {
        let vmi = vmi(Some("one"), &migration(&end), &[FIRST, SECOND, THIRD]);
        assert_eq!(roles(FIRST, &vmi), both(Role::Sole));
        assert_eq!(roles(SECOND, &vmi), both(Role::Orphan));
        assert_eq!(roles(THIRD, &vmi), both(Role::Target), "the next attempt");
    }
}

#[test]
fn a_guest_that_comes_back_is_not_its_first_launchers() {
    let back = ("third", Some("m2"), "one");
    let state = json!({ "migrationUid": "m2", "sourcePod": "second", "sourceNode": "two", "targetPod": "third", "targetNode": "one", "completed": true });
    let vmi = vmi(Some("one"), &state, &[back]);
    assert_eq!(roles(FIRST, &vmi), both(Role::Orphan));
    assert_eq!(roles(SECOND, &vmi), both(Role::Orphan));
    assert_eq!(roles(back, &vmi), both(Role::Sole));
}

#[test]
fn a_launcher_of_another_instance_of_the_same_name_is_an_orphan() {
    let mut vmi = vmi(Some("one"), &Value::Null, &[FIRST]);
    vmi.metadata.uid = Some("later".to_owned());
    assert_eq!(roles(FIRST, &vmi), both(Role::Orphan));
}

#[test]
fn a_launcher_that_is_not_listed_is_an_orphan_to_its_node() {
    assert_eq!(roles(FIRST, &vmi(Some("one"), &Value::Null, &[])).1, Role::Orphan);
    // Nobody can tell which of the two holds the guest.
    let beside = ("beside", None, "one");
    assert_eq!(roles(FIRST, &vmi(Some("one"), &Value::Null, &[beside, FIRST])).1, Role::Orphan);
}

fn any_pods() -> impl Strategy<Value = Vec<PodOf>> {
    let nodes = || prop::sample::select(vec!["", "one", "two", "three"]);
    (nodes(), nodes(), nodes(), 0..8_u8).prop_map(|(first, second, third, there)| {
        let all = [("first", None, first), ("second", Some("m1"), second), ("third", Some("m2"), third)];
        all.into_iter().enumerate().filter(|(index, _)| there & (1 << index) != 0).map(|(_, pod)| pod).collect()
    })
}

fn any_state() -> impl Strategy<Value = Value> {
    let node = || prop::option::of(prop::sample::select(vec!["one", "two", "three"]));
    let name = || prop::option::of(prop::sample::select(vec!["first", "second", "third"]));
    let uid = prop::option::of(prop::sample::select(vec!["m1", "m2", "m3"]));
    let flag = || prop::option::of(any::<bool>());
    let state = (uid, name(), node(), node(), flag(), flag(), any::<bool>());
    let state = state.prop_map(|(uid, source, from, to, completed, failed, has_ended)| {
        json!({
            "migrationUid": uid,
            "sourcePod": source,
            "sourceNode": from,
            "targetNode": to,
            "completed": completed,
            "failed": failed,
            "endTimestamp": has_ended.then_some("2026-07-01T10:00:00Z"),
        })
    });
    prop_oneof![1 => Just(Value::Null), 4 => state]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(512), ..ProptestConfig::default() })]

    /// Whatever people and programs write to the status.
    #[test]
    fn of_all_launchers_at_most_one_holds_the_guest(
        pods in any_pods(),
        listed in any_pods(),
        node in prop::option::of(prop::sample::select(vec!["one", "two", "three"])),
        state in any_state(),
    ) {
        let vmi = vmi(node, &state, &listed);
        let known: Vec<_> = pods.iter().map(|pod| roles(*pod, &vmi)).collect();
        prop_assert!(known.iter().filter(|(of_pod, _)| of_pod.holds()).count() <= 1, "{:?}", known);
        prop_assert!(known.iter().filter(|(_, on_node)| on_node.holds()).count() <= 1, "{:?}", known);
        if state.is_null() {
            prop_assert!(known.iter().all(|(of_pod, on_node)| *of_pod != Role::Source && *on_node != Role::Source));
        }
    }

    /// Where virt-controller lists what it should, a node comes to the same, without reading pods.
    #[test]
    fn a_node_and_virt_controller_agree(
        at in Just(vec!["one", "two", "three"]).prop_shuffle(),
        there in 0..8_u8,
        moves in 0..3_usize,
        ends in 0..4_u8,
    ) {
        let all = [("first", None, at[0]), ("second", Some("m1"), at[1]), ("third", Some("m2"), at[2])];
        let (from, to) = [(0, 1), (0, 2), (1, 2)][moves];
        let state = json!({
            "migrationUid": all[to].1, "sourcePod": all[from].0, "sourceNode": all[from].2, "targetNode": all[to].2,
            "completed": (ends >= 2).then_some(true), "failed": (ends == 3).then_some(true),
        });
        let node = if ends == 1 || ends == 2 { all[to].2 } else { all[from].2 };
        let pods: Vec<_> = all.into_iter().enumerate().filter(|(index, _)| there & (1 << index) != 0).map(|(_, pod)| pod).collect();
        let unlisted = vmi(Some(node), &state, &[]);
        let listed: Vec<_> = pods.iter().copied().filter(|of| roles(*of, &unlisted).0 != Role::Orphan).collect();
        let vmi = vmi(Some(node), &state, &listed);
        for of in pods {
            let (of_pod, on_node) = roles(of, &vmi);
            prop_assert_eq!(of_pod, on_node, "{:?} of {:?}", of, state);
        }
    }
}
