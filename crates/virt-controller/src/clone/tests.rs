//! What is decided about clones.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn clone(kind: &str, status: &Value) -> Clone_ {
    read(json!({
        "apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone",
        "metadata": { "name": "c", "namespace": "n", "uid": "u" },
        "spec": { "source": { "kind": kind, "name": "v" }, "target": { "kind": "VirtualMachine", "name": "t" } },
        "status": status,
    }))
}

fn vm() -> VirtualMachine {
    read(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "v" },
        "spec": { "template": { "spec": { "domain": { "devices": {} } } } },
    }))
}

fn snapshot(ready: bool) -> Snapshot {
    read(json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot", "metadata": { "name": "tmp-snapshot-u" },
        "spec": { "source": { "kind": "VirtualMachine", "name": "v" } }, "status": { "readyToUse": ready },
    }))
}

fn content() -> Content {
    read(json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshotContent",
        "spec": { "source": { "virtualMachine": { "metadata": { "name": "v" }, "spec": vm().spec } } },
    }))
}

fn restore(status: &Value) -> Restore {
    read(json!({
        "apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": { "name": "tmp-restore-u" },
        "spec": { "target": { "kind": "VirtualMachine", "name": "t" }, "virtualMachineSnapshotName": "tmp-snapshot-u" },
        "status": status,
    }))
}

fn nothing(clone: &Clone_) -> Observed<'_> {
    Observed {
        clone,
        source: None,
        snapshot: None,
        content: None,
        restore: None,
        target: None,
        claims: BTreeMap::new(),
        failure: None,
    }
}

fn phase_after(seen: &Observed<'_>) -> String {
    let plan = decide(seen, Timestamp::UNIX_EPOCH);
    let told = plan.status.map(|status| status["status"]["phase"].clone()).unwrap_or_default();
    told.as_str().unwrap_or(phase(seen.clone).as_str()).to_owned()
}

#[test]
fn each_phase_follows_from_what_is_seen() {
    let (vm, content) = (vm(), content());
    let (young, ready) = (snapshot(false), snapshot(true));
    let (begun, done) = (restore(&json!({})), restore(&json!({ "complete": true })));
    let failed = restore(&json!({ "conditions": [{ "type": "Failure", "status": "True" }] }));
    let new = clone("VirtualMachine", &json!({}));
    assert_eq!(phase_after(&nothing(&new)), "");
    let plan = decide(&Observed { source: Some(&vm), ..nothing(&new) }, Timestamp::UNIX_EPOCH);
    assert_eq!(plan.snapshot.unwrap().metadata.name.unwrap(), "tmp-snapshot-u");
    let taking = clone("VirtualMachine", &json!({ "phase": "SnapshotInProgress", "snapshotName": "tmp-snapshot-u" }));
    let seen = |snapshot| Observed { source: Some(&vm), snapshot, content: Some(&content), ..nothing(&taking) };
    assert_eq!(phase_after(&seen(Some(&young))), "SnapshotInProgress");
    assert_eq!(phase_after(&seen(Some(&ready))), "RestoreInProgress");
    assert_eq!(phase_after(&seen(None)), "Failed");
    let names =
        json!({ "phase": "RestoreInProgress", "snapshotName": "tmp-snapshot-u", "restoreName": "tmp-restore-u" });
    let restoring = clone("VirtualMachine", &names);
    let seen = |restore| Observed { snapshot: Some(&ready), content: Some(&content), restore, ..nothing(&restoring) };
    assert_eq!(phase_after(&seen(Some(&begun))), "RestoreInProgress");
    assert_eq!(phase_after(&seen(Some(&done))), "CreatingTargetVM");
    assert_eq!(phase_after(&seen(Some(&failed))), "Failed");
    let creating = clone("VirtualMachine", &json!({ "phase": "CreatingTargetVM" }));
    assert_eq!(phase_after(&nothing(&creating)), "CreatingTargetVM");
    assert_eq!(phase_after(&Observed { target: Some(&vm), ..nothing(&creating) }), "Succeeded");
    let orphan = clone("VirtualMachine", &json!({ "phase": "Succeeded" }));
    assert!(decide(&nothing(&orphan), Timestamp::UNIX_EPOCH).delete.is_some());
}

proptest! {
    #[test]
    fn a_source_is_never_deleted_and_an_end_stays(
        kind in prop::sample::select(vec!["VirtualMachine", "VirtualMachineSnapshot"]),
        phase in prop::sample::select(vec!["", "SnapshotInProgress", "RestoreInProgress", "CreatingTargetVM", "Succeeded", "Failed"]),
        has_vm: bool, has_snapshot: bool, has_content: bool, has_restore: bool, has_target: bool, complete: bool, named: bool,
    ) {
        let names = if named { json!({ "snapshotName": "tmp-snapshot-u", "restoreName": "tmp-restore-u" }) } else { json!({}) };
        let mut status = names;
        status["phase"] = json!(phase);
        let clone = clone(kind, &status);
        let (vm, snapshot, content) = (vm(), snapshot(true), content());
        let restore = restore(&json!({ "complete": complete }));
        let seen = Observed {
            source: has_vm.then_some(&vm),
            snapshot: has_snapshot.then_some(&snapshot),
            content: has_content.then_some(&content),
            restore: has_restore.then_some(&restore),
            target: has_target.then_some(&vm),
            ..nothing(&clone)
        };
        let plan = decide(&seen, Timestamp::UNIX_EPOCH);
        prop_assert_eq!(&plan, &decide(&seen, Timestamp::UNIX_EPOCH));
        if kind == "VirtualMachineSnapshot" {
            prop_assert!(plan.delete_snapshot.is_none() && plan.snapshot.is_none());
        }
        if phase == "Failed" {
            prop_assert_eq!(&plan, &ClonePlan::default());
        }
        if plan.delete_snapshot.is_some() || plan.delete.is_some() {
            prop_assert_eq!(phase, "Succeeded");
        }
    }
}
