//! What is decided about snapshots: a table of single steps, and whole lives in which programs die at any step.

mod quiet;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Everything that a decision is made of, and what becomes of it.
#[derive(Clone)]
struct Bench {
    snapshot: Option<Value>,
    content: Option<Value>,
    vm: Value,
    vmi: Option<Value>,
    copies: BTreeMap<String, Value>,
    failure: Option<Failure>,
    seconds: i64,
    /// The guest's file systems are frozen. Its instance is told of that late.
    frozen: bool,
    /// Its launcher is of a release that refuses to freeze twice.
    refuses_twice: bool,
    /// Copies that were made of a guest that ran.
    torn: usize,
    /// Whether a restore has begun.
    restores: bool,
}

fn claim() -> k8s_openapi::api::core::v1::PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": { "name": "c" }, "spec": { "storageClassName": "s" }, "status": { "phase": "Bound" },
    }))
    .unwrap()
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

impl Bench {
    fn new(agent: Option<bool>) -> Self {
        let snapshot = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
            "metadata": { "name": "s", "namespace": "n", "uid": "u", "creationTimestamp": "1970-01-01T00:00:00Z" },
            "spec": { "source": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "v" } },
        });
        let volumes = json!([{ "name": "d", "persistentVolumeClaim": { "claimName": "c" } }]);
        let vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "v", "uid": "v" },
            "spec": { "template": { "spec": { "domain": { "devices": {} }, "volumes": volumes } } },
        });
        let vmi = agent.map(|agent| {
            let connected = json!([{ "type": "AgentConnected", "status": "True" }]);
            json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "metadata": { "name": "v", "uid": "i" }, "spec": { "domain": { "devices": {} } },
                "status": { "phase": "Running", "conditions": if agent { connected } else { json!([]) } },
            })
        });
        let (content, copies) = (None, BTreeMap::new());
        Self {
            snapshot: Some(snapshot),
            content,
            vm,
            vmi,
            copies,
            failure: None,
            seconds: 0,
            frozen: false,
            refuses_twice: false,
            torn: 0,
            restores: false,
        }
    }

    fn decide(&self) -> SnapshotPlan {
        let storage = serde_json::from_value(json!({ "metadata": { "name": "s" }, "provisioner": "d" })).unwrap();
        let class = serde_json::from_value(json!({
            "metadata": { "name": "k" }, "driver": "d", "deletionPolicy": "Delete",
        }))
        .unwrap();
        let (snapshot, content): (Option<Snapshot>, Option<Content>) =
            (self.snapshot.as_ref().map(read), self.content.as_ref().map(read));
        let (vm, vmi): (VirtualMachine, Option<VirtualMachineInstance>) = (read(&self.vm), self.vmi.as_ref().map(read));
        let copies: Vec<(&str, VolumeSnapshot)> =
            self.copies.iter().map(|(name, one)| (name.as_str(), read(one))).collect();
        let claim = claim();
        let stranger = content.as_ref().filter(|_| snapshot.is_none());
        let seen = Observed {
            snapshot: snapshot.as_ref(),
            content: content.as_ref().filter(|_| snapshot.is_some()),
            strangers: stranger.map(|content| (content, vmi.as_ref())).into_iter().collect(),
            vm: Some(&vm),
            vmi: vmi.as_ref(),
            volumes: Known { claims: [("c", &claim)].into(), ..Known::default() },
            classes: SnapshotClasses::of([&storage], [&class]),
            copies: copies.iter().map(|(name, copy)| (*name, copy)).collect(),
            failure: self.failure.clone(),
            restores: self.restores,
            ..Observed::default()
        };
        decide(&seen, Timestamp::from_second(self.seconds).unwrap())
    }

    fn is_quiet(&self) -> bool {
        self.vmi.is_none() || self.frozen || self.is_paused()
    }

    /// Somebody asks the agent how the guest is, and the instance is told.
    fn poll(&mut self) {
        if let Some(vmi) = &mut self.vmi {
            vmi["status"]["fsFreezeStatus"] = if self.frozen { json!("frozen") } else { Value::Null };
        }
    }

    /// Until somebody lets it go on.
    fn is_paused(&self) -> bool {
        let conditions = self.vmi.as_ref().and_then(|vmi| vmi["status"]["conditions"].as_array());
        conditions.into_iter().flatten().any(|one| one["reason"] == "PausedByUser")
    }

    fn pause(&mut self, holds: bool) {
        self.pause_by(holds.then_some("PausedByUser"));
    }

    fn pause_by(&mut self, reason: Option<&str>) {
        let Some(all) = self.vmi.as_mut().and_then(|vmi| vmi["status"]["conditions"].as_array_mut()) else { return };
        all.retain(|one| one["type"] != "Paused");
        all.extend(reason.map(|reason| json!({ "type": "Paused", "status": "True", "reason": reason })));
    }

    /// Carries out a plan, and dies after so many of its steps.
    fn act(&mut self, plan: &SnapshotPlan, steps: usize) {
        let mut left = steps;
        let mut go = || {
            left = left.saturating_sub(1);
            left > 0
        };
        let merge = |into: &mut Value, patch: &Value| {
            json_patch::merge(into, patch);
            drop(into["metadata"].as_object_mut().and_then(|all| all.remove("resourceVersion")));
        };
        if let (Some(patch), Some(snapshot)) = (&plan.protect, &mut self.snapshot) {
            return merge(snapshot, patch);
        }
        for patch in [&plan.vm_status, &plan.vm].into_iter().flatten() {
            if go() {
                merge(&mut self.vm, patch);
            }
        }
        if let Some(content) = plan.content.as_ref().filter(|_| go()) {
            let mut content = json!(content);
            content["metadata"]["uid"] = json!("content");
            self.content.get_or_insert(content);
        }
        match &plan.quiet {
            Some(Quiet::Freeze { .. }) if go() => {
                if self.frozen && self.refuses_twice {
                    let again = Timestamp::from_second(self.seconds + 5).unwrap();
                    self.failure = Some(Failure { message: "not allowed".to_owned(), forever: false, again });
                    return;
                }
                self.frozen = true;
            }
            Some(Quiet::Stop) if go() => self.pause(true),
            Some(_) => return,
            None => {}
        }
        for copy in plan.copy.iter().filter(|_| go()) {
            self.torn += usize::from(!self.is_quiet());
            self.copies.entry(copy.metadata.name.clone().unwrap()).or_insert_with(|| json!(copy));
        }
        match plan.go_on {
            Some(GoOn::Thaw) if go() => self.frozen = false,
            Some(GoOn::Resume) if go() => self.pause(false),
            Some(_) => return,
            None => {}
        }
        if let Some(content) = &mut self.content {
            let patches = plan.contents.iter().map(|(_, patch)| patch).chain(&plan.content_status);
            patches.filter(|_| go()).for_each(|patch| merge(content, patch));
        }
        if plan.delete.is_some() && go() {
            self.content = None;
            self.copies.clear();
        }
        if let (Some(patch), Some(snapshot)) = (plan.status.as_ref().filter(|_| go()), &mut self.snapshot) {
            merge(snapshot, patch);
        }
        if plan.release.is_some() && go() {
            self.snapshot = None;
        }
    }

    fn make_copies(&mut self) {
        for copy in self.copies.values_mut() {
            copy["status"] = json!({ "creationTime": "1970-01-01T00:00:09Z", "readyToUse": true });
        }
    }

    fn delete(&mut self) {
        // What nothing holds is gone at once.
        let held = |one: &Value| one["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        self.snapshot = self.snapshot.take().filter(held);
        if let Some(snapshot) = &mut self.snapshot {
            snapshot["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:10Z");
        }
    }

    /// Until nothing is left to do; the storage copies on.
    fn settle(&mut self) {
        for _ in 0..60 {
            self.make_copies();
            self.act(&self.decide().clone(), usize::MAX);
            self.seconds += 5;
        }
    }

    fn phase(&self) -> String {
        self.snapshot.as_ref().map_or("gone", |one| one["status"]["phase"].as_str().unwrap_or_default()).to_owned()
    }

    fn is_locked(&self) -> bool {
        !self.vm["status"]["snapshotInProgress"].is_null()
    }
}

fn rest() -> SnapshotPlan {
    SnapshotPlan { machine: "v".to_owned(), ..SnapshotPlan::default() }
}

#[test]
fn a_guest_is_frozen_stopped_or_left_alone() {
    let freeze = Quiet::Freeze { limit: "5m0s".to_owned() };
    for (agent, paused, quiet) in [
        (None, false, None),
        (Some(true), false, Some(freeze)),
        (Some(true), true, None),
        (Some(false), true, None),
        (Some(false), false, Some(Quiet::Stop)),
    ] {
        let mut bench = Bench::new(agent);
        bench.pause(paused);
        let asked = (0..12).find_map(|_| {
            let plan = bench.decide();
            bench.act(&plan, usize::MAX);
            plan.quiet.map(Some).or_else(|| (!plan.copy.is_empty()).then_some(None))
        });
        assert_eq!(asked, Some(quiet), "{agent:?} {paused}");
        bench.settle();
        assert_eq!((bench.phase().as_str(), bench.torn), ("Succeeded", 0));
        assert_eq!(bench.is_paused(), paused, "who paused it goes on deciding");
        assert_eq!(bench.decide(), rest());
    }
}

#[test]
fn a_guest_that_may_not_be_stopped_is_copied_as_it_runs() {
    let mut bench = Bench::new(Some(false));
    bench.failure = Some(Failure { message: "no".to_owned(), forever: true, again: Timestamp::UNIX_EPOCH });
    bench.settle();
    assert_eq!((bench.phase().as_str(), bench.torn, bench.is_paused()), ("Succeeded", 1, false));
}

#[test]
fn a_snapshot_without_a_deadline_waits_for_ever() {
    let mut bench = Bench::new(None);
    bench.snapshot.as_mut().unwrap()["spec"]["failureDeadline"] = json!("0s");
    for _ in 0..8 {
        bench.act(&bench.decide(), usize::MAX);
    }
    bench.seconds = 1_000_000;
    bench.act(&bench.decide(), usize::MAX);
    assert_eq!(bench.phase(), "InProgress");
}

#[test]
fn a_guest_that_is_starting_is_not_copied_before_it_can_be_made_quiet() {
    for phase in ["", "Pending", "Scheduling", "Scheduled"] {
        let mut bench = Bench::new(Some(false));
        bench.vmi.as_mut().unwrap()["status"]["phase"] = json!(phase);
        for _ in 0..8 {
            bench.act(&bench.decide(), usize::MAX);
        }
        assert!(bench.content.is_some() && bench.copies.is_empty(), "{phase}");
        assert!(bench.decide().recheck_after.is_some(), "{phase}");
        bench.vmi.as_mut().unwrap()["status"]["phase"] = json!("Running");
        bench.settle();
        assert_eq!((bench.phase().as_str(), bench.torn, bench.is_paused()), ("Succeeded", 0, false), "{phase}");
    }
}

#[test]
fn a_guest_goes_on_when_somebody_deletes_the_content() {
    let mut bench = Bench::new(Some(false));
    bench.snapshot.as_mut().unwrap()["spec"]["failureDeadline"] = json!("0s");
    for _ in 0..8 {
        bench.act(&bench.decide(), usize::MAX);
    }
    assert!(bench.is_paused() && bench.content.is_some());
    bench.content.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:10Z");
    for _ in 0..60 {
        bench.act(&bench.decide(), usize::MAX);
        bench.seconds += 5;
    }
    assert!(!bench.is_paused());
    let content = bench.content.take().unwrap();
    assert!(content["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty), "{content}");
    // What nothing holds is gone, with its copies, and the snapshot begins anew.
    bench.copies.clear();
    bench.settle();
    assert_eq!((bench.phase().as_str(), bench.torn, bench.is_paused()), ("Succeeded", 0, false));
}

/// A restore in place has given up bytes that only the snapshot has.
#[test]
fn a_snapshot_that_is_deleted_stays_until_its_restores_have_ended() {
    let mut bench = Bench::new(None);
    bench.settle();
    assert_eq!(bench.phase(), "Succeeded");
    bench.restores = true;
    bench.delete();
    bench.settle();
    assert!(bench.snapshot.is_some() && bench.content.is_some() && !bench.copies.is_empty());
    assert!(!bench.is_locked());
    assert_eq!(SnapshotPlan { machine: String::new(), ..bench.decide() }, SnapshotPlan::default());
    bench.restores = false;
    bench.settle();
    assert!(bench.snapshot.is_none() && bench.content.is_none());
}

proptest! {
    /// Whoever dies at whatever step, and whatever happens meanwhile: in the end the guest runs as before, the VM is free, and no
    /// copy was made of a guest that ran. What the instance says of a freeze is old, and some launchers do not freeze twice.
    #[test]
    fn a_guest_goes_on_whoever_dies(
        agent in prop::option::of(any::<bool>()),
        paused: bool,
        refuses_twice: bool,
        life in prop::collection::vec((0usize..8, 0u8..8), 0..25),
    ) {
        let mut bench = Bench::new(agent);
        bench.refuses_twice = refuses_twice;
        bench.pause(paused);
        let paused = bench.is_paused();
        for (steps, event) in life {
            match event {
                0 => bench.make_copies(),
                1 => bench.seconds += 100,
                2 if steps == 7 => bench.delete(),
                3 => bench.poll(),
                // Nobody thawed it in time.
                4 if bench.copies.is_empty() => bench.frozen = false,
                _ => {}
            }
            let plan = bench.decide();
            prop_assert_eq!(&plan, &bench.decide());
            bench.act(&plan, steps);
        }
        bench.settle();
        prop_assert_eq!(bench.torn, 0);
        prop_assert!(!bench.is_locked(), "{}", bench.phase());
        prop_assert_eq!((bench.is_paused(), bench.frozen), (paused, false));
        prop_assert!(["Succeeded", "Failed", "gone"].contains(&bench.phase().as_str()), "{}", bench.phase());
        let left = bench.content.as_ref().map(|content| content["metadata"]["annotations"].clone());
        let marked = left.is_some_and(|left| left.get(annotation::STOPPED_FOR_SNAPSHOT).is_some());
        prop_assert!(!marked);
        let plan = bench.decide();
        prop_assert_eq!(SnapshotPlan { machine: String::new(), ..plan }, SnapshotPlan::default());
    }
}
