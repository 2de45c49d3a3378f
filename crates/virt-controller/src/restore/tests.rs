//! What is decided about restores.

use proptest::prelude::*;
use serde_json::json;

use super::*;

struct Bench {
    restore: Restore,
    vm: Option<VirtualMachine>,
    vmi: Option<VirtualMachineInstance>,
    snapshot: Option<Snapshot>,
    content: Option<Content>,
    copy: Option<VolumeSnapshot>,
    claims: Vec<PersistentVolumeClaim>,
    used: bool,
    data_volume: Option<DataVolume>,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn vm(uid: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": { "name": "v", "uid": uid, "resourceVersion": "1" },
        "spec": { "runStrategy": "Halted", "template": { "spec": { "domain": { "devices": {} }, "volumes": [
            { "name": "d", "persistentVolumeClaim": { "claimName": "c" } },
        ] } } },
    })
}

impl Bench {
    fn new(spec: &Value) -> Self {
        let mut all = json!({
            "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "v" },
            "virtualMachineSnapshotName": "s",
        });
        json_patch::merge(&mut all, spec);
        let restore = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore", "spec": all,
            "metadata": {
                "name": "r", "namespace": "n", "uid": "u", "finalizers": [finalizer::RESTORE],
                "creationTimestamp": "1970-01-01T00:00:00Z",
                "ownerReferences": [{ "apiVersion": "v1", "kind": "K", "name": "o", "uid": "o" }],
            },
            "status": { "complete": false },
        });
        let frozen = vm("v");
        let content = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshotContent",
            "metadata": { "name": "vmsnapshot-content-s" },
            "spec": {
                "source": { "virtualMachine": { "metadata": frozen["metadata"], "spec": frozen["spec"] } },
                "volumeBackups": [{ "volumeName": "d", "volumeSnapshotName": "copy", "persistentVolumeClaim": {
                    "metadata": { "name": "c", "annotations": { "pv.kubernetes.io/bound": "yes", "own": "1" } },
                    "spec": { "storageClassName": "k", "resources": { "requests": { "storage": "1Gi" } } },
                } }],
            },
            "status": { "readyToUse": true },
        });
        let snapshot = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot",
            "metadata": { "name": "s", "uid": "s" }, "spec": { "source": { "kind": "VirtualMachine", "name": "v" } },
            "status": { "readyToUse": true, "phase": "Succeeded", "sourceUID": "v" },
        });
        let copy = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": { "name": "copy" },
            "spec": { "source": {} }, "status": { "restoreSize": "2Gi", "readyToUse": true },
        });
        Self {
            restore: read(restore),
            vm: None,
            vmi: None,
            snapshot: Some(read(snapshot)),
            content: Some(read(content)),
            copy: Some(read(copy)),
            claims: Vec::new(),
            used: false,
            data_volume: None,
        }
    }

    fn vm(mut self, uid: &str, status: &Value) -> Self {
        let mut vm = vm(uid);
        vm["status"] = status.clone();
        self.vm = Some(read(vm));
        self
    }

    fn claim(mut self, name: &str, mine: bool, phase: &str) -> Self {
        let mark = if mine { json!({ annotation::LAST_RESTORE_UID: "r-u" }) } else { json!({}) };
        self.claims.push(read(json!({
            "metadata": { "name": name, "uid": name, "annotations": mark }, "status": { "phase": phase },
        })));
        self
    }

    /// The last claim is controlled by another object.
    fn owner(&mut self, kind: &str, name: &str, uid: &str) {
        let owner = json!([{ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": true }]);
        self.claims.last_mut().unwrap().metadata.owner_references = Some(read(owner));
    }

    /// It says what is wrong, and that is all.
    fn touches_nothing(&self, reason: &str) {
        let plan = self.decide();
        assert_eq!(self.reason(), reason);
        let touched = (plan.vm, plan.vm_status, plan.create, plan.claims.len(), plan.replace.len());
        assert_eq!(touched, (None, None, None, 0, 0), "{reason}");
    }

    fn restores(mut self, claim: &str) -> Self {
        let one = json!({ "volumeName": "d", "persistentVolumeClaim": claim, "volumeSnapshotName": "copy" });
        self.restore.status.as_mut().unwrap().restores = Some(vec![read(one)]);
        self
    }

    fn decide(&self) -> RestorePlan {
        let seen = Observed {
            restore: &self.restore,
            vm: self.vm.as_ref(),
            vmi: self.vmi.as_ref(),
            snapshot: self.snapshot.as_ref(),
            content: self.content.as_ref(),
            copies: self.copy.iter().map(|copy| ("copy", copy)).collect(),
            claims: self.claims.iter().map(|one| (one.metadata.name.as_deref().unwrap(), one)).collect(),
            used: self.claims.iter().filter(|_| self.used).filter_map(|one| one.metadata.name.as_deref()).collect(),
            data_volumes: Some(self.data_volume.iter().map(|one| ("dv", one)).collect()),
            late_binding: BTreeSet::new(),
            revisions: BTreeMap::new(),
            failure: None,
        };
        decide(&seen, Timestamp::from_second(9).unwrap())
    }

    fn reason(&self) -> String {
        let status = self.decide().status.unwrap_or_default();
        status["status"]["conditions"][0]["reason"].as_str().unwrap_or_default().to_owned()
    }
}

fn locked() -> Value {
    json!({ "restoreInProgress": "r" })
}

#[test]
fn each_step_waits_for_the_one_before() {
    let begun = Bench::new(&json!({})).vm("v", &json!({}));
    assert_eq!(begun.decide().vm_status.unwrap()["status"]["restoreInProgress"], "r");
    let told = Bench::new(&json!({})).vm("v", &locked()).decide();
    let status = told.status.unwrap();
    assert_eq!(status["status"]["restores"][0]["persistentVolumeClaim"], "restore-u-d");
    assert_eq!(told.claims, []);
    let bench = Bench::new(&json!({})).vm("v", &locked()).restores("restore-u-d");
    let made = bench.decide().claims.remove(0);
    assert_eq!(made.spec.unwrap().resources.unwrap().requests.unwrap()["storage"].0, "2Gi", "as the copy needs");
    let annotations = made.metadata.annotations.unwrap();
    assert!(annotations.contains_key("own") && !annotations.contains_key("pv.kubernetes.io/bound"));
    let waits = bench.claim("restore-u-d", true, "Pending").decide();
    assert_eq!((waits.vm, waits.claims), (None, vec![]));
    let bench = Bench::new(&json!({})).vm("v", &locked()).restores("restore-u-d").claim("restore-u-d", true, "Bound");
    let patch = bench.decide().vm.unwrap();
    let volumes = &patch["spec"]["template"]["spec"]["volumes"];
    assert_eq!(volumes[0]["persistentVolumeClaim"]["claimName"], "restore-u-d");
    assert_eq!(patch["metadata"]["annotations"][annotation::LAST_RESTORE_UID], "r-u");
}

#[test]
fn what_is_wrong_is_told_and_nothing_is_touched() {
    let cases: [(&str, Bench); 6] = [
        ("VMSnapshot n/s does not exist", Bench { snapshot: None, ..Bench::new(&json!({})) }),
        ("VMSnapshotContent n/vmsnapshot-content-s does not exist", Bench { content: None, ..Bench::new(&json!({})) }),
        (OTHER_TARGET, Bench::new(&json!({})).vm("another", &json!({}))),
        ("vm restore q in progress", Bench::new(&json!({})).vm("v", &json!({ "restoreInProgress": "q" }))),
        (
            "PVC n/restore-u-d exists already and was not made by this restore",
            Bench::new(&json!({})).vm("v", &locked()).restores("restore-u-d").claim("restore-u-d", false, "Bound"),
        ),
        (
            "missing volumeSnapshot copy",
            Bench {
                copy: None,
                ..Bench::new(&json!({ "volumeRestorePolicy": "InPlace" }))
                    .vm("v", &locked())
                    .restores("c")
                    .claim("c", false, "Bound")
            },
        ),
    ];
    for (reason, bench) in cases {
        bench.touches_nothing(reason);
    }
}

/// What somebody does to what is there.
type Change<'a> = &'a dyn Fn(&mut Bench);

/// What would lose somebody's bytes if the claim went.
#[test]
fn a_claim_that_is_not_the_targets_own_or_has_no_copy_is_not_replaced() {
    let own = "PVC n/c exists already and is not the target's own; delete it, or use another volumeRestorePolicy";
    let at = || read(json!("1970-01-01T00:00:00Z"));
    let cases: [(&str, Change<'_>); 8] = [
        (own, &|bench| bench.owner("VirtualMachine", "v", "earlier")),
        (own, &|bench| bench.owner("DataVolume", "dv", "dv")),
        (own, &|bench| bench.vm = None),
        ("PVC n/c is used by another instance; stop that first", &|bench| bench.used = true),
        ("volumeSnapshot copy is not ready to use", &|bench| {
            bench.copy.as_mut().unwrap().status.as_mut().unwrap().ready_to_use = Some(false);
        }),
        ("volumeSnapshot copy is being deleted", &|bench| {
            bench.copy.as_mut().unwrap().metadata.deletion_timestamp = at();
        }),
        ("VMSnapshot n/s is being deleted", &|bench| {
            bench.restore.status.as_mut().unwrap().restores = None;
            bench.snapshot.as_mut().unwrap().metadata.deletion_timestamp = at();
        }),
        (OTHER_PLACE, &|bench| {
            bench.vm = None;
            bench.restore.spec.target.name = "w".to_owned();
        }),
    ];
    for (reason, change) in cases {
        let in_place = json!({ "volumeRestorePolicy": "InPlace" });
        let mut bench = Bench::new(&in_place).vm("v", &locked()).restores("c").claim("c", false, "Bound");
        change(&mut bench);
        bench.touches_nothing(reason);
    }
}

/// What starts as soon as it may does not wait for its own end.
#[test]
fn a_vm_that_starts_with_its_last_change_is_complete() {
    let mut bench =
        Bench::new(&json!({})).vm("v", &locked()).restores("restore-u-d").claim("restore-u-d", true, "Bound");
    let mark = BTreeMap::from([(annotation::LAST_RESTORE_UID.to_owned(), "r-u".to_owned())]);
    bench.vm.as_mut().unwrap().metadata.annotations = Some(mark);
    bench.vmi = Some(instance());
    // Nor does it need its snapshot any more.
    bench.snapshot = None;
    assert_eq!(bench.decide().vm_status.unwrap()["status"]["restoreInProgress"], Value::Null);
    bench.vm.as_mut().unwrap().status = None;
    assert_eq!(bench.decide().status.unwrap()["status"]["complete"], true);
}

#[test]
fn a_new_vm_owns_its_data_volumes_and_they_say_which_claim_they_have() {
    let mut bench = Bench::new(&json!({})).restores("restore-u-d").claim("restore-u-d", true, "Bound");
    let filled = BTreeMap::from([
        (annotation::LAST_RESTORE_UID.to_owned(), "r-u".to_owned()),
        (annotation::POPULATED_FOR.to_owned(), "restore-u-d".to_owned()),
    ]);
    bench.claims[0].metadata.annotations = Some(filled);
    bench.restore.status.as_mut().unwrap().restores.as_mut().unwrap()[0].data_volume_name = Some("restore-u-d".into());
    let spec = bench.content.as_mut().unwrap().spec.source.virtual_machine.as_mut().unwrap().spec.as_mut().unwrap();
    spec.data_volume_templates = read(json!([{ "metadata": { "name": "c" }, "spec": { "source": { "blank": {} } } }]));
    let volume = json!([{ "name": "d", "dataVolume": { "name": "c" } }]);
    spec.template.spec.as_mut().unwrap().volumes = read(volume);
    let made = bench.decide().data_volumes.remove(0);
    assert_eq!(made.metadata.name.as_deref(), Some("restore-u-d"));
    let annotations = made.metadata.annotations.clone().unwrap();
    assert_eq!(annotations[annotation::PRE_POPULATED], "restore-u-d");
    assert_eq!(annotations[annotation::RESTORE_NAME], "r");

    let mut restored = vm("w");
    restored["metadata"]["annotations"] = json!({ annotation::LAST_RESTORE_UID: "r-u" });
    restored["spec"]["dataVolumeTemplates"] = json!([{ "metadata": { "name": "dv" }, "spec": {} }]);
    bench.vm = Some(read(restored));
    bench.data_volume = Some(DataVolume { metadata: ObjectMeta { name: Some("dv".into()), ..made.metadata }, ..made });
    let patches = bench.decide().data_volume_patches;
    assert_eq!(patches[0].1["metadata"]["ownerReferences"][0]["uid"], "w");
}

fn instance() -> VirtualMachineInstance {
    let spec = json!({ "domain": { "devices": {} } });
    read(json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "spec": spec }))
}

proptest! {
    /// Whatever there is: a claim goes only in place, only if it is the target's own, which the snapshot is of, only if nobody
    /// uses it, and only if its copy is whole and stays; and nothing of a VM is touched while it runs.
    #[test]
    fn no_bytes_are_lost_and_nothing_runs_meanwhile(
        policy in prop::sample::select(vec!["InPlace", "RandomizeNames", "PrefixTargetName"]),
        (exists, runs, locks, used) in any::<(bool, bool, bool, bool)>(),
        copy in prop::sample::select(vec!["whole", "missing", "not ready", "going"]),
        (mine, known, going) in any::<(bool, bool, bool)>(),
        phase in prop::sample::select(vec!["Bound", "Pending", "Lost"]),
        name in prop::sample::select(vec!["c", "restore-u-d", "v-d"]),
        owner in prop::sample::select(vec!["nobody", "v", "another VM", "a set", "its data volume", "another data volume"]),
        target in prop::sample::select(vec!["v", "w"]),
        uid in prop::sample::select(vec!["v", "another"]),
    ) {
        let mut bench = Bench::new(&json!({ "volumeRestorePolicy": policy })).claim(name, mine, phase);
        bench.restore.spec.target.name = target.to_owned();
        match owner {
            "v" => bench.owner("VirtualMachine", "v", "v"),
            "another VM" => bench.owner("VirtualMachine", "x", "x"),
            "a set" => bench.owner("ReplicaSet", "c", "c"),
            "its data volume" => bench.owner("DataVolume", "c", "c"),
            "another data volume" => bench.owner("DataVolume", "x", "x"),
            _ => {}
        }
        if exists {
            bench = bench.vm(uid, &if locks { locked() } else { json!({}) });
        }
        if runs {
            bench.vmi = Some(instance());
        }
        bench.used = used;
        let at = || read(json!("1970-01-01T00:00:00Z"));
        match copy {
            "missing" => bench.copy = None,
            "not ready" => bench.copy.as_mut().unwrap().status.as_mut().unwrap().ready_to_use = None,
            "going" => bench.copy.as_mut().unwrap().metadata.deletion_timestamp = at(),
            _ => {}
        }
        if known {
            let claim = names::restored(&bench.restore, "d", "c");
            bench = bench.restores(&claim);
        }
        if going {
            bench.snapshot.as_mut().unwrap().metadata.deletion_timestamp = at();
        }
        let plan = bench.decide();
        prop_assert_eq!(&plan, &bench.decide());
        if !plan.replace.is_empty() {
            prop_assert!(policy == "InPlace" && copy == "whole" && !mine && name == "c" && known);
            prop_assert!(exists && uid == "v" && target == "v" && locks && !runs && !used);
            prop_assert!(matches!(owner, "nobody" | "v" | "its data volume"));
        }
        if going && !known {
            prop_assert!(plan.vm_status.is_none() && plan.claims.is_empty() && plan.create.is_none());
        }
        if exists && (runs || !locks) {
            prop_assert!(plan.vm.is_none() && plan.claims.is_empty() && plan.replace.is_empty());
        }
        prop_assert!(!(exists && plan.create.is_some()));
    }
}
