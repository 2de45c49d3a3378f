mod properties;
mod targets;

use std::collections::BTreeMap;

use api::names::{annotation, finalizer, label};
use json_patch::merge;
use virt_rules::config::ClusterConfig;

use super::*;
use crate::render::{Launcher, Namespace};

/// A migration, its instance on node `one`, their pods, and all else as in an empty cluster.
struct Bench {
    migration: Migration,
    vmi: Option<VirtualMachineInstance>,
    pods: Vec<Pod>,
    siblings: Vec<Migration>,
    has_turn: bool,
    policies: Vec<MigrationPolicy>,
    source: Option<Node>,
    failure: Option<Failure>,
    told: Option<String>,
    now: i64,
}

impl Bench {
    fn new(phase: &str) -> Self {
        let vmi = json!({
            "metadata": { "name": "v", "namespace": "n", "uid": "u", "resourceVersion": "7" },
            "spec": { "domain": { "devices": {}, "memory": { "guest": "64Mi" } } },
            "status": { "phase": "Running", "nodeName": "one", "activePods": { "p": "one" } },
        });
        Self {
            migration: migration("m", phase),
            vmi: Some(serde_json::from_value(vmi).unwrap()),
            pods: vec![pod("virt-launcher-v", "p", "one", None)],
            siblings: Vec::new(),
            has_turn: true,
            policies: Vec::new(),
            source: None,
            failure: None,
            told: None,
            now: 60,
        }
    }

    fn target(mut self) -> Self {
        self.pods.push(pod("virt-launcher-v-target", "t", "two", Some("m")));
        self
    }

    /// The instance says this of the migration.
    fn state(mut self, more: &Value) -> Self {
        let mut state = json!({
            "migrationUid": "m", "sourceNode": "one", "targetNode": "two",
            "sourcePod": "virt-launcher-v", "targetPod": "virt-launcher-v-target",
        });
        merge(&mut state, more);
        let status = self.vmi.as_mut().unwrap().status.as_mut().unwrap();
        status.migration_state = Some(serde_json::from_value(state).unwrap());
        self
    }

    fn cancelled(mut self) -> Self {
        self.migration.metadata.deletion_timestamp = Some(whole_second(at(50)));
        self
    }

    fn decide(&self) -> MigrationPlan {
        let (config, launcher) = (ClusterConfig::default(), Launcher::new("launcher"));
        let (claims, namespace) = (BTreeMap::new(), Namespace::default());
        let input = |vmi| Input {
            vmi,
            config: &config,
            launcher: &launcher,
            claims: &claims,
            namespace: &namespace,
            image_volumes: true,
        };
        let seen = Observed {
            migration: &self.migration,
            vmi: self.vmi.as_ref(),
            pods: self.pods.iter().collect(),
            siblings: self.siblings.iter().collect(),
            has_turn: self.has_turn,
            input: self.vmi.as_ref().map(input),
            source: self.source.as_ref(),
            policies: self.policies.iter().collect(),
            failure: self.failure.clone(),
            told: self.told.clone(),
        };
        decide(&seen, at(self.now))
    }

    /// The status after the plan was carried out.
    fn after(&self) -> Status {
        self.then(&self.decide()).status.unwrap_or_default()
    }

    fn then(&self, plan: &MigrationPlan) -> Migration {
        let mut next = json!(self.migration);
        for patch in plan.status.iter().chain(&plan.release) {
            merge(&mut next, patch);
        }
        serde_json::from_value(next).unwrap()
    }

    fn instance_after(&self) -> VirtualMachineInstance {
        let mut next = json!(self.vmi);
        merge(&mut next, &self.decide().vmi.expect("the instance is not written"));
        serde_json::from_value(next).unwrap()
    }

    fn phase_after(&self) -> String {
        self.after().phase.map(|phase| phase.to_string()).unwrap_or_default()
    }

    fn why(&self) -> String {
        self.after().migration_state.and_then(|state| state.failure_reason).unwrap_or_default()
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn migration(uid: &str, phase: &str) -> Migration {
    serde_json::from_value(json!({
        "metadata": {
            "name": uid, "namespace": "n", "uid": uid, "resourceVersion": "3", "finalizers": [finalizer::MIGRATION],
            "creationTimestamp": at(10).to_string(),
        },
        "spec": { "vmiName": "v" },
        "status": { "phase": phase },
    }))
    .unwrap()
}

fn pod(name: &str, uid: &str, node: &str, migration: Option<&str>) -> Pod {
    let (kind, version) = ("VirtualMachineInstance", "kubevirt.io/v1");
    let owner = json!({ "apiVersion": version, "kind": kind, "name": "v", "uid": "u", "controller": true });
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": uid, "ownerReferences": [owner],
            "creationTimestamp": at(20).to_string(), "labels": {},
        },
        "spec": { "nodeName": node, "containers": [{ "name": "compute", "image": "launcher" }] },
        "status": { "phase": "Running", "containerStatuses": [
            { "name": "compute", "ready": true, "image": "", "imageID": "", "restartCount": 0, "state": { "running": {} } },
        ] },
    });
    if let Some(uid) = migration {
        pod["metadata"]["labels"][label::MIGRATION_JOB_UID] = json!(uid);
    }
    serde_json::from_value(pod).unwrap()
}

fn edit(pod: &mut Pod, more: &Value) {
    let mut value = json!(pod);
    merge(&mut value, more);
    *pod = serde_json::from_value(value).unwrap();
}

#[test]
fn a_migration_goes_its_way() {
    assert_eq!(Bench::new("").phase_after(), "Pending");
    let pending = Bench::new("Pending");
    assert!(pending.decide().create.is_some());
    assert_eq!(pending.phase_after(), "Pending", "until the pod is seen");
    assert_eq!(Bench::new("Pending").target().phase_after(), "Scheduling");
    assert_eq!(Bench::new("Scheduling").target().phase_after(), "Scheduled");
    assert_eq!(Bench::new("Scheduled").target().phase_after(), "PreparingTarget");
    let prepared = Bench::new("PreparingTarget").target().state(&json!({ "targetNodeAddress": "10.0.0.2" }));
    assert_eq!(prepared.phase_after(), "TargetReady");
    let begun = Bench::new("TargetReady").target().state(&json!({ "startTimestamp": at(55).to_string() }));
    assert_eq!(begun.phase_after(), "Running");
    let done = json!({ "startTimestamp": at(55).to_string(), "completed": true, "endTimestamp": at(58).to_string() });
    assert_eq!(Bench::new("Running").target().state(&done).phase_after(), "Succeeded");
}

#[test]
fn a_migration_that_was_not_watched_for_a_while_skips_phases_and_never_goes_back() {
    let begun = json!({ "startTimestamp": at(55).to_string() });
    assert_eq!(Bench::new("PreparingTarget").target().state(&begun).phase_after(), "Running");
    assert_eq!(Bench::new("Running").target().state(&json!({})).decide(), MigrationPlan::default());
}

#[test]
fn the_hand_over_tells_both_handlers_in_one_write() {
    let vmi = Bench::new("Scheduled").target().instance_after();
    assert_eq!(vmi.metadata.labels.unwrap()[label::MIGRATION_TARGET_NODE_NAME], "two");
    let status = vmi.status.unwrap();
    assert_eq!(
        status.active_pods.unwrap(),
        BTreeMap::from([("p", "one"), ("t", "two")].map(|(a, b)| (a.into(), b.into())))
    );
    let state = status.migration_state.unwrap();
    assert_eq!((state.source_node.as_deref(), state.target_node.as_deref()), (Some("one"), Some("two")));
    assert_eq!(state.migration_uid.as_deref(), Some("m"));
    assert_eq!(state.migration_configuration.unwrap().progress_timeout, Some(150));
}

#[test]
fn what_an_earlier_migration_left_is_gone_after_the_hand_over() {
    let old = json!({ "migrationUid": "before", "completed": true, "failed": true, "failureReason": "x" });
    let state = Bench::new("Scheduled").target().state(&old).instance_after().status.unwrap().migration_state.unwrap();
    assert_eq!((state.completed, state.failed, state.failure_reason), (None, None, None));
}

#[test]
fn nothing_is_handed_over_to_the_node_that_the_guest_is_on() {
    let mut bench = Bench::new("Scheduled").target();
    edit(&mut bench.pods[1], &json!({ "spec": { "nodeName": "one" } }));
    assert!(bench.decide().vmi.is_none());
    assert_eq!(bench.phase_after(), "Failed");
}

#[test]
fn an_instance_that_cannot_move_is_not_moved() {
    let mut bench = Bench::new("Pending");
    let no = json!({ "status": { "conditions": [
        { "type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable", "message": "volume x is not shared" },
    ] } });
    let mut vmi = json!(bench.vmi);
    merge(&mut vmi, &no);
    bench.vmi = Some(serde_json::from_value(vmi).unwrap());
    assert!(bench.decide().create.is_none());
    assert_eq!((bench.phase_after().as_str(), bench.why().as_str()), ("Failed", "volume x is not shared"));
}

#[test]
fn of_two_migrations_of_an_instance_the_older_goes_on() {
    let (mut young, mut old) = (Bench::new("Pending"), Bench::new("Pending"));
    old.siblings = vec![migration("z", "Pending")];
    young.migration = migration("z", "Pending");
    young.siblings = vec![migration("m", "Pending")];
    assert!(old.decide().create.is_some());
    assert_eq!(young.phase_after(), "Failed");
}

#[test]
fn who_has_no_turn_waits() {
    let bench = Bench { has_turn: false, ..Bench::new("Pending") };
    assert_eq!(bench.decide(), MigrationPlan::default());
}

#[test]
fn automatic_migrations_wait_longer_after_each_failure() {
    let failed = |uid: &str, second: i64| {
        let mut one = migration(uid, "Failed");
        let end = Transition { phase: Some(Phase::Failed), phase_transition_timestamp: Some(whole_second(at(second))) };
        one.status.as_mut().unwrap().phase_transition_timestamps = Some(vec![end]);
        one
    };
    let mut bench = Bench { siblings: vec![failed("a", 30), failed("b", 50)], ..Bench::new("Pending") };
    assert!(bench.decide().create.is_some(), "a person does not wait");
    let annotations = BTreeMap::from([(annotation::EVACUATION_MIGRATION.to_owned(), "one".to_owned())]);
    bench.migration.metadata.annotations = Some(annotations);
    let plan = bench.decide();
    assert_eq!((&plan.create, plan.recheck_after), (&None, Some(Duration::from_secs(30))));
    assert_eq!(plan.events[0].reason, "MigrationBackoff");
    assert!(plan.events[0].message.contains("30 seconds, because several in a row"), "{:?}", plan.events);
    (bench.told, bench.now) = (plan.told, 70);
    assert_eq!(bench.decide().events, vec![], "it was told");
    bench.now = 90;
    assert!(bench.decide().create.is_some());
}

#[test]
fn a_quota_is_told_while_it_is_in_the_way() {
    let failure = Failure { by_quota: true, message: "exceeded quota: q".to_owned() };
    let bench = Bench { failure: Some(failure), ..Bench::new("Pending") };
    let all = bench.after().conditions.unwrap();
    assert_eq!(all[0].type_, "migrationRejectedByResourceQuota");
    assert!(bench.decide().create.is_some(), "it is tried again");
}

#[test]
fn a_pod_that_no_node_takes_is_given_up_in_time() {
    let mut bench = Bench::new("Scheduling").target();
    let unschedulable = json!({ "spec": { "nodeName": null }, "status": { "phase": "Pending", "containerStatuses": null,
        "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] } });
    edit(&mut bench.pods[1], &unschedulable);
    let plan = bench.decide();
    assert_eq!(
        (plan.recheck_after, plan.events[0].reason),
        (Some(Duration::from_secs(260)), "migrationTargetPodUnschedulable")
    );
    bench.told = plan.told;
    assert_eq!(bench.decide().events, vec![], "it is told once for each pod");
    bench.now = 320;
    assert_eq!(bench.phase_after(), "Failed");
    let annotations = BTreeMap::from([(annotation::MIGRATION_UNSCHEDULABLE_TIMEOUT.to_owned(), "1000".to_owned())]);
    bench.migration.metadata.annotations = Some(annotations);
    assert_eq!(bench.phase_after(), "Scheduling", "a longer time was asked for");
}

#[test]
fn a_cancel_before_the_hand_over_ends_it_and_after_it_asks_the_handlers() {
    let before = Bench::new("Scheduling").target().cancelled();
    assert_eq!(before.phase_after(), "Failed");
    let after = Bench::new("Running").target().state(&json!({ "startTimestamp": at(55).to_string() })).cancelled();
    assert_eq!(after.phase_after(), "Running");
    let state = after.instance_after().status.unwrap().migration_state.unwrap();
    assert_eq!(state.abort_requested, Some(true));
    let asked = json!({ "startTimestamp": at(55).to_string(), "abortRequested": true });
    let waits = Bench::new("Running").target().state(&asked).cancelled().decide();
    assert_eq!((waits.vmi, waits.delete), (None, vec![]));
}

#[test]
fn a_target_that_ends_before_anything_was_sent_is_given_up_on_the_instance() {
    let mut bench = Bench::new("TargetReady").target().state(&json!({ "targetNodeAddress": "10.0.0.2" }));
    edit(&mut bench.pods[1], &json!({ "status": { "phase": "Failed" } }));
    let vmi = bench.instance_after();
    assert_eq!(vmi.status.unwrap().migration_state.unwrap().failed, Some(true));
    assert_eq!(bench.decide().vmi.unwrap()["metadata"]["resourceVersion"], "7", "as it was seen, or not at all");
    let begun = bench.state(&json!({ "startTimestamp": at(55).to_string() }));
    assert_eq!(begun.decide().vmi, None, "the source decides");
}

#[test]
fn the_end_of_the_instance_is_the_end_of_its_migration() {
    let gone = Bench { vmi: None, ..Bench::new("Running") };
    assert_eq!(gone.phase_after(), "Failed");
}

#[test]
fn after_a_failure_the_target_goes_first_and_then_the_finalizer() {
    let failed = json!({ "completed": true, "failed": true });
    let bench = Bench::new("Failed").target().state(&failed);
    let plan = bench.decide();
    assert_eq!((plan.delete.len(), plan.release), (1, None));
    let mut ended = Bench::new("Failed").target().state(&failed);
    edit(&mut ended.pods[1], &json!({ "status": { "phase": "Failed" } }));
    let plan = ended.decide();
    assert_eq!(plan.delete, vec![]);
    assert_eq!(ended.then(&plan).metadata.finalizers.unwrap_or_default(), Vec::<String>::new());
}

#[test]
fn after_success_the_pods_stay() {
    let done = json!({ "completed": true, "endTimestamp": at(58).to_string() });
    let mut bench = Bench::new("Succeeded").target().state(&done);
    bench.vmi.as_mut().unwrap().status.as_mut().unwrap().node_name = Some("two".to_owned());
    assert_eq!(bench.decide().delete, vec![]);
}

#[test]
fn the_last_five_are_kept() {
    let mut bench = Bench::new("Succeeded");
    bench.migration.metadata.finalizers = None;
    bench.siblings = (0..6)
        .map(|number| {
            let mut one = migration(&format!("s{number}"), "Succeeded");
            one.metadata.creation_timestamp = Some(whole_second(at(number)));
            one
        })
        .collect();
    let gone: Vec<_> = bench.decide().collect.into_iter().map(|one| one.name).collect();
    assert_eq!(gone, ["s1", "s0"]);
}
