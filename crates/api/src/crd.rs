//! The CustomResourceDefinitions, one row per kind.
//!
//! Names, versions, columns and subresources are the table below; schemas come from the types. All versions of a kind
//! share one schema, so no conversion is needed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceScale,
    CustomResourceSubresourceStatus, CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, Resource};
use schemars::JsonSchema;
use serde_json::Value;

use crate::backup::{VirtualMachineBackup, VirtualMachineBackupTracker};
use crate::clone::VirtualMachineClone;
use crate::export::VirtualMachineExport;
use crate::instancetype::{VirtualMachineClusterInstancetype, VirtualMachineInstancetype};
use crate::kubevirt::KubeVirt;
use crate::migration::VirtualMachineInstanceMigration;
use crate::migration_policy::MigrationPolicy;
use crate::plugin::Plugin;
use crate::pool::VirtualMachinePool;
use crate::preference::{VirtualMachineClusterPreference, VirtualMachinePreference};
use crate::preset::VirtualMachineInstancePreset;
use crate::replicaset::VirtualMachineInstanceReplicaSet;
use crate::restore::VirtualMachineRestore;
use crate::schema;
use crate::snapshot::{VirtualMachineSnapshot, VirtualMachineSnapshotContent};
use crate::vm::VirtualMachine;
use crate::vmi::VirtualMachineInstance;

/// A schema did not fit Kubernetes' own type for schemas: a mistake in an `extend` of some field.
#[derive(Debug, thiserror::Error)]
#[error("schema of {kind}")]
pub struct CrdError {
    kind: &'static str,
    source: serde_json::Error,
}

/// Every CRD, in the order of the table.
///
/// # Errors
/// When a type's schema is not a valid CRD schema, which the tests of this crate rule out.
pub fn all() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    table().iter().map(Row::definition).collect()
}

/// A CRD as the YAML document that is checked in under `deploy/crds`.
///
/// # Errors
/// When the printer fails, which it does not for a CRD made by [`all`].
pub fn to_yaml(definition: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(definition)
}

/// What the types do not say about a kind.
struct Row {
    kind: &'static str,
    group: &'static str,
    plural: &'static str,
    cluster_scoped: bool,
    short_names: &'static [&'static str],
    in_all: bool,
    versions: &'static [Version],
    columns: &'static [Column],
    subresources: Subresources,
    schema: fn() -> Value,
}

/// One version: its name, whether it is deprecated, whether objects are stored in it.
struct Version(&'static str, Support, Use);

enum Support {
    Current,
    Deprecated,
}

enum Use {
    Served,
    Stored,
}

#[derive(Clone, Copy)]
enum Subresources {
    None,
    Status,
    StatusAndScale,
}

/// A column of `kubectl get`: header, type, path, and whether only `-o wide` shows it.
struct Column(&'static str, &'static str, &'static str, Width);

#[derive(PartialEq)]
enum Width {
    Normal,
    Wide,
}

/// Whether a `Resource` lives in a namespace.
trait Scope {
    const CLUSTER: bool;
}

impl Scope for NamespaceResourceScope {
    const CLUSTER: bool = false;
}

impl Scope for ClusterResourceScope {
    const CLUSTER: bool = true;
}

impl Row {
    fn of<T: Resource<Scope: Scope> + JsonSchema>(
        short_names: &'static [&'static str],
        versions: &'static [Version],
        columns: &'static [Column],
        subresources: Subresources,
    ) -> Self {
        Self {
            kind: T::KIND,
            group: T::GROUP,
            plural: T::URL_PATH_SEGMENT,
            cluster_scoped: T::Scope::CLUSTER,
            short_names,
            in_all: !T::Scope::CLUSTER,
            versions,
            columns,
            subresources,
            schema: schema::structural::<T>,
        }
    }

    fn definition(&self) -> Result<CustomResourceDefinition, CrdError> {
        let schema: JSONSchemaProps =
            serde_json::from_value((self.schema)()).map_err(|source| CrdError { kind: self.kind, source })?;
        let strings = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        Ok(CustomResourceDefinition {
            metadata: ObjectMeta { name: Some(format!("{}.{}", self.plural, self.group)), ..Default::default() },
            spec: CustomResourceDefinitionSpec {
                group: self.group.to_owned(),
                names: CustomResourceDefinitionNames {
                    kind: self.kind.to_owned(),
                    list_kind: Some(format!("{}List", self.kind)),
                    plural: self.plural.to_owned(),
                    singular: Some(self.kind.to_lowercase()),
                    short_names: (!self.short_names.is_empty()).then(|| strings(self.short_names)),
                    categories: self.in_all.then(|| strings(&["all"])),
                },
                scope: if self.cluster_scoped { "Cluster" } else { "Namespaced" }.to_owned(),
                versions: self.versions.iter().map(|version| self.version(version, &schema)).collect(),
                ..Default::default()
            },
            status: None,
        })
    }

    fn version(&self, version: &Version, schema: &JSONSchemaProps) -> CustomResourceDefinitionVersion {
        let Version(name, support, usage) = version;
        CustomResourceDefinitionVersion {
            name: (*name).to_owned(),
            served: true,
            storage: matches!(usage, Use::Stored),
            deprecated: matches!(support, Support::Deprecated).then_some(true),
            schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema.clone()) }),
            subresources: self.subresources.definition(),
            additional_printer_columns: (!self.columns.is_empty())
                .then(|| self.columns.iter().map(Column::definition).collect()),
            ..Default::default()
        }
    }
}

impl Subresources {
    fn definition(self) -> Option<CustomResourceSubresources> {
        let scale = match self {
            Self::None => return None,
            Self::Status => None,
            Self::StatusAndScale => Some(CustomResourceSubresourceScale {
                label_selector_path: Some(".status.labelSelector".to_owned()),
                spec_replicas_path: ".spec.replicas".to_owned(),
                status_replicas_path: ".status.replicas".to_owned(),
            }),
        };
        let status = Some(CustomResourceSubresourceStatus(Value::Object(Default::default())));
        Some(CustomResourceSubresources { scale, status })
    }
}

impl Column {
    fn definition(&self) -> CustomResourceColumnDefinition {
        let Self(name, type_, json_path, width) = self;
        CustomResourceColumnDefinition {
            name: (*name).to_owned(),
            type_: (*type_).to_owned(),
            json_path: (*json_path).to_owned(),
            priority: (*width == Width::Wide).then_some(1),
            ..Default::default()
        }
    }
}

use Subresources::{None as NoSubresources, Status, StatusAndScale};
use Support::{Current, Deprecated};
use Use::{Served, Stored};
use Width::{Normal, Wide};

const AGE: Column = Column("Age", "date", ".metadata.creationTimestamp", Normal);
const PHASE: Column = Column("Phase", "string", ".status.phase", Normal);
const READY: Column = Column("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", Normal);
const SOURCE_KIND: Column = Column("SourceKind", "string", ".spec.source.kind", Normal);
const SOURCE_NAME: Column = Column("SourceName", "string", ".spec.source.name", Normal);
const READY_TO_USE: Column = Column("ReadyToUse", "boolean", ".status.readyToUse", Normal);
const CREATION_TIME: Column = Column("CreationTime", "date", ".status.creationTime", Normal);
const ERROR: Column = Column("Error", "string", ".status.error.message", Normal);
const REPLICAS: &[Column] = &[
    Column("Desired", "integer", ".spec.replicas", Normal),
    Column("Current", "integer", ".status.replicas", Normal),
    Column("Ready", "integer", ".status.readyReplicas", Normal),
    AGE,
];

const V1: &[Version] = &[Version("v1", Current, Stored), Version("v1alpha3", Deprecated, Served)];
const V1ALPHA1: &[Version] = &[Version("v1alpha1", Current, Stored)];
const V1BETA1: &[Version] = &[Version("v1beta1", Current, Stored)];
const V1BETA1_AND_ALPHA: &[Version] = &[Version("v1alpha1", Current, Served), Version("v1beta1", Current, Stored)];

fn table() -> Vec<Row> {
    vec![
        Row::of::<VirtualMachine>(
            &["vm", "vms"],
            V1,
            &[AGE, Column("Status", "string", ".status.printableStatus", Normal), READY],
            Status,
        ),
        // No status subresource: controllers write the whole object, as clients of this API expect.
        Row::of::<VirtualMachineInstance>(
            &["vmi", "vmis"],
            V1,
            &[
                AGE,
                PHASE,
                Column("IP", "string", ".status.interfaces[0].ipAddress", Normal),
                Column("NodeName", "string", ".status.nodeName", Normal),
                READY,
                Column("Live-Migratable", "string", ".status.conditions[?(@.type=='LiveMigratable')].status", Wide),
                Column("Paused", "string", ".status.conditions[?(@.type=='Paused')].status", Wide),
            ],
            NoSubresources,
        ),
        Row::of::<VirtualMachineInstanceMigration>(
            &["vmim", "vmims"],
            V1,
            &[PHASE, Column("VMI", "string", ".spec.vmiName", Normal)],
            Status,
        ),
        Row::of::<VirtualMachineInstanceReplicaSet>(&["vmirs", "vmirss"], V1, REPLICAS, StatusAndScale),
        // Stored as v1alpha3: presets were deprecated before v1 became the stored version of the others.
        Row::of::<VirtualMachineInstancePreset>(
            &["vmipreset", "vmipresets"],
            &[Version("v1", Deprecated, Served), Version("v1alpha3", Deprecated, Stored)],
            &[],
            NoSubresources,
        ),
        Row::of::<KubeVirt>(&["kv", "kvs"], V1, &[AGE, PHASE], Status),
        Row::of::<VirtualMachinePool>(&["vmpool", "vmpools"], V1BETA1_AND_ALPHA, REPLICAS, StatusAndScale),
        Row::of::<VirtualMachineSnapshot>(
            &["vmsnapshot", "vmsnapshots"],
            V1BETA1_AND_ALPHA,
            &[SOURCE_KIND, SOURCE_NAME, PHASE, READY_TO_USE, CREATION_TIME, ERROR],
            Status,
        ),
        Row::of::<VirtualMachineSnapshotContent>(
            &["vmsnapshotcontent", "vmsnapshotcontents"],
            V1BETA1_AND_ALPHA,
            &[READY_TO_USE, CREATION_TIME, ERROR],
            Status,
        ),
        Row::of::<VirtualMachineRestore>(
            &["vmrestore", "vmrestores"],
            V1BETA1_AND_ALPHA,
            &[
                Column("TargetKind", "string", ".spec.target.kind", Normal),
                Column("TargetName", "string", ".spec.target.name", Normal),
                Column("Complete", "boolean", ".status.complete", Normal),
                Column("RestoreTime", "date", ".status.restoreTime", Normal),
            ],
            Status,
        ),
        Row::of::<VirtualMachineExport>(
            &["vmexport", "vmexports"],
            &[Version("v1beta1", Deprecated, Served), Version("v1", Current, Stored)],
            &[SOURCE_KIND, SOURCE_NAME, PHASE],
            Status,
        ),
        Row::of::<VirtualMachineClone>(
            &["vmclone", "vmclones"],
            V1BETA1_AND_ALPHA,
            &[
                PHASE,
                Column("SourceVirtualMachine", "string", ".spec.source.name", Normal),
                Column("TargetVirtualMachine", "string", ".spec.target.name", Normal),
            ],
            Status,
        ),
        Row::of::<VirtualMachineInstancetype>(
            &["vminstancetype", "vminstancetypes", "vmf", "vmfs"],
            V1BETA1,
            &[],
            NoSubresources,
        ),
        Row::of::<VirtualMachineClusterInstancetype>(
            &["vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"],
            V1BETA1,
            &[],
            NoSubresources,
        ),
        Row::of::<VirtualMachinePreference>(&["vmpref", "vmprefs", "vmp", "vmps"], V1BETA1, &[], NoSubresources),
        Row::of::<VirtualMachineClusterPreference>(&["vmcp", "vmcps"], V1BETA1, &[], NoSubresources),
        Row::of::<MigrationPolicy>(&[], V1ALPHA1, &[], Status),
        Row::of::<VirtualMachineBackup>(
            &["vmbackup", "vmbackups"],
            V1ALPHA1,
            &[
                SOURCE_KIND,
                SOURCE_NAME,
                Column("Type", "string", ".status.type", Normal),
                Column("CheckpointName", "string", ".status.checkpointName", Normal),
            ],
            Status,
        ),
        Row::of::<VirtualMachineBackupTracker>(
            &["vmbackuptracker", "vmbackuptrackers"],
            V1ALPHA1,
            &[
                SOURCE_KIND,
                SOURCE_NAME,
                Column("LatestCheckpoint", "string", ".status.latestCheckpoint.name", Normal),
                Column("CheckpointTime", "date", ".status.latestCheckpoint.creationTime", Normal),
            ],
            Status,
        ),
        Row::of::<Plugin>(&[], V1ALPHA1, &[], NoSubresources),
    ]
}
