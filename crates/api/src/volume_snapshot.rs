//! VolumeSnapshot, VolumeSnapshotContent and VolumeSnapshotClass of Kubernetes' CSI snapshots, as far as we use them.
//!
//! On a cluster the snapshot controller and a CSI driver serve them; on one machine, the node's own storage does.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::resource::resource;
use crate::schema;

/// Annotation of the class that snapshots get that name none.
pub const DEFAULT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";

/// A copy of a claim's bytes at one moment, as a user asks for it.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VolumeSnapshot {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// What is copied, and by which class.
    pub spec: VolumeSnapshotSpec,
    /// Whether the copy can be used.
    pub status: Option<VolumeSnapshotStatus>,
}

resource!(VolumeSnapshot is namespaced "volumesnapshots" of "snapshot.storage.k8s.io" in "v1" with { spec, status });

/// What is copied, and by which class.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSpec {
    /// The claim, or a copy that exists already.
    pub source: VolumeSnapshotSource,
    /// Class of the snapshot; the default class of the claim's driver if unset.
    pub volume_snapshot_class_name: Option<String>,
}

/// Origin of a snapshot; set exactly one member.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotSource {
    /// Claim in the same namespace that is copied.
    pub persistent_volume_claim_name: Option<String>,
    /// Content that exists already.
    pub volume_snapshot_content_name: Option<String>,
}

/// Whether a snapshot can be used.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotStatus {
    /// Content that holds the copy; a snapshot is valid only if that content names it, too.
    pub bound_volume_snapshot_content_name: Option<String>,
    /// When the copy was made.
    #[schemars(with = "Option<schema::Time>")]
    pub creation_time: Option<Time>,
    /// Whether a claim can be made from it.
    pub ready_to_use: Option<bool>,
    /// Least size of a claim that is made from it.
    #[schemars(with = "Option<schema::IntOrString>")]
    pub restore_size: Option<Quantity>,
    /// Most recent failure, if any.
    pub error: Option<VolumeSnapshotError>,
}

/// Why a snapshot could not be made so far.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VolumeSnapshotError {
    /// What went wrong, as the driver says.
    pub message: Option<String>,
    /// When it went wrong.
    #[schemars(with = "Option<schema::Time>")]
    pub time: Option<Time>,
}

/// A copy of a volume's bytes, as the driver has it.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VolumeSnapshotContent {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Which snapshot it belongs to, and what is copied.
    pub spec: VolumeSnapshotContentSpec,
    /// What the driver made.
    pub status: Option<VolumeSnapshotContentStatus>,
}

resource!(VolumeSnapshotContent is cluster "volumesnapshotcontents" of "snapshot.storage.k8s.io" in "v1" with { spec, status });

/// Which snapshot a content belongs to, and what is copied.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSpec {
    /// Delete or Retain: what happens to the copy when its snapshot goes.
    pub deletion_policy: String,
    /// Driver that makes and keeps the copy.
    pub driver: String,
    /// What is copied, in the driver's own names.
    pub source: VolumeSnapshotContentSource,
    /// Class that the snapshot asked for.
    pub volume_snapshot_class_name: Option<String>,
    /// Snapshot that this content is bound to.
    #[schemars(with = "schema::ObjectReference")]
    pub volume_snapshot_ref: ObjectReference,
    /// Filesystem or Block, as the volume that was copied.
    pub source_volume_mode: Option<String>,
}

/// What a content is copied from; set exactly one member.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentSource {
    /// Volume that is copied, as its driver calls it.
    pub volume_handle: Option<String>,
    /// Copy that exists already, as its driver calls it.
    pub snapshot_handle: Option<String>,
}

/// What the driver made.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContentStatus {
    /// When the copy was made, in nanoseconds since 1970.
    pub creation_time: Option<i64>,
    /// Whether a claim can be made from it.
    pub ready_to_use: Option<bool>,
    /// Least size of a claim that is made from it, in bytes.
    pub restore_size: Option<i64>,
    /// The copy, as its driver calls it.
    pub snapshot_handle: Option<String>,
    /// Most recent failure, if any.
    pub error: Option<VolumeSnapshotError>,
}

/// How snapshots of one driver's volumes are made.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VolumeSnapshotClass {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Driver that makes the snapshots; that of the claim's storage class.
    pub driver: String,
    /// Delete or Retain: what happens to a copy when its snapshot goes.
    pub deletion_policy: String,
    /// Settings that only the driver understands.
    pub parameters: Option<BTreeMap<String, String>>,
}

resource!(VolumeSnapshotClass is cluster "volumesnapshotclasses" of "snapshot.storage.k8s.io" in "v1" with { driver, deletion_policy, parameters });
