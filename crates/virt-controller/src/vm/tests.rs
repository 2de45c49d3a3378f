mod guest;
mod volumes;

use api::data_volume::DataVolume;
use json_patch::merge;
use proptest::prelude::*;

use super::*;

/// A VM, its instance, and all else as in an empty cluster.
struct Bench {
    vm: VirtualMachine,
    instance: Option<VirtualMachineInstance>,
    asked: bool,
    strays: Vec<VirtualMachineInstance>,
    revisions: Vec<ControllerRevision>,
    chosen: Result<Chosen, Problem>,
    failure: Option<String>,
    config: ClusterConfig,
    data_volumes: Vec<DataVolume>,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn template() -> Value {
    json!({ "metadata": { "labels": { "app": "db" } }, "spec": { "domain": { "devices": {}, "memory": { "guest": "64Mi" } } } })
}

impl Bench {
    fn new(strategy: &str, more: &Value) -> Self {
        let mut vm = json!({
            "metadata": {
                "name": "v", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
                "finalizers": [finalizer::VM_CONTROLLER],
            },
            "spec": { "runStrategy": strategy, "template": template() },
        });
        merge(&mut vm, more);
        Self {
            vm: serde_json::from_value(vm).unwrap(),
            instance: None,
            asked: true,
            strays: Vec::new(),
            revisions: Vec::new(),
            chosen: Ok(Chosen::default()),
            failure: None,
            config: ClusterConfig::default(),
            data_volumes: Vec::new(),
        }
    }

    fn instance(mut self, phase: &str, more: &Value) -> Self {
        let owner = controller_reference(&self.vm);
        let mut instance = json!({
            "metadata": {
                "name": "v", "namespace": "n", "uid": "i", "resourceVersion": "9", "ownerReferences": [owner],
                "finalizers": [finalizer::VM_CONTROLLER, finalizer::VMI],
                "annotations": { annotation::VM_GENERATION: "3" },
            },
            "spec": { "domain": { "devices": {} } },
            "status": { "phase": phase, "virtualMachineRevisionName": "revision-start-vm-u-3" },
        });
        merge(&mut instance, more);
        self.instance = Some(serde_json::from_value(instance).unwrap());
        self
    }

    fn decide(&self) -> Plan {
        let volumes = self.data_volumes.iter().map(|one| (one.metadata.name.as_deref().unwrap_or_default(), one));
        let data_volumes = (!self.data_volumes.is_empty()).then(|| volumes.collect());
        let seen = Observed {
            vm: &self.vm,
            instance: self.instance.as_ref(),
            asked: self.asked,
            strays: self.strays.iter().collect(),
            revisions: self.revisions.iter().collect(),
            chosen: self.chosen.clone(),
            volumes: Known { data_volumes, ..Known::default() },
            snapshot_classes: SnapshotClasses::default(),
            config: &self.config,
            failure: self.failure.as_deref(),
            chance: 0.0,
        };
        decide(&seen, at(60))
    }

    /// The VM after the plan was carried out.
    fn then(&self, plan: &Plan) -> VirtualMachine {
        let mut next = json!(self.vm);
        for patch in [&plan.vm, &plan.status].into_iter().flatten() {
            merge(&mut next, patch);
        }
        serde_json::from_value(next).unwrap()
    }

    fn word(&self) -> String {
        let next = self.then(&self.decide());
        next.status.unwrap().printable_status.unwrap().to_string()
    }
}

fn condition(vm: &VirtualMachine, kind: &str) -> Option<(String, String)> {
    let found = api::conditions::find(vm.status.as_ref()?.conditions.as_deref(), kind)?;
    Some((found.status.to_string(), found.reason.clone().unwrap_or_default()))
}

const DELETED: &str = "1970-01-01T00:00:30Z";

#[test]
fn a_start_makes_an_instance_that_is_all_it_should_be() {
    let bench = Bench::new("Always", &json!({}));
    let plan = bench.decide();
    let Start { revision, instance } = *plan.start.clone().unwrap();
    assert_eq!(plan, Plan { start: plan.start.clone(), ..Plan::default() }, "nothing else is written for it");
    assert_eq!(revision.metadata.name.as_deref(), Some("revision-start-vm-u-3"));
    let metadata = &instance.metadata;
    assert_eq!(metadata.name.as_deref(), Some("v"));
    assert!(is_controlled_by(metadata, "u"));
    assert_eq!(metadata.finalizers.as_ref().unwrap(), &[finalizer::VM_CONTROLLER, finalizer::VMI]);
    assert_eq!(metadata.labels.as_ref().unwrap()["app"], "db");
    assert_eq!(metadata.annotations.as_ref().unwrap()[annotation::VM_GENERATION], "3");
    let devices = &instance.spec.domain.devices;
    assert_eq!(devices.interfaces.as_ref().map(Vec::len), Some(1), "it is on the pod's network");
    let uuid = instance.spec.domain.firmware.unwrap().uuid.unwrap();
    assert_eq!(uuid, instance::firmware_uuid("v").to_string());
    let status = instance.status.unwrap();
    assert_eq!(status.virtual_machine_revision_name, revision.metadata.name);
    assert_eq!(status.phase, Some(Phase::Pending));
}

#[test]
fn the_finalizer_comes_before_everything_else() {
    let bench = Bench::new("Always", &json!({ "metadata": { "finalizers": ["other"] } }));
    let plan = bench.decide();
    assert_eq!(plan.vm.as_ref().unwrap()["metadata"]["finalizers"], json!(["other", finalizer::VM_CONTROLLER]));
    assert_eq!((plan.start, plan.status), (None, None));
}

#[test]
fn nothing_is_started_while_a_snapshot_or_restore_is_under_way() {
    for lock in ["snapshotInProgress", "restoreInProgress"] {
        let bench = Bench::new("Always", &json!({ "status": { lock: "s" } }));
        assert_eq!(bench.decide().start, None, "{lock}");
        assert_eq!(bench.word(), "Stopped");
    }
}

#[test]
fn an_orphan_of_the_vms_name_is_adopted_and_a_strangers_is_in_the_way() {
    let orphan =
        Bench::new("Always", &json!({})).instance("Running", &json!({ "metadata": { "ownerReferences": null } }));
    let plan = orphan.decide();
    let (target, patch) = &plan.instances[0];
    assert_eq!(target.uid, "i");
    assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "u");
    assert_eq!((plan.start, plan.stop), (None, None));

    let owner = json!([{ "apiVersion": "x/v1", "kind": "Pool", "name": "p", "uid": "z", "controller": true }]);
    let strangers =
        Bench::new("Always", &json!({})).instance("Running", &json!({ "metadata": { "ownerReferences": owner } }));
    let plan = strangers.decide();
    assert_eq!((plan.start.as_ref(), plan.instances.len()), (None, 0));
    assert_eq!(condition(&strangers.then(&plan), "Failure"), Some(("True".to_owned(), "FailedCreate".to_owned())));
    assert!(plan.events[0].message.contains("the Pool p"), "{:?}", plan.events);
    let halted =
        Bench::new("Halted", &json!({})).instance("Running", &json!({ "metadata": { "ownerReferences": owner } }));
    assert_eq!(halted.decide().stop, None, "what is not its own is not deleted");
}

#[test]
fn an_instance_of_another_name_is_released() {
    let mut bench = Bench::new("Halted", &json!({})).instance("Running", &json!({ "metadata": { "name": "w" } }));
    bench.strays.extend(bench.instance.take());
    let plan = bench.decide();
    assert_eq!(plan.instances[0].1["metadata"]["ownerReferences"], json!([]));
    assert_eq!(plan.stop, None);
}

#[test]
fn a_stop_is_for_the_instance_that_was_seen() {
    let bench = Bench::new("Halted", &json!({})).instance("Running", &json!({}));
    let plan = bench.decide();
    let target = Target { name: "v".to_owned(), uid: "i".to_owned() };
    assert_eq!(plan.stop, Some(Stop { target, version: "9".to_owned() }));
    let going =
        Bench::new("Halted", &json!({})).instance("Running", &json!({ "metadata": { "deletionTimestamp": DELETED } }));
    assert_eq!((going.decide().stop, going.word()), (None, "Stopping".to_owned()));
}

#[test]
fn a_halted_vm_that_somebody_starts_becomes_always() {
    let asked = json!({ "status": { "stateChangeRequests": [{ "action": "Start" }] } });
    let plan = Bench::new("Halted", &asked).decide();
    assert_eq!(plan.vm.unwrap()["spec"], json!({ "runStrategy": "Always" }));
    let mut old = asked;
    old["spec"] = json!({ "running": false, "runStrategy": null });
    assert_eq!(Bench::new("", &old).decide().vm.unwrap()["spec"], json!({ "running": true }));
}

#[test]
fn a_crash_under_rerun_on_failure_notes_the_start_before_the_stop() {
    let bench = Bench::new("RerunOnFailure", &json!({})).instance("Failed", &json!({}));
    let plan = bench.decide();
    assert_eq!(plan.stop.as_ref().unwrap().target.uid, "i");
    assert_eq!(plan.status.as_ref().unwrap()["status"]["stateChangeRequests"], json!([{ "action": "Start" }]));
    // The instance goes; the start outlives it.
    let next = bench.then(&plan);
    let going = json!({ "metadata": { "deletionTimestamp": DELETED } });
    let later = Bench { vm: next, ..bench }.instance("Failed", &going);
    let plan = later.decide();
    assert_eq!(plan.status, None);
    let gone = Bench { instance: None, ..later };
    let failures = gone.vm.status.as_ref().unwrap().start_failure.as_ref().unwrap();
    assert_eq!(failures.consecutive_fail_count, Some(1));
    assert!(gone.decide().start.is_none() && gone.decide().recheck_after.is_some(), "it waits");
}

#[test]
fn an_instance_is_let_go_when_the_status_has_told_its_end() {
    let going = json!({ "metadata": { "deletionTimestamp": DELETED } });
    let bench = Bench::new("Always", &json!({})).instance("Failed", &going);
    let plan = bench.decide();
    assert!(plan.status.is_some() && plan.instances.is_empty());
    let told = Bench { vm: bench.then(&plan), ..bench };
    let plan = told.decide();
    assert_eq!(plan.status, None);
    assert_eq!(plan.instances[0].1["metadata"]["finalizers"], json!([finalizer::VMI]));
}

#[test]
fn a_start_that_worked_forgets_those_that_did_not() {
    let failed = json!({ "status": { "startFailure": { "consecutiveFailCount": 3, "lastFailedVMIUID": "x" } } });
    let bench = Bench::new("Always", &failed).instance("Running", &json!({}));
    assert!(bench.then(&bench.decide()).status.unwrap().start_failure.as_ref().is_none());
    let young = Bench::new("Always", &failed).instance("Scheduling", &json!({}));
    assert!(young.then(&young.decide()).status.unwrap().start_failure.as_ref().is_some());
}

#[test]
fn a_changed_template_needs_a_restart_and_anything_else_is_told_to_the_instance() {
    let mut bench = Bench::new("Always", &json!({})).instance("Running", &json!({}));
    bench.revisions.push(revision::of_start(&bench.vm, &Chosen::default()));
    bench.vm.metadata.generation = Some(4);
    let plan = bench.decide();
    assert_eq!(plan.instances[0].1["metadata"]["annotations"][annotation::VM_GENERATION], "4");
    assert_eq!(condition(&bench.then(&plan), "RestartRequired"), None);
    bench.vm.spec.template.spec.as_mut().unwrap().domain.memory.as_mut().unwrap().guest =
        Some("128Mi".parse().unwrap());
    let plan = bench.decide();
    assert!(plan.instances.is_empty());
    assert_eq!(condition(&bench.then(&plan), "RestartRequired").unwrap().0, "True");
}

#[test]
fn what_a_guest_takes_on_at_its_next_start_is_told_by_its_vm_until_then() {
    let restart = json!([{ "type": "RestartRequired", "status": "True", "message": "spec.domain.cpu" }]);
    let with = |phase: &str| {
        let bench = Bench::new("Always", &json!({})).instance(phase, &json!({ "status": { "conditions": restart } }));
        condition(&bench.then(&bench.decide()), "RestartRequired")
    };
    assert_eq!(with("Running").unwrap().0, "True");
    assert_eq!(with("Succeeded"), None);
}

#[test]
fn old_revisions_go_when_a_later_start_is_in_use() {
    let mut bench = Bench::new("Always", &json!({})).instance("Running", &json!({}));
    let mut old = revision::of_start(&bench.vm, &Chosen::default());
    old.metadata.name = Some(revision::name("u", 2));
    old.metadata.uid = Some("old".to_owned());
    bench.revisions = vec![old, revision::of_start(&bench.vm, &Chosen::default())];
    let forgotten: Vec<String> = bench.decide().forget.into_iter().map(|target| target.uid).collect();
    assert_eq!(forgotten, ["old"]);
}

#[test]
fn the_conditions_of_the_instance_are_mirrored_and_go_with_it() {
    let conditions = json!([
        { "type": "Ready", "status": "True" },
        { "type": "AgentConnected", "status": "True", "lastTransitionTime": DELETED },
    ]);
    let bench =
        Bench::new("Always", &json!({})).instance("Running", &json!({ "status": { "conditions": conditions } }));
    let vm = bench.then(&bench.decide());
    assert_eq!(condition(&vm, "AgentConnected").unwrap().0, "True");
    assert_eq!(condition(&vm, "Ready").unwrap().0, "True");
    let status = vm.status.clone().unwrap();
    assert_eq!((status.created, status.ready), (Some(true), Some(true)));
    let mut halted = Bench { vm, ..Bench::new("Halted", &json!({})) };
    halted.vm.spec.run_strategy = Some(api::vm::VirtualMachineRunStrategy::Halted);
    let vm = halted.then(&halted.decide());
    assert_eq!(condition(&vm, "AgentConnected"), None);
    assert_eq!(condition(&vm, "Ready"), Some(("False".to_owned(), "VMINotExists".to_owned())));
}

#[test]
fn a_deleted_vm_lets_its_instance_go_first() {
    let deleted = json!({ "metadata": { "deletionTimestamp": DELETED } });
    let live = Bench::new("Always", &deleted).instance("Running", &json!({}));
    let plan = live.decide();
    assert!(plan.stop.is_some() && plan.vm.is_none());
    let over = Bench::new("Always", &deleted).instance("Succeeded", &deleted);
    let plan = over.decide();
    assert_eq!(plan.instances[0].1["metadata"]["finalizers"], json!([finalizer::VMI]));
    assert_eq!(plan.vm, None);
    let gone = Bench::new("Always", &deleted);
    let plan = gone.decide();
    assert_eq!((plan.vm.unwrap()["metadata"]["finalizers"].clone(), plan.start), (json!([]), None));
    let unsure = Bench { asked: false, ..gone };
    assert_eq!(unsure.decide(), Plan { ask: true, ..Plan::default() }, "the server itself is asked first");
}

#[test]
fn an_orphaned_instance_outlives_its_vm() {
    let orphans =
        json!({ "metadata": { "deletionTimestamp": DELETED, "finalizers": [finalizer::VM_CONTROLLER, "orphan"] } });
    let held = Bench::new("Always", &orphans).instance("Running", &json!({}));
    let plan = held.decide();
    assert_eq!((plan.stop.as_ref(), plan.vm.as_ref(), plan.instances.len()), (None, None, 1));
    let free =
        Bench::new("Always", &orphans).instance("Running", &json!({ "metadata": { "finalizers": [finalizer::VMI] } }));
    assert_eq!(free.decide().vm.unwrap()["metadata"]["finalizers"], json!(["orphan"]));
}

#[test]
fn an_instancetype_that_is_not_there_is_told() {
    let problem = Problem { reason: "FailedFindInstancetype", message: "there is no such".to_owned() };
    let bench = Bench { chosen: Err(problem), ..Bench::new("Always", &json!({})) };
    let plan = bench.decide();
    assert_eq!(plan.start, None);
    assert_eq!(
        condition(&bench.then(&plan), "Failure"),
        Some(("True".to_owned(), "FailedFindInstancetype".to_owned()))
    );
    assert_eq!(plan.events.len(), 1);
    let told = Bench { vm: bench.then(&plan), ..bench };
    assert_eq!(told.decide(), Plan::default(), "and told once");
}

proptest! {
    #[test]
    fn whatever_is_seen_the_plan_is_safe_and_comes_to_rest(
        strategy in prop::sample::select(vec!["Always", "RerunOnFailure", "Manual", "Halted", "Once"]),
        phase in prop::option::of(prop::sample::select(vec!["Pending", "Scheduling", "Running", "Succeeded", "Failed"])),
        deleted: bool, going: bool, mine: bool, start: bool, stop: bool, locked: bool, held: bool,
    ) {
        let mut more = json!({ "status": {} });
        if deleted {
            more["metadata"] = json!({ "deletionTimestamp": DELETED });
        }
        if locked {
            more["status"]["restoreInProgress"] = json!("r");
        }
        if start || stop {
            let one = if start { json!({ "action": "Start" }) } else { json!({ "action": "Stop", "uid": "i" }) };
            more["status"]["stateChangeRequests"] = json!([one]);
        }
        let mut bench = Bench::new(strategy, &more);
        if let Some(phase) = phase {
            let mut more = json!({ "metadata": {} });
            if going {
                more["metadata"]["deletionTimestamp"] = json!(DELETED);
            }
            if !mine {
                let owner = json!([{ "apiVersion": "x/v1", "kind": "Pool", "name": "p", "uid": "z", "controller": true }]);
                more["metadata"]["ownerReferences"] = owner;
            }
            if !held {
                more["metadata"]["finalizers"] = json!([finalizer::VMI]);
            }
            bench = bench.instance(phase, &more);
        }
        let plan = bench.decide();
        prop_assert_eq!(&plan, &bench.decide(), "equal observations give equal plans");
        if plan.start.is_some() {
            prop_assert!(phase.is_none() && !deleted && !locked && strategy != "Halted" && (strategy != "Manual" || start));
        }
        if plan.stop.is_some() {
            prop_assert!(phase.is_some() && mine && !going);
            prop_assert!(plan.start.is_none());
        }
        // What holds the instance goes only with its own end, or the VM's.
        if let Some((_, patch)) = plan.instances.first().filter(|_| mine) {
            let lets_go = patch["metadata"]["finalizers"] == json!([finalizer::VMI]);
            prop_assert!(!lets_go || (going && matches!(phase, Some("Succeeded" | "Failed"))));
        }
        // Carried out, and nothing else happens: it comes to rest, unless it waits for what was asked for.
        let mut rested = Bench { vm: bench.then(&plan), ..bench };
        rested.vm = rested.then(&rested.decide());
        let last = rested.decide();
        prop_assert_eq!((last.vm, last.status, last.events), (None, None, Vec::new()));
    }
}
