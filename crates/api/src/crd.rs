//! The CustomResourceDefinitions, one row per kind.
//!
//! Names, versions, columns and subresources are the table in `kinds`; schemas come from the types. All versions of a
//! kind share one schema, so no conversion is needed.

mod kinds;
mod storage;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec, CustomResourceDefinitionVersion, CustomResourceSubresourceScale,
    CustomResourceSubresourceStatus, CustomResourceSubresources, CustomResourceValidation, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope, Resource};
use schemars::JsonSchema;
use serde_json::Value;

use crate::schema;

/// Annotation that an API server asks of kinds in Kubernetes' own groups.
const APPROVED: &str = "api-approved.kubernetes.io";

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
    kinds::table().iter().map(Row::definition).collect()
}

/// The kinds that a cluster has from others, such as its CSI drivers: an embedded server serves them, a cluster's own stay as they
/// are.
///
/// # Errors
/// When a type's schema is not a valid CRD schema, which the tests of this crate rule out.
pub fn storage() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    storage::table().iter().map(Row::definition).collect()
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
    /// Where Kubernetes approved a kind of one of its own groups.
    approval: Option<&'static str>,
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
            approval: None,
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
            metadata: ObjectMeta {
                name: Some(format!("{}.{}", self.plural, self.group)),
                annotations: self.approval.map(|url| BTreeMap::from([(APPROVED.to_owned(), url.to_owned())])),
                ..Default::default()
            },
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
