//! VirtualMachineExport: volumes and manifests of a VM, offered for download.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::conditions::ConditionStatus;
use crate::duration::Duration;
use crate::enums::open_enum;
use crate::nullable::Nullable;
use crate::resource::resource;
use crate::schema;
use crate::schema::core;

/// Offers VM disks and manifests for download over HTTPS.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct VirtualMachineExport {
    /// API group and version of this object.
    pub api_version: Option<String>,
    /// Kind of this object.
    pub kind: Option<String>,
    /// Standard object metadata.
    #[serde(default)]
    #[schemars(with = "Option<schema::AnyObject>")]
    pub metadata: ObjectMeta,
    /// What to export, and for how long.
    pub spec: VirtualMachineExportSpec,
    /// Download links and state of the export server.
    pub status: Option<VirtualMachineExportStatus>,
}

resource!(VirtualMachineExport is namespaced "virtualmachineexports" of "export.kubevirt.io" in "v1" with { spec, status });

/// A page of virtual machine exports.
pub type VirtualMachineExportList = k8s_openapi::List<VirtualMachineExport>;

/// Source, access token and lifetime of an export.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineExportSpec {
    /// VM, VM snapshot, VM backup or PVC in the same namespace.
    #[schemars(with = "core::TypedLocalObjectReference")]
    pub source: TypedLocalObjectReference,
    /// Secret whose token key clients must present; generated if unset.
    pub token_secret_ref: Option<String>,
    /// The export is deleted after this time; 2h if unset.
    pub ttl_duration: Option<Duration>,
}

/// State of the export and where to download it.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineExportStatus {
    /// Readiness of the export server and its volumes.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Option<Vec<Condition>>,
    /// Download addresses, set once the server is ready.
    pub links: Option<VirtualMachineExportLinks>,
    /// Pending, Ready, Terminated or Skipped.
    pub phase: Option<VirtualMachineExportPhase>,
    /// Service in front of the export server pod.
    pub service_name: Option<String>,
    /// Secret in use, given or generated.
    pub token_secret_ref: Option<String>,
    /// When the export will be deleted.
    #[schemars(with = "Option<schema::Time>")]
    pub ttl_expiration_time: Option<Time>,
    /// VM exported, if the source is a VM or its snapshot.
    pub virtual_machine_name: Option<String>,
}

/// Download addresses by where the client is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineExportLinks {
    /// Reachable from outside, through an Ingress or Route.
    pub external: Option<VirtualMachineExportLink>,
    /// Reachable inside the cluster, through the Service.
    pub internal: Option<VirtualMachineExportLink>,
}

/// Everything on offer through one entry point.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineExportLink {
    /// PEM CA certificates to verify the server with.
    pub cert: String,
    /// Pull-mode backups that can be read.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub backups: Option<Vec<VirtualMachineExportBackup>>,
    /// Kubernetes manifests to recreate the VM elsewhere.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub manifests: Option<Vec<VirtualMachineExportManifest>>,
    /// Disks that can be downloaded.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Option<Vec<VirtualMachineExportVolume>>,
}

/// One disk and its download formats.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineExportVolume {
    /// Name of the exported PVC.
    pub name: String,
    /// One URL per encoding on offer.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["format"]))]
    pub formats: Option<Vec<VirtualMachineExportVolumeFormat>>,
}

/// One encoding of an exported disk.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineExportVolumeFormat {
    /// raw or gzip for disk images, dir or tar.gz for file systems.
    pub format: String,
    /// HTTPS address; needs the token as a header.
    pub url: String,
}

/// A downloadable set of manifests.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachineExportManifest {
    /// all for the VM and its objects, auth-header-secret for the token.
    pub type_: String,
    /// HTTPS address; answers in YAML or JSON.
    pub url: String,
}

/// One volume of a backup and its endpoints.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineExportBackup {
    /// Name of the volume backed up.
    pub name: String,
    /// Where the blocks and the changed-block map are read.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["endpoint"]))]
    pub endpoints: Option<Vec<VirtualMachineExportBackupEndpoint>>,
}

/// One way to read a backup volume.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct VirtualMachineExportBackupEndpoint {
    /// data for the blocks, map for which of them changed.
    pub endpoint: String,
    /// HTTPS address; needs the token as a header.
    pub url: String,
}

/// One aspect of an export's state.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// Such as Ready or VolumesCreated.
    pub type_: String,
    /// When the condition was last checked.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_probe_time: Nullable<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[schemars(with = "Nullable<schema::Time>")]
    pub last_transition_time: Nullable<Time>,
    /// Details of the last change, for people to read.
    pub message: Option<String>,
    /// CamelCase word for the cause of the last change.
    pub reason: Option<String>,
}

open_enum! {
    /// How far an export is.
    pub enum VirtualMachineExportPhase {
        Pending = "Pending",
        Ready = "Ready",
        Terminated = "Terminated",
        Skipped = "Skipped",
    }
}
