//! What is decided about snapshots of volumes and their contents.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn snapshot_of(source: &Value, more: &Value) -> VolumeSnapshot {
    let mut whole = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": { "name": "s", "namespace": "n", "uid": "u", "finalizers": SNAPSHOT_PROTECTION },
        "spec": { "source": source, "volumeSnapshotClassName": "k" },
    });
    json_patch::merge(&mut whole, more);
    read(whole)
}

fn content_of(policy: &str, more: &Value) -> VolumeSnapshotContent {
    let owner = json!({ "name": "s", "namespace": "n", "uid": "u" });
    let mut whole = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": { "name": "snapcontent-u", "finalizers": [CONTENT_PROTECTION] },
        "spec": {
            "deletionPolicy": policy, "driver": NAME, "source": { "volumeHandle": "v" }, "volumeSnapshotRef": owner,
        },
    });
    json_patch::merge(&mut whole, more);
    read(whole)
}

fn class() -> VolumeSnapshotClass {
    read(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": { "name": "k" },
        "driver": NAME, "deletionPolicy": "Delete",
    }))
}

fn bound(populated: &str) -> PersistentVolumeClaim {
    let metadata = json!({ "name": "c", "annotations": { "orlop.dev/populated": populated } });
    read(json!({ "metadata": metadata, "status": { "phase": "Bound" } }))
}

fn going() -> Value {
    json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } })
}

fn decided(snapshot: &VolumeSnapshot, around: AroundSnapshot<'_>) -> SnapshotPlan {
    super::snapshot(snapshot, around, Timestamp::UNIX_EPOCH)
}

fn problem(plan: SnapshotPlan) -> String {
    let SnapshotPlan::Status(status) = plan else { panic!("{plan:?}") };
    assert_eq!(status.ready_to_use, Some(false));
    status.error.and_then(|error| error.message).unwrap_or_default()
}

#[test]
fn a_snapshot_gets_a_content_once_its_claim_is_whole() {
    let (class, whole, half) = (class(), bound("true"), bound("false"));
    let volume: PersistentVolume = read(json!({ "metadata": { "name": "v" } }));
    let unbound: PersistentVolumeClaim = read(json!({ "metadata": { "name": "c" }, "status": { "phase": "Pending" } }));
    let open = snapshot_of(&json!({ "persistentVolumeClaimName": "c" }), &json!({}));
    let around =
        AroundSnapshot { class: Some(&class), claim: Some(&whole), volume: Some(&volume), ..Default::default() };
    assert_eq!(decided(&open, around), SnapshotPlan::Content { volume: "v".to_owned() });
    let cases = [
        (AroundSnapshot { claim: None, ..around }, "the PersistentVolumeClaim c does not exist"),
        (AroundSnapshot { claim: Some(&unbound), ..around }, "the PersistentVolumeClaim c is not bound yet"),
        (AroundSnapshot { claim: Some(&half), ..around }, "the PersistentVolumeClaim c does not have its data yet"),
        (AroundSnapshot { volume: None, ..around }, "the PersistentVolumeClaim c has a volume of another provisioner"),
        (AroundSnapshot { class: None, ..around }, "the VolumeSnapshotClass k does not exist"),
    ];
    for (around, expected) in cases {
        let plan = decided(&open, around);
        assert_eq!(problem(plan.clone()), expected);
        // It is told once.
        let SnapshotPlan::Status(status) = plan else { panic!() };
        assert_eq!(decided(&VolumeSnapshot { status: Some(status), ..open.clone() }, around), SnapshotPlan::Nothing);
    }
    let bare =
        snapshot_of(&json!({ "persistentVolumeClaimName": "c" }), &json!({ "metadata": { "finalizers": null } }));
    assert_eq!(decided(&bare, around), SnapshotPlan::Protect { class: None });
}

#[test]
fn a_content_that_was_there_before_is_bound_to_the_snapshot_that_names_it() {
    let named = snapshot_of(&json!({ "volumeSnapshotContentName": "old" }), &json!({}));
    let old = |owner: Value| {
        content_of("Retain", &json!({ "metadata": { "name": "old" }, "spec": { "volumeSnapshotRef": owner } }))
    };
    let plan =
        |content: Option<&VolumeSnapshotContent>| decided(&named, AroundSnapshot { content, ..Default::default() });
    assert_eq!(plan(Some(&old(json!({ "uid": null })))), SnapshotPlan::Bind);
    assert!(problem(plan(Some(&old(json!({ "uid": "x" }))))).contains("belongs to another snapshot"));
    assert_eq!(problem(plan(None)), "the VolumeSnapshotContent old does not exist");
    let found = content_of("Retain", &json!({ "spec": { "source": { "volumeHandle": null, "snapshotHandle": "h" } } }));
    assert_eq!(content(&found, Some(&named)), ContentPlan::Find { handle: "h".to_owned() });
}

#[test]
fn a_snapshot_says_what_its_content_says() {
    let open = snapshot_of(&json!({ "persistentVolumeClaimName": "c" }), &json!({}));
    let told = json!({ "status": { "readyToUse": true, "restoreSize": 4096, "creationTime": 9_000_000_000_u64 } });
    let ready = content_of("Delete", &told);
    let around = AroundSnapshot { content: Some(&ready), ..Default::default() };
    let SnapshotPlan::Status(status) = decided(&open, around) else { panic!() };
    assert_eq!((status.ready_to_use, bytes_of(&status)), (Some(true), Some("4Ki".to_owned())));
    assert_eq!(decided(&VolumeSnapshot { status: Some(status), ..open.clone() }, around), SnapshotPlan::Nothing);
    let failed = content_of("Delete", &json!({ "status": { "readyToUse": false, "error": { "message": "full" } } }));
    assert_eq!(problem(decided(&open, AroundSnapshot { content: Some(&failed), ..Default::default() })), "full");
}

fn bytes_of(status: &VolumeSnapshotStatus) -> Option<String> {
    status.restore_size.as_ref().map(|size| size.0.clone())
}

/// Whoever was killed between copy and status makes the same copy again, under the same name.
#[test]
fn a_copy_is_made_under_one_name_until_it_is_told_of() {
    let open = content_of("Delete", &json!({}));
    let take = ContentPlan::Take { volume: "v".to_owned(), handle: "snapshot-u".to_owned() };
    assert_eq!(content(&open, None), take);
    let failed = content_of("Delete", &json!({ "status": { "readyToUse": false, "error": { "message": "full" } } }));
    assert_eq!(content(&failed, None), take);
    let told = content_of("Delete", &json!({ "status": { "readyToUse": true, "snapshotHandle": "snapshot-u" } }));
    assert_eq!(content(&told, None), ContentPlan::Nothing);
    let bare = content_of("Delete", &json!({ "metadata": { "finalizers": null } }));
    assert_eq!(content(&bare, None), ContentPlan::Protect);
    assert_eq!(content(&content_of("Delete", &json!({ "spec": { "driver": "other" } })), None), ContentPlan::Nothing);
}

proptest! {
    /// A snapshot goes after its content, unless that is to be kept; nothing of it goes while a claim is made from it; and bytes
    /// go only with a content that says so.
    #[test]
    fn what_is_deleted_goes_in_order(
        restores: bool,
        (exists, content_going, held) in any::<(bool, bool, bool)>(),
        policy in prop::sample::select(vec!["Delete", "Retain"]),
        others: bool,
    ) {
        let going_snapshot = snapshot_of(&json!({ "persistentVolumeClaimName": "c" }), &going());
        let mut more = if content_going { going() } else { json!({}) };
        if others {
            more["spec"] = json!({ "volumeSnapshotRef": { "uid": "x" } });
        }
        if !held {
            more["metadata"]["finalizers"] = Value::Null;
        }
        let of_it = content_of(policy, &more);
        let around = AroundSnapshot { content: exists.then_some(&of_it), restores, ..Default::default() };
        let has = exists && !others && policy == "Delete";
        match decided(&going_snapshot, around) {
            SnapshotPlan::DeleteContent => prop_assert!(has && !content_going && !restores),
            SnapshotPlan::Release => prop_assert!(!has && !restores),
            SnapshotPlan::Nothing => prop_assert!(restores || has && content_going),
            other => prop_assert!(false, "{:?}", other),
        }
        let open = snapshot_of(&json!({ "persistentVolumeClaimName": "c" }), &json!({}));
        for needs in [None, Some(&open), Some(&going_snapshot)] {
            let needed = needs.is_some_and(|one| one.metadata.deletion_timestamp.is_none());
            match content(&of_it, needs) {
                ContentPlan::Remove { handle } => {
                    prop_assert!(content_going && held && policy == "Delete" && !needed && handle.is_some());
                }
                ContentPlan::Release => prop_assert!(content_going && held && policy == "Retain" && !needed),
                ContentPlan::Nothing => prop_assert!(content_going && (needed || !held)),
                _ => prop_assert!(!content_going),
            }
        }
    }
}
