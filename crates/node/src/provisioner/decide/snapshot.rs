//! What is to be done about one VolumeSnapshot, and about one VolumeSnapshotContent. Pure.

use api::quantity::Amount;
use api::volume_snapshot::{
    VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, VolumeSnapshotError, VolumeSnapshotStatus,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::{is_bound, is_complete};
use crate::provisioner::NAME;

/// Keep a snapshot as long as it has a content, and as long as claims are made from it.
pub(in crate::provisioner) const SNAPSHOT_PROTECTION: [&str; 2] = [
    "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection",
    "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection",
];
/// Keeps a content until its bytes are gone.
pub(in crate::provisioner) const CONTENT_PROTECTION: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";

/// What is known of a snapshot's surroundings.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::provisioner) struct AroundSnapshot<'a> {
    /// The class that it names, or the default of ours.
    pub(in crate::provisioner) class: Option<&'a VolumeSnapshotClass>,
    /// The content that it names, or that was made for it.
    pub(in crate::provisioner) content: Option<&'a VolumeSnapshotContent>,
    /// The claim that it names.
    pub(in crate::provisioner) claim: Option<&'a PersistentVolumeClaim>,
    /// That claim's volume, if it is ours.
    pub(in crate::provisioner) volume: Option<&'a PersistentVolume>,
    /// A claim is being made from it.
    pub(in crate::provisioner) restores: bool,
}

/// What to do about a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::provisioner) enum SnapshotPlan {
    Nothing,
    /// It gets its finalizers, and its class by name.
    Protect {
        class: Option<String>,
    },
    /// A content is to be made for it, of this volume.
    Content {
        volume: String,
    },
    /// A content that was there before is told whose it is.
    Bind,
    Status(VolumeSnapshotStatus),
    DeleteContent,
    /// It may go.
    Release,
}

/// The name of the content that is made for a snapshot.
pub(in crate::provisioner) fn content_name(snapshot: &VolumeSnapshot) -> String {
    let named = snapshot.spec.source.volume_snapshot_content_name.clone();
    named.unwrap_or_else(|| format!("snapcontent-{}", snapshot.metadata.uid.as_deref().unwrap_or_default()))
}

/// Guarantees: a content is made once, of a volume of ours; a snapshot goes after its content, unless that is to be kept; and
/// the status says what the content says, or why there is none.
pub(in crate::provisioner) fn snapshot(
    snapshot: &VolumeSnapshot,
    around: AroundSnapshot<'_>,
    now: Timestamp,
) -> SnapshotPlan {
    let content = around.content.filter(|content| is_of(content, snapshot));
    if snapshot.metadata.deletion_timestamp.is_some() {
        return going(snapshot, content, around.restores);
    }
    let source = &snapshot.spec.source;
    let fails = |message: String| failed(snapshot, message, now);
    // What another driver has is its own snapshot controller's.
    let driver = around.content.map(|content| content.spec.driver.as_str());
    if driver.or(around.class.map(|class| class.driver.as_str())).is_some_and(|driver| driver != NAME) {
        return SnapshotPlan::Nothing;
    }
    let named = snapshot.spec.volume_snapshot_class_name.as_deref();
    let class = match (around.class, named) {
        (Some(class), None) if source.volume_snapshot_content_name.is_none() => Some(class.name_any()),
        _ => None,
    };
    if class.is_some() || SNAPSHOT_PROTECTION.iter().any(|one| !snapshot.finalizers().iter().any(|has| has == one)) {
        return SnapshotPlan::Protect { class };
    }
    match (around.content, &source.persistent_volume_claim_name, &source.volume_snapshot_content_name) {
        (Some(content), ..) if is_of(content, snapshot) => mirror(snapshot, content),
        (Some(content), _, Some(_)) if is_for(content, snapshot) => SnapshotPlan::Bind,
        (Some(content), ..) => {
            fails(format!("the VolumeSnapshotContent {} belongs to another snapshot", content.name_any()))
        }
        (None, _, Some(name)) => fails(format!("the VolumeSnapshotContent {name} does not exist")),
        (None, Some(claim), None) => match (around.class, around.claim, around.volume) {
            (None, ..) => fails(match named {
                Some(named) => format!("the VolumeSnapshotClass {named} does not exist"),
                None => "there is no default VolumeSnapshotClass; set spec.volumeSnapshotClassName".to_owned(),
            }),
            (_, None, _) => fails(format!("the PersistentVolumeClaim {claim} does not exist")),
            (_, Some(found), _) if !is_bound(found) => {
                fails(format!("the PersistentVolumeClaim {claim} is not bound yet"))
            }
            (_, Some(found), _) if !is_complete(found) => {
                fails(format!("the PersistentVolumeClaim {claim} does not have its data yet"))
            }
            (_, _, None) => fails(format!("the PersistentVolumeClaim {claim} has a volume of another provisioner")),
            (Some(_), Some(_), Some(volume)) => SnapshotPlan::Content { volume: volume.name_any() },
        },
        (None, None, None) => {
            fails("spec.source: set persistentVolumeClaimName or volumeSnapshotContentName".to_owned())
        }
    }
}

fn going(snapshot: &VolumeSnapshot, content: Option<&VolumeSnapshotContent>, restores: bool) -> SnapshotPlan {
    let deletes =
        |content: &&VolumeSnapshotContent| content.spec.deletion_policy == "Delete" && content.spec.driver == NAME;
    match content.filter(deletes) {
        _ if restores => SnapshotPlan::Nothing,
        Some(content) if content.metadata.deletion_timestamp.is_none() => SnapshotPlan::DeleteContent,
        // It goes when its bytes are gone.
        Some(_) => SnapshotPlan::Nothing,
        None if snapshot.finalizers().iter().any(|one| SNAPSHOT_PROTECTION.contains(&one.as_str())) => {
            SnapshotPlan::Release
        }
        None => SnapshotPlan::Nothing,
    }
}

fn failed(snapshot: &VolumeSnapshot, message: String, now: Timestamp) -> SnapshotPlan {
    let known = snapshot.status.as_ref().and_then(|status| status.error.as_ref()?.message.as_ref());
    if known == Some(&message) {
        return SnapshotPlan::Nothing;
    }
    let error = VolumeSnapshotError { message: Some(message), time: Some(manager::writing::whole_second(now)) };
    let status = snapshot.status.clone().unwrap_or_default();
    SnapshotPlan::Status(VolumeSnapshotStatus { ready_to_use: Some(false), error: Some(error), ..status })
}

/// What the content says, as the snapshot says it.
fn mirror(snapshot: &VolumeSnapshot, content: &VolumeSnapshotContent) -> SnapshotPlan {
    let told = content.status.clone().unwrap_or_default();
    let size = told.restore_size.and_then(|size| u64::try_from(size).ok());
    let made = told.creation_time.and_then(|nanoseconds| Timestamp::from_nanosecond(nanoseconds.into()).ok());
    let wanted = VolumeSnapshotStatus {
        bound_volume_snapshot_content_name: Some(content.name_any()),
        creation_time: made.map(manager::writing::whole_second),
        ready_to_use: Some(told.ready_to_use.unwrap_or(false)),
        restore_size: size.map(|size| (&api::quantity::Quantity::from(Amount::bytes(size))).into()),
        error: told.error,
    };
    if snapshot.status.as_ref() == Some(&wanted) { SnapshotPlan::Nothing } else { SnapshotPlan::Status(wanted) }
}

/// Whether a content is bound to a snapshot.
fn is_of(content: &VolumeSnapshotContent, snapshot: &VolumeSnapshot) -> bool {
    let uid = &content.spec.volume_snapshot_ref.uid;
    is_for(content, snapshot) && uid.is_some() && *uid == snapshot.metadata.uid
}

/// Whether a content is a snapshot's, or may become it.
fn is_for(content: &VolumeSnapshotContent, snapshot: &VolumeSnapshot) -> bool {
    let owner = &content.spec.volume_snapshot_ref;
    let same = owner.name == snapshot.metadata.name && owner.namespace == snapshot.metadata.namespace;
    same && owner.uid.as_ref().is_none_or(|uid| Some(uid) == snapshot.metadata.uid.as_ref())
}

/// What to do about a content.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::provisioner) enum ContentPlan {
    Nothing,
    Protect,
    /// The bytes of this volume are to be copied under this name.
    Take {
        volume: String,
        handle: String,
    },
    /// They should be there already.
    Find {
        handle: String,
    },
    /// The bytes go, then the content.
    Remove {
        handle: Option<String>,
    },
    /// It may go, and the bytes stay.
    Release,
}

/// `snapshot` is the one that it is bound to, if that is still there.
pub(in crate::provisioner) fn content(
    content: &VolumeSnapshotContent,
    snapshot: Option<&VolumeSnapshot>,
) -> ContentPlan {
    let spec = &content.spec;
    if spec.driver != NAME {
        return ContentPlan::Nothing;
    }
    let status = content.status.as_ref();
    let held = content.finalizers().iter().any(|one| one == CONTENT_PROTECTION);
    // The same name every time it is tried.
    let own = || spec.volume_snapshot_ref.uid.as_ref().map(|uid| format!("snapshot-{uid}"));
    let handle =
        status.and_then(|status| status.snapshot_handle.clone()).or_else(|| spec.source.snapshot_handle.clone());
    if content.metadata.deletion_timestamp.is_some() {
        let needed = snapshot.is_some_and(|snapshot| snapshot.metadata.deletion_timestamp.is_none());
        return match spec.deletion_policy.as_str() {
            _ if needed || !held => ContentPlan::Nothing,
            "Delete" => ContentPlan::Remove { handle: handle.or_else(own) },
            _ => ContentPlan::Release,
        };
    }
    if status.is_some_and(|status| status.ready_to_use == Some(true)) {
        return ContentPlan::Nothing;
    }
    if !held {
        return ContentPlan::Protect;
    }
    match (&spec.source.volume_handle, handle, own()) {
        (Some(volume), _, Some(handle)) => ContentPlan::Take { volume: volume.clone(), handle },
        (None, Some(handle), _) => ContentPlan::Find { handle },
        _ => ContentPlan::Nothing,
    }
}

/// The time of a copy, as contents have it.
pub(in crate::provisioner) fn nanoseconds(time: std::time::SystemTime) -> Option<i64> {
    Timestamp::try_from(time).ok().and_then(|time| i64::try_from(time.as_nanosecond()).ok())
}

/// When something failed, as contents have it.
pub(in crate::provisioner) fn error(message: String, now: Timestamp) -> VolumeSnapshotError {
    VolumeSnapshotError { message: Some(message), time: Some(Time(now)) }
}

#[cfg(test)]
mod tests;
