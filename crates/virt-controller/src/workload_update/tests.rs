use json_patch::merge;
use proptest::prelude::*;

use super::*;

const OLD: &str = "launcher:v1";
const NEW: &str = "launcher:v2";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn kubevirt(methods: &[&str], more: &Value) -> KubeVirt {
    let mut kubevirt = json!({
        "metadata": { "name": "kubevirt", "namespace": "kubevirt", "uid": "k", "resourceVersion": "1" },
        "spec": { "workloadUpdateStrategy": { "workloadUpdateMethods": methods } },
        "status": { "outdatedVirtualMachineInstanceWorkloads": 0 },
    });
    merge(&mut kubevirt, more);
    serde_json::from_value(kubevirt).unwrap()
}

/// An instance that runs, and its launcher.
#[derive(Clone, Debug)]
struct Bench {
    vmi: VirtualMachineInstance,
    pod: Pod,
    migrations: Vec<Migration>,
}

fn bench(name: &str, launcher: &str, can_move: bool, more: &Value) -> Bench {
    let conditions = if can_move { json!([{ "type": "LiveMigratable", "status": "True" }]) } else { json!([]) };
    let mut vmi = json!({
        "metadata": { "name": name, "namespace": "n", "uid": format!("u-{name}") },
        "spec": { "domain": { "devices": {} } },
        "status": {
            "phase": "Running", "nodeName": "one", "conditions": conditions,
        },
    });
    merge(&mut vmi, more);
    let owner = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name, "uid": format!("u-{name}"),
        "controller": true,
    });
    let pod = json!({
        "metadata": { "name": format!("p-{name}"), "uid": format!("p-{name}"), "ownerReferences": [owner] },
        "spec": { "nodeName": "one", "containers": [{ "name": "compute", "image": launcher }] }, "status": { "phase": "Running" },
    });
    let [vmi, pod] = [vmi, pod];
    Bench {
        vmi: serde_json::from_value(vmi).unwrap(),
        pod: serde_json::from_value(pod).unwrap(),
        migrations: Vec::new(),
    }
}

fn migration(phase: &str, is_own: bool) -> Migration {
    let annotations = if is_own { json!({ annotation::WORKLOAD_UPDATE_MIGRATION: "" }) } else { json!({}) };
    let migration = json!({
        "metadata": { "name": "m", "uid": "m", "annotations": annotations }, "spec": { "vmiName": "v" },
        "status": { "phase": phase },
    });
    serde_json::from_value(migration).unwrap()
}

fn plan_at(kubevirt: &KubeVirt, all: &[Bench], last_batch: Option<Timestamp>, now: Timestamp) -> UpdatePlan {
    let instances = all.iter().map(|one| Instance {
        vmi: &one.vmi,
        pods: vec![&one.pod],
        migrations: one.migrations.iter().collect(),
    });
    let config = ClusterConfig::new(Some(kubevirt));
    let seen = Observed { kubevirt, instances: instances.collect(), launcher: NEW, config: &config, last_batch };
    decide(&seen, now)
}

fn plan(methods: &[&str], all: &[Bench]) -> UpdatePlan {
    plan_at(&kubevirt(methods, &json!({})), all, None, at(1000))
}

#[test]
fn outdated_instances_are_counted_and_left_alone_without_a_method() {
    let all =
        [bench("a", OLD, true, &json!({})), bench("b", NEW, true, &json!({})), bench("c", OLD, false, &json!({}))];
    let plan = plan(&[], &all);
    let count = json!({
        "metadata": { "uid": "k", "resourceVersion": "1" }, "status": { "outdatedVirtualMachineInstanceWorkloads": 2 },
    });
    assert_eq!(plan, UpdatePlan { count: Some(count), ..UpdatePlan::default() });
    let told = kubevirt(&[], &json!({ "status": { "outdatedVirtualMachineInstanceWorkloads": 2 } }));
    assert_eq!(plan_at(&told, &all, None, at(1000)), UpdatePlan::default());
}

#[test]
fn whoever_can_move_is_moved_and_the_others_are_evicted() {
    let all = [bench("a", OLD, true, &json!({})), bench("c", OLD, false, &json!({}))];
    let both = plan(&["LiveMigrate", "Evict"], &all);
    assert_eq!(both.migrate.len(), 1);
    let made = &both.migrate[0];
    assert!(made.metadata.name.as_ref().unwrap().starts_with("kubevirt-workload-update-"));
    assert_eq!(made.metadata.annotations.as_ref().unwrap()[annotation::WORKLOAD_UPDATE_MIGRATION], "");
    assert_eq!(made.spec.priority, Some(MigrationPriority::SystemCritical));
    let names =
        |plan: &UpdatePlan| plan.evict.iter().map(|(key, pod)| format!("{key} {}", pod.name)).collect::<Vec<_>>();
    assert_eq!(names(&both), ["n/c p-c"]);
    assert_eq!((plan(&["LiveMigrate"], &all).migrate.len(), plan(&["LiveMigrate"], &all).evict.len()), (1, 0));
    assert_eq!(names(&plan(&["Evict"], &all)), ["n/a p-a", "n/c p-c"]);
}

#[test]
fn evictions_come_in_batches() {
    let all: Vec<_> = (0..30).map(|number| bench(&format!("v{number:02}"), OLD, false, &json!({}))).collect();
    let usual = kubevirt(&["Evict"], &json!({}));
    let first = plan_at(&usual, &all, None, at(1000));
    assert_eq!((first.evict.len(), first.recheck_after), (10, Some(Duration::from_secs(60))));
    let soon = plan_at(&usual, &all, Some(at(1000)), at(1059));
    assert_eq!((soon.evict.len(), soon.recheck_after), (0, Some(Duration::from_secs(1))));
    assert_eq!(plan_at(&usual, &all, Some(at(1000)), at(1060)).evict.len(), 10);
    let strategy = json!({ "batchEvictionSize": 3, "batchEvictionInterval": "5s" });
    let small = kubevirt(&["Evict"], &json!({ "spec": { "workloadUpdateStrategy": strategy } }));
    let next = plan_at(&small, &all, Some(at(1000)), at(1005));
    assert_eq!((next.evict.len(), next.recheck_after), (3, Some(Duration::from_secs(5))));
}

#[test]
fn whoever_must_not_be_shut_down_takes_nobodys_place() {
    let stays = bench("a", OLD, false, &json!({ "spec": { "evictionStrategy": "LiveMigrate" } }));
    let leaves = bench("b", OLD, false, &json!({ "status": { "evacuationNodeName": "one" } }));
    assert_eq!(plan(&["Evict"], &[stays, leaves]).evict, []);
}

#[test]
fn nothing_happens_while_the_installation_is_on_its_way() {
    let all = [bench("a", OLD, true, &json!({}))];
    for status in [json!({ "phase": "Deploying" }), json!({ "phase": "Deployed", "targetDeploymentID": "x" })] {
        let installing = kubevirt(&["LiveMigrate"], &json!({ "status": status }));
        assert_eq!(plan_at(&installing, &all, None, at(1)), UpdatePlan::default());
    }
    let same = json!({ "status": { "phase": "Deployed", "targetDeploymentID": "x", "observedDeploymentID": "x" } });
    assert_eq!(plan_at(&kubevirt(&["LiveMigrate"], &same), &all, None, at(1)).migrate.len(), 1);
}

fn changing(more: &Value) -> Bench {
    let conditions =
        json!([{ "type": "LiveMigratable", "status": "True" }, { "type": "HotVCPUChange", "status": "True" }]);
    let mut all = json!({ "status": { "conditions": conditions } });
    merge(&mut all, more);
    bench("v", NEW, true, &all)
}

#[test]
fn a_change_that_waits_is_brought_by_a_migration_and_shuts_nobody_down() {
    let plan_of = |one: &Bench, methods: &[&str]| plan(methods, std::slice::from_ref(one));
    let moved = plan_of(&changing(&json!({})), &["LiveMigrate"]);
    assert_eq!(moved.migrate[0].spec.priority, Some(MigrationPriority::UserTriggered));
    assert_eq!(moved.count, None, "it is not outdated");
    assert_eq!(plan_of(&changing(&json!({})), &["Evict"]), UpdatePlan::default());
    let called_off = json!({ "metadata": { "annotations": { annotation::WORKLOAD_UPDATE_ABORTION: "" } } });
    assert_eq!(plan_of(&changing(&called_off), &["LiveMigrate"]), UpdatePlan::default());
}

#[test]
fn a_migration_that_nobody_needs_any_more_is_cancelled_unless_the_guest_has_arrived() {
    let target = Target { name: "m".to_owned(), uid: "m".to_owned() };
    let mut one = bench("v", NEW, true, &json!({}));
    one.migrations = vec![migration("Running", true)];
    assert_eq!(plan(&["LiveMigrate"], std::slice::from_ref(&one)).abort, [(Key::of(&one.vmi), target.clone())]);
    one.migrations = vec![migration("Running", false)];
    assert_eq!(plan(&["LiveMigrate"], std::slice::from_ref(&one)).abort, [], "a person's own");
    let mut called_off =
        changing(&json!({ "metadata": { "annotations": { annotation::WORKLOAD_UPDATE_ABORTION: "" } } }));
    called_off.migrations = vec![migration("Running", true)];
    assert_eq!(plan(&["LiveMigrate"], &[called_off]).abort.len(), 1);
    let state = json!({ "migrationUid": "m", "sourceNode": "zero", "targetNode": "one", "sourcePod": "gone" });
    let mut arrived = bench("v", NEW, true, &json!({ "status": { "migrationState": state } }));
    arrived.migrations = vec![migration("Running", true)];
    arrived.pod.metadata.labels = Some([(api::names::label::MIGRATION_JOB_UID.to_owned(), "m".to_owned())].into());
    assert_eq!(plan(&["LiveMigrate"], &[arrived]).abort, []);
}

proptest! {
    #[test]
    fn nobody_is_moved_twice_or_moved_and_evicted_and_the_limits_are_kept(
        cases in prop::collection::vec((any::<[bool; 4]>(), prop::option::of(("|Pending|Running|Failed", any::<bool>()))), 0..12),
        live: bool,
        evict: bool,
        size in 0..5_u32,
        limit in 0..5_u32,
    ) {
        let all: Vec<_> = cases.iter().enumerate().map(|(number, ([outdated, can_move, ends, moves], own))| {
            let mut more = json!({});
            if *ends {
                more["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            if *moves {
                more["status"]["migrationState"] = json!({ "migrationUid": "m" });
            }
            let mut one = bench(&format!("v{number}"), if *outdated { OLD } else { NEW }, *can_move, &more);
            one.migrations = own.iter().map(|(phase, is_own)| migration(phase, *is_own)).collect();
            one
        }).collect();
        let methods: Vec<_> = [("LiveMigrate", live), ("Evict", evict)].iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
        let spec = json!({
            "workloadUpdateStrategy": { "batchEvictionSize": size },
            "configuration": { "migrations": { "parallelMigrationsPerCluster": limit } },
        });
        let plan = plan_at(&kubevirt(&methods, &json!({ "spec": spec })), &all, None, at(1));
        let number = |name: &str| name[1..].parse::<usize>().unwrap();
        let moved: Vec<_> = plan.migrate.iter().map(|one| number(one.spec.vmi_name.as_deref().unwrap())).collect();
        let ended: Vec<_> = plan.evict.iter().map(|(key, _)| number(&key.name)).collect();
        for index in moved.iter().chain(&ended) {
            let ([outdated, _, ends, moves], own) = &cases[*index];
            prop_assert!(*outdated && !ends && !moves);
            prop_assert!(own.as_ref().is_none_or(|(phase, _)| phase == "Failed"));
        }
        prop_assert!(moved.iter().all(|index| !ended.contains(index)));
        prop_assert!(live || moved.is_empty());
        prop_assert!(evict || ended.is_empty());
        let busy = cases.iter().filter(|(_, own)| own.as_ref().is_some_and(|(phase, is_own)| *is_own && phase != "Failed")).count();
        prop_assert!(moved.is_empty() || moved.len() + busy <= usize::try_from(limit).unwrap());
        prop_assert!(ended.len() <= usize::try_from(size).unwrap());
    }
}
