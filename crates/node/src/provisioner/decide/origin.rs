//! Where the bytes of a new claim come from. Pure.

use api::volume_snapshot::{VolumeSnapshot, VolumeSnapshotContent};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;

use super::{bytes, is_bound, is_complete, requested};

const SNAPSHOTS: &str = "snapshot.storage.k8s.io";

/// What a claim names as its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::provisioner) enum Named {
    Snapshot(String),
    Claim(String),
    /// A kind that nothing here is made from, or a namespace that is not the claim's.
    Unsupported(String),
}

/// What the bytes are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::provisioner) enum Origin {
    Empty,
    Volume(String),
    Snapshot(String),
    /// Not yet, for this reason.
    Waits(String),
    /// Never, for this reason.
    Refused(String),
}

/// The source that a claim names, if it names one. `dataSourceRef` goes first, as the more exact of both.
pub(in crate::provisioner) fn named(claim: &PersistentVolumeClaim) -> Option<Named> {
    let spec = claim.spec.as_ref()?;
    let own = claim.metadata.namespace.as_deref().unwrap_or_default();
    let (path, group, kind, name) = if let Some(source) = &spec.data_source_ref {
        if let Some(namespace) = source.namespace.as_deref().filter(|namespace| *namespace != own) {
            let why = "a claim is copied only within its namespace; make it there";
            return Some(Named::Unsupported(format!(
                "spec.dataSourceRef.namespace: {namespace:?} is not {own:?}; {why}"
            )));
        }
        ("spec.dataSourceRef", source.api_group.as_deref(), source.kind.as_str(), source.name.as_str())
    } else {
        let source = spec.data_source.as_ref()?;
        ("spec.dataSource", source.api_group.as_deref(), source.kind.as_str(), source.name.as_str())
    };
    Some(match (group.unwrap_or_default(), kind) {
        (SNAPSHOTS, "VolumeSnapshot") => Named::Snapshot(name.to_owned()),
        ("", "PersistentVolumeClaim") => Named::Claim(name.to_owned()),
        _ => {
            let use_one = "use a VolumeSnapshot or a PersistentVolumeClaim";
            Named::Unsupported(format!(
                "{path}.kind: {kind:?} of {:?} is not supported; {use_one}",
                group.unwrap_or_default()
            ))
        }
    })
}

/// A claim made from a snapshot. The content is the one that the snapshot is bound to.
pub(in crate::provisioner) fn of_snapshot(
    claim: &PersistentVolumeClaim,
    name: &str,
    snapshot: Option<&VolumeSnapshot>,
    content: Option<&VolumeSnapshotContent>,
) -> Origin {
    let Some(snapshot) = snapshot else { return Origin::Waits(format!("the VolumeSnapshot {name} does not exist")) };
    let is_its_own = |content: &&VolumeSnapshotContent| content.spec.volume_snapshot_ref.uid == snapshot.metadata.uid;
    let content = content.filter(is_its_own).filter(|content| content.metadata.deletion_timestamp.is_none());
    // One that is to go waits for the claims that are made from it, and its bytes stay as long.
    if snapshot.metadata.deletion_timestamp.is_some() && content.is_none() {
        return Origin::Refused(format!("the VolumeSnapshot {name} is being deleted"));
    }
    let status = snapshot.status.clone().unwrap_or_default();
    let handle = content.and_then(|content| content.status.as_ref()?.snapshot_handle.clone());
    let (Some(handle), Some(true)) = (handle, status.ready_to_use) else {
        return Origin::Waits(format!("the VolumeSnapshot {name} is not ready to use"));
    };
    if let Some(size) = status.restore_size.as_ref().filter(|size| bytes(size) > requested(claim)) {
        return too_small("VolumeSnapshot", name, &size.0);
    }
    Origin::Snapshot(handle)
}

/// A claim made from another. The volume is the one that this one is bound to, if it is ours.
pub(in crate::provisioner) fn of_claim(
    claim: &PersistentVolumeClaim,
    name: &str,
    source: Option<&PersistentVolumeClaim>,
    volume: Option<&PersistentVolume>,
) -> Origin {
    let Some(source) = source else { return Origin::Waits(format!("the PersistentVolumeClaim {name} does not exist")) };
    if source.metadata.deletion_timestamp.is_some() {
        return Origin::Refused(format!("the PersistentVolumeClaim {name} is being deleted"));
    }
    if !is_bound(source) {
        return Origin::Waits(format!("the PersistentVolumeClaim {name} is not bound yet"));
    }
    if !is_complete(source) {
        return Origin::Waits(format!("the PersistentVolumeClaim {name} does not have its data yet"));
    }
    let Some(volume) = volume else {
        return Origin::Refused(format!("the PersistentVolumeClaim {name} has a volume of another provisioner"));
    };
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    if let Some(size) = capacity.filter(|size| bytes(size) > requested(claim)) {
        return too_small("PersistentVolumeClaim", name, &size.0);
    }
    Origin::Volume(volume.name_any())
}

fn too_small(kind: &str, name: &str, size: &str) -> Origin {
    Origin::Refused(format!("spec.resources.requests.storage: ask for {size} or more, the size of the {kind} {name}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn claim(size: &str) -> PersistentVolumeClaim {
        let spec = json!({ "resources": { "requests": { "storage": size } } });
        read(json!({ "metadata": { "name": "c", "namespace": "n" }, "spec": spec }))
    }

    #[test]
    fn what_a_claim_names_is_found_or_refused_by_its_field() {
        let of = |spec: Value| named(&read(json!({ "metadata": { "name": "c", "namespace": "n" }, "spec": spec })));
        let snapshot = json!({ "apiGroup": SNAPSHOTS, "kind": "VolumeSnapshot", "name": "s" });
        let other = json!({ "kind": "PersistentVolumeClaim", "name": "o" });
        assert_eq!(of(json!({})), None);
        assert_eq!(of(json!({ "dataSource": snapshot })), Some(Named::Snapshot("s".to_owned())));
        assert_eq!(of(json!({ "dataSource": other })), Some(Named::Claim("o".to_owned())));
        let both = json!({ "dataSource": snapshot, "dataSourceRef": other });
        assert_eq!(of(both), Some(Named::Claim("o".to_owned())), "the more exact one");
        let refused = [
            (json!({ "dataSource": { "apiGroup": "a.b", "kind": "Book", "name": "o" } }), "spec.dataSource.kind"),
            (json!({ "dataSourceRef": { "kind": "Book", "name": "o" } }), "spec.dataSourceRef.kind"),
            (
                json!({ "dataSourceRef": { "kind": "PersistentVolumeClaim", "name": "o", "namespace": "m" } }),
                "spec.dataSourceRef.namespace",
            ),
        ];
        for (spec, field) in refused {
            let Some(Named::Unsupported(why)) = of(spec) else { panic!("{field}") };
            assert!(why.starts_with(field), "{why}");
        }
    }

    proptest! {
        /// What is not there yet is waited for; what can never be had is refused; and bytes are taken only of what is complete,
        /// stays, and fits.
        #[test]
        fn only_what_is_whole_is_copied(
            (exists, bound, going, owned) in any::<(bool, bool, bool, bool)>(),
            populated in prop::option::of(any::<bool>()),
            size in prop::sample::select(vec!["1Gi", "2Gi", "3Gi"]),
        ) {
            let annotations = populated.map(|is| json!({ "orlop.dev/populated": is.to_string() }));
            let going = going.then_some("2026-01-01T00:00:00Z");
            let source: PersistentVolumeClaim = read(json!({
                "metadata": { "name": "o", "annotations": annotations, "deletionTimestamp": going },
                "status": { "phase": if bound { "Bound" } else { "Pending" } },
            }));
            let volume = read(json!({ "metadata": { "name": "v" }, "spec": { "capacity": { "storage": "2Gi" } } }));
            let origin = of_claim(&claim(size), "o", exists.then_some(&source), owned.then_some(&volume));
            match origin {
                Origin::Volume(name) => {
                    prop_assert_eq!(name, "v");
                    prop_assert!(exists && bound && going.is_none() && owned && size != "1Gi" && populated != Some(false));
                }
                Origin::Waits(_) => prop_assert!(!exists || !bound || populated == Some(false)),
                Origin::Refused(_) => prop_assert!(exists && (going.is_some() || !owned || size == "1Gi")),
                other => prop_assert!(false, "{:?}", other),
            }
        }

        /// A snapshot that is to go is still a source as long as its bytes stay: whoever gave up a claim for it gets it back.
        #[test]
        fn only_bytes_that_stay_are_restored(
            (exists, ready, going) in any::<(bool, bool, bool)>(),
            content in prop::sample::select(vec!["none", "its own", "another's", "going", "without a handle"]),
            size in prop::sample::select(vec!["1Gi", "2Gi", "3Gi"]),
        ) {
            let at = |going: bool| going.then_some("2026-01-01T00:00:00Z");
            let snapshot: VolumeSnapshot = read(json!({
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": { "name": "s", "uid": "u", "deletionTimestamp": at(going) }, "spec": { "source": {} },
                "status": { "readyToUse": ready, "restoreSize": "2Gi" },
            }));
            let handle = (content != "without a handle").then_some("h");
            let uid = if content == "another's" { "x" } else { "u" };
            let held: VolumeSnapshotContent = read(json!({
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
                "metadata": { "name": "k", "deletionTimestamp": at(content == "going") },
                "spec": {
                    "deletionPolicy": "Delete", "driver": "d", "source": {}, "volumeSnapshotRef": { "name": "s", "uid": uid },
                },
                "status": { "snapshotHandle": handle },
            }));
            let held = (content != "none").then_some(&held);
            match of_snapshot(&claim(size), "s", exists.then_some(&snapshot), held) {
                Origin::Snapshot(handle) => {
                    prop_assert_eq!(handle, "h");
                    prop_assert!(exists && ready && content == "its own" && size != "1Gi");
                }
                Origin::Waits(_) => prop_assert!(!exists || !ready || content != "its own"),
                Origin::Refused(_) => {
                    let lost = going && !matches!(content, "its own" | "without a handle");
                    prop_assert!(exists && (lost || size == "1Gi"));
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
