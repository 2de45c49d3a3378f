use std::collections::BTreeSet;

use json_patch::merge;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn node(taint: Option<&str>) -> Node {
    let taints: Vec<_> = taint.iter().map(|key| json!({ "key": key, "effect": "NoSchedule" })).collect();
    serde_json::from_value(json!({ "metadata": { "name": "one" }, "spec": { "taints": taints } })).unwrap()
}

/// An instance on node `one` that can move, with its launcher.
#[derive(Clone, Debug)]
struct Bench {
    vmi: VirtualMachineInstance,
    pods: Vec<Pod>,
    migrations: Vec<Migration>,
}

fn bench(name: &str, more: &Value) -> Bench {
    let mut vmi = json!({
        "metadata": { "name": name, "namespace": "n", "uid": format!("u-{name}") },
        "spec": { "domain": { "devices": {} }, "evictionStrategy": "LiveMigrate" },
        "status": {
            "phase": "Running", "nodeName": "one", "conditions": [{ "type": "LiveMigratable", "status": "True" }],
        },
    });
    merge(&mut vmi, more);
    Bench { vmi: serde_json::from_value(vmi).unwrap(), pods: vec![pod("Running")], migrations: Vec::new() }
}

fn pod(phase: &str) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "p" }, "status": { "phase": phase } })).unwrap()
}

fn migration(name: &str, phase: &str, is_own: bool) -> Migration {
    let annotations = if is_own { json!({ annotation::EVACUATION_MIGRATION: "one" }) } else { json!({}) };
    let migration = json!({
        "metadata": { "name": name, "annotations": annotations }, "spec": { "vmiName": "v" }, "status": { "phase": phase },
    });
    serde_json::from_value(migration).unwrap()
}

fn marked() -> Value {
    json!({ "status": { "evacuationNodeName": "one" } })
}

fn plan_for(node: &Node, all: &[Bench], under_way: usize, config: &ClusterConfig) -> Vec<Migration> {
    let instances = all.iter().map(|one| Instance {
        vmi: &one.vmi,
        pods: one.pods.iter().collect(),
        migrations: one.migrations.iter().collect(),
    });
    decide(&Observed { node, instances: instances.collect(), under_way, config })
}

fn plan(all: &[Bench]) -> Vec<Migration> {
    plan_for(&node(None), all, 0, &ClusterConfig::default())
}

fn config(migrations: &Value) -> ClusterConfig {
    let configuration = json!({ "migrations": migrations });
    let kubevirt = json!({ "metadata": { "name": "kubevirt" }, "spec": { "configuration": configuration } });
    ClusterConfig::new(Some(&serde_json::from_value(kubevirt).unwrap()))
}

#[test]
fn a_marked_instance_is_moved_and_the_migration_says_why() {
    let plan = plan(&[bench("v", &marked())]);
    let [made] = plan.as_slice() else { panic!("{plan:?}") };
    assert!(made.metadata.name.as_ref().unwrap().starts_with("kubevirt-evacuation-"));
    assert_eq!(made.metadata.annotations.as_ref().unwrap()[annotation::EVACUATION_MIGRATION], "one");
    assert_eq!((made.spec.vmi_name.as_deref(), &made.metadata.namespace), (Some("v"), &Some("n".to_owned())));
    assert_eq!(made.spec.priority, Some(MigrationPriority::SystemCritical));
    let mut by_descheduler = marked();
    by_descheduler["metadata"] = json!({ "annotations": { annotation::EVICTION_SOURCE: "descheduler" } });
    let descheduled = plan_for(&node(None), &[bench("v", &by_descheduler)], 0, &ClusterConfig::default());
    assert_eq!(descheduled[0].spec.priority, Some(MigrationPriority::SystemMaintenance));
}

#[test]
fn whoever_decides_again_makes_the_same_and_the_next_attempt_is_another() {
    let first = plan(&[bench("v", &marked())]);
    assert_eq!(plan(&[bench("v", &marked())]), first);
    let name = first[0].metadata.name.clone().unwrap();
    let mut again = bench("v", &marked());
    again.migrations.push(migration(&name, "Failed", true));
    let second = plan(&[again]);
    assert_ne!(second[0].metadata.name, first[0].metadata.name);
}

#[test]
fn the_drain_taint_empties_a_node_whatever_it_is_called() {
    let all = [bench("v", &json!({}))];
    assert!(plan(&all).is_empty());
    let usual = ClusterConfig::default();
    assert_eq!(plan_for(&node(Some("kubevirt.io/drain")), &all, 0, &usual).len(), 1);
    assert!(plan_for(&node(Some("mine")), &all, 0, &usual).is_empty());
    let named = config(&json!({ "nodeDrainTaintKey": "mine" }));
    assert_eq!(plan_for(&node(Some("mine")), &all, 0, &named).len(), 1);
}

#[test]
fn whoever_stays_or_goes_otherwise_is_left_alone() {
    let node = node(Some("kubevirt.io/drain"));
    for (why, more) in [
        ("it has ended", json!({ "status": { "phase": "Succeeded" } })),
        ("it is being deleted", json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })),
        ("nobody wants it moved", json!({ "spec": { "evictionStrategy": "None" } })),
        ("somebody else takes it away", json!({ "spec": { "evictionStrategy": "External" } })),
        ("it cannot move", json!({ "status": { "conditions": [] } })),
        ("it moves", json!({ "status": { "migrationState": { "migrationUid": "m" } } })),
    ] {
        assert_eq!(plan_for(&node, &[bench("v", &more)], 0, &ClusterConfig::default()), [], "{why}");
    }
    let mut two = bench("v", &json!({}));
    two.pods.push(pod("Running"));
    assert!(
        plan_for(&node, std::slice::from_ref(&two), 0, &ClusterConfig::default()).is_empty(),
        "of two launchers one must go"
    );
    two.pods[0] = pod("Succeeded");
    assert_eq!(plan_for(&node, &[two], 0, &ClusterConfig::default()).len(), 1);
}

#[test]
fn a_mark_that_names_another_node_is_an_old_one() {
    assert!(plan(&[bench("v", &json!({ "status": { "evacuationNodeName": "two" } }))]).is_empty());
}

#[test]
fn what_waits_after_a_failure_keeps_nobody_waiting() {
    let mut waiting = bench("a", &marked());
    waiting.migrations = vec![migration("x", "Failed", true), migration("y", "Pending", true)];
    let limits = config(&json!({ "parallelOutboundMigrationsPerNode": 1 }));
    let all = [waiting, bench("b", &marked())];
    let made = plan_for(&node(None), &all, 0, &limits);
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].spec.vmi_name.as_deref(), Some("b"));
}

#[derive(Clone, Debug)]
struct Case {
    is_final: bool,
    is_deleted: bool,
    is_marked: bool,
    moves: bool,
    strategy: &'static str,
    pods: usize,
    migrations: Vec<(&'static str, bool)>,
}

fn case() -> impl Strategy<Value = Case> {
    let strategy = prop::sample::select(vec!["None", "LiveMigrate", "LiveMigrateIfPossible", "External"]);
    let phase = prop::sample::select(vec!["", "Pending", "Scheduling", "Running", "Failed", "Succeeded"]);
    let migrations = prop::collection::vec((phase, any::<bool>()), 0..3);
    (any::<[bool; 4]>(), strategy, 0..3_usize, migrations).prop_map(|(flags, strategy, pods, migrations)| {
        let [is_final, is_deleted, is_marked, moves] = flags;
        Case { is_final, is_deleted, is_marked, moves, strategy, pods, migrations }
    })
}

impl Case {
    fn bench(&self, name: &str) -> Bench {
        let mut more = json!({ "spec": { "evictionStrategy": self.strategy } });
        if self.is_final {
            more["status"]["phase"] = json!("Failed");
        }
        if self.is_deleted {
            more["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        if self.is_marked {
            more["status"]["evacuationNodeName"] = json!("one");
        }
        if self.moves {
            more["status"]["migrationState"] = json!({ "migrationUid": "m" });
        }
        let mut bench = bench(name, &more);
        bench.pods = (0..self.pods).map(|_| pod("Running")).collect();
        let all = self.migrations.iter().enumerate();
        bench.migrations =
            all.map(|(number, (phase, is_own))| migration(&format!("{name}-{number}"), phase, *is_own)).collect();
        bench
    }
}

proptest! {
    #[test]
    fn nobody_moves_twice_nor_after_the_end_and_the_limits_are_kept(
        cases in prop::collection::vec(case(), 0..8),
        elsewhere in 0..4_usize,
        per_cluster in 0..6_u32,
        per_node in 0..4_u32,
        is_drained: bool,
    ) {
        let all: Vec<_> = cases.iter().enumerate().map(|(number, case)| case.bench(&format!("v{number}"))).collect();
        let limits = json!({ "parallelMigrationsPerCluster": per_cluster, "parallelOutboundMigrationsPerNode": per_node });
        let here = all.iter().filter(|one| is_under_way(&one.migrations.iter().collect::<Vec<_>>())).count();
        let node = node(is_drained.then_some("kubevirt.io/drain"));
        let plan = plan_for(&node, &all, here + elsewhere, &config(&limits));
        let mut names = BTreeSet::new();
        for made in &plan {
            prop_assert!(names.insert(made.spec.vmi_name.clone()), "two for one");
            let number: usize = made.spec.vmi_name.as_deref().unwrap()[1..].parse().unwrap();
            let case = &cases[number];
            prop_assert!(!case.is_final && !case.is_deleted && !case.moves && case.pods <= 1);
            prop_assert!(case.is_marked || is_drained);
            prop_assert!(case.strategy.starts_with("LiveMigrate"));
            prop_assert!(case.migrations.iter().all(|(phase, _)| matches!(*phase, "Failed" | "Succeeded")));
        }
        let most = |number: u32| usize::try_from(number).unwrap();
        prop_assert!(plan.is_empty() || plan.len() + here + elsewhere <= most(per_cluster));
        prop_assert!(plan.is_empty() || plan.len() + here <= most(per_node));
    }
}
