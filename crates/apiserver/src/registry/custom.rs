//! Resources that CRDs define.

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use structural::{Interner, Schema};

use super::{Content, Resource, Subresource, Version, table_name};
use crate::bounds::{MOST_COLUMNS, MOST_SELECTABLE};
use crate::names::NameRule;
use crate::store::FieldPath;
use crate::strategy;

const VERBS: [&str; 8] = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const SUBRESOURCE_VERBS: [&str; 3] = ["get", "patch", "update"];

/// Parts of schemas that were taken in, each once.
static PARTS: LazyLock<Mutex<Interner>> = LazyLock::new(|| Mutex::new(Interner::new()));

/// Lets go of those that no schema uses any more.
pub(crate) fn forget_unused_parts() {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner).forget_unused();
}

/// How many there are.
#[cfg(test)]
pub(crate) fn parts() -> usize {
    PARTS.lock().unwrap_or_else(PoisonError::into_inner).len()
}

/// One version of a custom resource.
pub(crate) struct Custom {
    /// As text: parsed, it would take many times the memory, and it is hardly ever looked at.
    source: Box<str>,
    schema: OnceLock<Schema>,
    pub(crate) columns: Vec<Column>,
    pub(crate) scale: Option<ScalePaths>,
}

impl Custom {
    /// Its schema; taken in on first use, since many versions are never asked for.
    pub(crate) fn schema(&self) -> &Schema {
        self.schema.get_or_init(|| {
            // Versions and kinds share most of their parts.
            let mut parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
            Schema::load_with(&self.source(), &mut parts)
        })
    }

    /// The schema as the definition has it.
    pub(crate) fn source(&self) -> Value {
        // It was written by the same library a moment before it came here.
        serde_json::from_str(&self.source).unwrap_or_default()
    }

    /// Whether two versions hold the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.source == other.source
    }

    /// Makes an object of another version one of this: what the schema does not know goes.
    pub(crate) fn take_in(&self, object: &mut Value) {
        self.schema().prune(object);
    }
}

/// A column that `kubectl get` shows.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Column {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) format: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) priority: i32,
    pub(crate) json_path: String,
}

/// Where the scale subresource finds its numbers.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas_path: String,
    pub(crate) status_replicas_path: String,
    #[serde(default)]
    pub(crate) label_selector_path: Option<String>,
}

/// What the server reads of a definition.
#[derive(Deserialize)]
struct Definition {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    uid: String,
}

#[derive(Deserialize)]
struct Spec {
    group: String,
    scope: String,
    versions: Vec<Served>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    accepted_names: Names,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Names {
    #[serde(default)]
    plural: String,
    #[serde(default)]
    singular: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    list_kind: String,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Served {
    name: String,
    served: bool,
    storage: bool,
    #[serde(default)]
    deprecated: bool,
    deprecation_warning: Option<String>,
    schema: Option<SchemaHolder>,
    #[serde(default)]
    subresources: Subresources,
    #[serde(default)]
    additional_printer_columns: Vec<Column>,
    #[serde(default)]
    selectable_fields: Vec<Selectable>,
}

#[derive(Deserialize)]
struct SchemaHolder {
    #[serde(rename = "openAPIV3Schema")]
    schema: Box<RawValue>,
}

#[derive(Deserialize, Default)]
struct Subresources {
    status: Option<Value>,
    scale: Option<ScalePaths>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selectable {
    json_path: String,
}

impl Resource {
    /// From a definition whose names were accepted. `since` is the revision of its last change.
    pub(crate) fn from_definition(definition: &[u8], since: u64) -> Result<Self, serde_json::Error> {
        let Definition { metadata, spec, status } = serde_json::from_slice(definition)?;
        let names = status.accepted_names;
        let storage = spec.versions.iter().find(|version| version.storage);
        let storage_version = storage.map(|version| version.name.clone()).unwrap_or_default();
        // All versions convert by their name alone, so the fields of the stored one serve all.
        let selectable = storage.map_or(&[][..], |version| &version.selectable_fields);
        let fields = selectable.iter().take(MOST_SELECTABLE).map(|field| FieldPath::new(&field.json_path)).collect();
        let mut served: Vec<Served> = spec.versions.into_iter().filter(|one| one.served).collect();
        served.sort_by(|a, b| priority(&b.name).cmp(&priority(&a.name)));
        let better = served.iter().find(|one| !one.deprecated).map(|one| one.name.clone());
        let versions =
            served.into_iter().map(|one| Arc::new(version(one, &spec.group, &names, better.as_deref()))).collect();
        Ok(Self {
            table: table_name(&spec.group, &names.plural),
            group: spec.group,
            plural: names.plural,
            singular: names.singular,
            kind: names.kind,
            list_kind: names.list_kind,
            short_names: names.short_names,
            categories: names.categories,
            namespaced: spec.scope == "Namespaced",
            verbs: VERBS.to_vec(),
            versions,
            storage_version,
            fields,
            name_rule: NameRule::Subdomain,
            generation: true,
            strategy: strategy::custom(),
            since,
            definition: Some(metadata.uid),
            fingerprint: None,
        })
    }
}

fn version(served: Served, group: &str, names: &Names, better: Option<&str>) -> Version {
    let Served { name, deprecated, deprecation_warning, schema, subresources, additional_printer_columns, .. } = served;
    let mut list = Vec::new();
    let mut sub = |name: &str, kind: &str, of| {
        list.push(Subresource { name: name.to_owned(), kind: kind.to_owned(), of, verbs: SUBRESOURCE_VERBS.to_vec() });
    };
    if subresources.status.is_some() {
        sub("status", &names.kind, None);
    }
    if subresources.scale.is_some() {
        sub("scale", "Scale", Some(("autoscaling".to_owned(), "v1".to_owned())));
    }
    let instead = better.map(|better| format!("; use {group}/{better} {}", names.kind)).unwrap_or_default();
    let usual = || format!("{group}/{name} {} is deprecated{instead}", names.kind);
    let warning = deprecation_warning.unwrap_or_else(usual);
    let custom = Custom {
        source: schema.map_or_else(|| r#"{"type":"object"}"#.into(), |holder| holder.schema.get().into()),
        schema: OnceLock::new(),
        // A definition may be from before there was a limit.
        columns: additional_printer_columns.into_iter().take(MOST_COLUMNS).collect(),
        scale: subresources.scale,
    };
    Version {
        name,
        content: Content::Custom(Arc::new(custom)),
        subresources: list,
        deprecation: deprecated.then_some(warning),
    }
}

/// Orders versions as Kubernetes does: releases before betas before alphas, higher numbers first, then other names.
#[derive(PartialEq, Eq)]
pub(crate) struct Priority<'a> {
    rank: Option<(u8, u64, u64)>,
    name: &'a str,
}

pub(crate) fn priority(version: &str) -> Priority<'_> {
    Priority { rank: rank(version), name: version }
}

fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(digits);
    let major = major.parse().ok()?;
    if rest.is_empty() {
        return Some((3, major, 0));
    }
    for (word, stage) in [("beta", 2), ("alpha", 1)] {
        if let Some(minor) = rest.strip_prefix(word) {
            return Some((stage, major, minor.parse().ok()?));
        }
    }
    None
}

impl Ord for Priority<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.rank, other.rank) {
            // Names of other forms come last, in the order of the alphabet.
            (None, None) => other.name.cmp(self.name),
            (mine, others) => mine.cmp(&others),
        }
    }
}

impl PartialOrd for Priority<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_maturity_and_number() {
        let mut versions = ["foo1", "v1alpha3", "v2", "v10", "v1beta1", "v11alpha2", "foo10", "v1"];
        versions.sort_by(|a, b| priority(b).cmp(&priority(a)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta1", "v11alpha2", "v1alpha3", "foo1", "foo10"]);
    }
}
