//! What is served: every built-in resource of the table, and those that CRDs add while the server runs.

mod builtin;
mod custom;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::facts::TypeId;
use crate::names::NameRule;
use crate::status::Subject;
use crate::store::{FieldPath, Table};
use crate::strategy::Strategy;

#[cfg(test)]
pub(crate) use custom::parts;
pub(crate) use custom::{Column, Custom, ScalePaths, forget_unused_parts};

/// One resource: all of its versions share one table of the store.
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    pub(crate) verbs: Vec<&'static str>,
    pub(crate) table: Table,
    /// Served ones; the one that clients should prefer is first.
    pub(crate) versions: Vec<Arc<Version>>,
    /// The version whose form is in the store.
    pub(crate) storage_version: String,
    /// What objects can be selected by, besides name and namespace.
    pub(crate) fields: Arc<[FieldPath]>,
    pub(crate) name_rule: NameRule,
    /// Whether `metadata.generation` counts changes of what the user wants.
    pub(crate) generation: bool,
    pub(crate) strategy: &'static dyn Strategy,
    /// Objects older than this may lack defaults that a later schema sets.
    pub(crate) since: u64,
    /// The definition's UID, so that a recreated definition is not mistaken for the old one.
    pub(crate) definition: Option<String>,
    /// Of the part of the definition that matters here.
    pub(crate) fingerprint: Option<u32>,
}

/// One served version of a resource.
#[derive(Clone)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) content: Content,
    pub(crate) subresources: Vec<Subresource>,
    /// Told to whoever uses it.
    pub(crate) deprecation: Option<String>,
}

/// What the objects of a version may hold.
#[derive(Clone)]
pub(crate) enum Content {
    BuiltIn(TypeId),
    Custom(Arc<Custom>),
}

/// `pods/status` and the like, as discovery tells them.
#[derive(Clone, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// Group and version of the kind, where they are not the resource's own.
    pub(crate) of: Option<(String, String)>,
    pub(crate) verbs: Vec<&'static str>,
}

impl Resource {
    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject { group: &self.group, resource: &self.plural, kind: &self.kind }
    }

    pub(crate) fn version(&self, name: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The index of a selectable field.
    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| &*field.name == name)
    }

    /// Whether objects are stored in another form than this version shows: its schema differs.
    pub(crate) fn reshapes(&self, version: &str) -> bool {
        let content = |name: &str| self.version(name).map(|version| &version.content);
        match (content(version), content(&self.storage_version)) {
            (Some(Content::Custom(shown)), Some(Content::Custom(stored))) => !shown.is_like(stored),
            // A stored version that is no longer served has no schema here.
            (Some(Content::Custom(_)), None) => true,
            _ => false,
        }
    }

    pub(crate) fn is_custom(&self) -> bool {
        self.definition.is_some()
    }

    pub(crate) fn has_subresource(&self, version: &str, name: &str) -> bool {
        self.version(version).is_some_and(|version| version.subresources.iter().any(|one| one.name == name))
    }
}

/// `v1` or `apps/v1`.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Where a resource's objects are.
pub(crate) fn table_name(group: &str, plural: &str) -> Table {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
}

/// All resources at one moment.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    /// By group, and by plural name; no group is empty.
    groups: BTreeMap<String, BTreeMap<String, Arc<Resource>>>,
}

impl Registry {
    /// The built-in ones: the same for every server of a process.
    pub(crate) fn built_in() -> Self {
        static MADE: LazyLock<Registry> = LazyLock::new(|| {
            let mut registry = Registry::default();
            for resource in builtin::resources() {
                registry.add(Arc::new(resource));
            }
            registry
        });
        MADE.clone()
    }

    pub(crate) fn add(&mut self, resource: Arc<Resource>) {
        self.groups.entry(resource.group.clone()).or_default().insert(resource.plural.clone(), resource);
    }

    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        let Some(resources) = self.groups.get_mut(group) else { return };
        resources.remove(plural);
        if resources.is_empty() {
            self.groups.remove(group);
        }
    }

    pub(crate) fn get(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.groups.get(group)?.get(plural)
    }

    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.values().flat_map(BTreeMap::values)
    }

    /// Those of a group.
    pub(crate) fn of_group(&self, group: &str) -> impl Iterator<Item = &Arc<Resource>> {
        self.groups.get(group).into_iter().flat_map(BTreeMap::values)
    }

    /// Served versions of a group, the preferred first; none, if the group is unknown.
    pub(crate) fn versions(&self, group: &str) -> Vec<&str> {
        let mut versions: Vec<&str> = Vec::new();
        for resource in self.of_group(group) {
            for version in &resource.versions {
                if !versions.contains(&version.name.as_str()) {
                    versions.push(&version.name);
                }
            }
        }
        versions.sort_by(|a, b| custom::priority(b).cmp(&custom::priority(a)));
        versions
    }

    /// Names of all groups, sorted; the core group is the empty one.
    pub(crate) fn groups(&self) -> Vec<&str> {
        self.groups.keys().map(String::as_str).collect()
    }

    /// Selectable fields of a table that the registry knows.
    pub(crate) fn fields(&self, table: &str) -> Arc<[FieldPath]> {
        let (plural, group) = table.split_once('.').unwrap_or((table, ""));
        self.get(group, plural).map_or_else(|| Arc::from([]), |resource| resource.fields.clone())
    }
}
