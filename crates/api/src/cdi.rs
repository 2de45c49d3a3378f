//! What the Containerized Data Importer has beside DataVolumes: names for data, and how claims are made from which class.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::conditions::ConditionStatus;
use crate::data_volume::{DataVolumeSourcePVC, DataVolumeSourceSnapshot};
use crate::nullable::Nullable;
use crate::resource::resource;
use crate::schema;

/// A name for data that DataVolumes are copied from.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct DataSource {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// Which data it stands for.
    pub spec: DataSourceSpec,
    /// Whether that data is there.
    pub status: Option<DataSourceStatus>,
}

resource!(DataSource is namespaced "datasources" of "cdi.kubevirt.io" in "v1beta1" with { spec, status });

/// Which data a DataSource stands for.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataSourceSpec {
    /// A claim, a snapshot or another DataSource.
    pub source: DataSourceSource,
}

/// The data behind a DataSource; set exactly one member.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataSourceSource {
    /// Another name for the same data.
    pub data_source: Option<DataSourceRefSourceDataSource>,
    /// A claim of some namespace.
    pub pvc: Option<DataVolumeSourcePVC>,
    /// A VolumeSnapshot.
    pub snapshot: Option<DataVolumeSourceSnapshot>,
}

/// Another DataSource.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DataSourceRefSourceDataSource {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// Whether the data of a DataSource is there.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataSourceStatus {
    /// Ready, with its cause.
    pub conditions: Option<Vec<DataSourceCondition>>,
    /// What its name stands for in the end.
    pub source: Option<DataSourceSource>,
}

/// One aspect of a DataSource's state.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DataSourceCondition {
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// What it says: Ready or Running.
    pub type_: String,
    /// When somebody last looked.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_heartbeat_time: Nullable<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_transition_time: Nullable<Time>,
    /// Details of the last change, for people to read.
    pub message: Option<String>,
    /// CamelCase word for the cause of the last change.
    pub reason: Option<String>,
}

/// How DataVolumes that leave gaps are made from a StorageClass.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct StorageProfile {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata; the name is that of the StorageClass.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// What an administrator prefers.
    #[serde(default)]
    pub spec: StorageProfileSpec,
    /// What holds.
    pub status: Option<StorageProfileStatus>,
}

resource!(StorageProfile is cluster "storageprofiles" of "cdi.kubevirt.io" in "v1beta1" with { spec, status });

/// What an administrator prefers for a StorageClass.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageProfileSpec {
    /// Access modes with the volume mode that they go with; the first is used.
    pub claim_property_sets: Option<Vec<ClaimPropertySet>>,
    /// How claims are copied.
    pub clone_strategy: Option<String>,
}

/// What holds for a StorageClass.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageProfileStatus {
    /// Access modes with the volume mode that they go with; the first is used.
    pub claim_property_sets: Option<Vec<ClaimPropertySet>>,
    /// How claims are copied.
    pub clone_strategy: Option<String>,
    /// Who makes volumes of the class.
    pub provisioner: Option<String>,
    /// The class.
    pub storage_class: Option<String>,
}

/// Access modes, and the volume mode that they go with.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPropertySet {
    /// Such as ReadWriteOnce.
    pub access_modes: Vec<String>,
    /// Block or Filesystem.
    pub volume_mode: Option<String>,
}

/// How data is imported on this cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct CDIConfig {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata; the name is config.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// What an administrator asks for.
    #[serde(default)]
    pub spec: CDIConfigSpec,
    /// What holds.
    pub status: Option<CDIConfigStatus>,
}

resource!(CDIConfig is cluster "cdiconfigs" of "cdi.kubevirt.io" in "v1beta1" with { spec, status });

/// What an administrator asks for.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CDIConfigSpec {
    /// What of a claim its file system needs for itself.
    pub filesystem_overhead: Option<FilesystemOverhead>,
}

/// What holds.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CDIConfigStatus {
    /// What of a claim its file system needs for itself.
    pub filesystem_overhead: Option<FilesystemOverhead>,
}

/// Shares of claims that their file systems need, each from 0 to 1.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FilesystemOverhead {
    /// For all classes.
    pub global: Option<String>,
    /// For classes by name.
    pub storage_class: Option<BTreeMap<String, String>>,
}
