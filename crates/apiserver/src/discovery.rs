//! What is served, told to clients: per group and version, or all at once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::HeaderValue;
use http::header::InvalidHeaderValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::registry::{Registry, Resource, Subresource, Version, api_version};

/// `/api`
pub(crate) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": address }],
    })
}

/// `/apis`
pub(crate) fn groups(registry: &Registry) -> Value {
    let named = registry.groups().into_iter().filter(|group| !group.is_empty());
    let groups: Vec<Value> = named.filter_map(|name| group_body(registry, name)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/GROUP`
pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let mut body = group_body(registry, name)?;
    body["kind"] = "APIGroup".into();
    body["apiVersion"] = "v1".into();
    Some(body)
}

fn group_body(registry: &Registry, name: &str) -> Option<Value> {
    let versions: Vec<Value> = registry
        .versions(name)
        .into_iter()
        .map(|version| json!({ "groupVersion": api_version(name, version), "version": version }))
        .collect();
    let preferred = versions.first()?.clone();
    Some(json!({ "name": name, "versions": versions, "preferredVersion": preferred }))
}

/// `/api/v1` and `/apis/GROUP/VERSION`
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for (resource, served) in served(registry, group, version) {
        list.push(entry(resource));
        for sub in &served.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": sub.kind,
                "verbs": sub.verbs,
            });
            if let Some((group, version)) = &sub.of {
                entry["group"] = group.as_str().into();
                entry["version"] = version.as_str().into();
            }
            list.push(entry);
        }
    }
    (!list.is_empty()).then(|| {
        let mut value = json!({
            "kind": "APIResourceList",
            "groupVersion": api_version(group, version),
            "resources": list,
        });
        if !group.is_empty() {
            value["apiVersion"] = "v1".into();
        }
        value
    })
}

fn served<'a>(
    registry: &'a Registry,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = (&'a Resource, &'a Version)> {
    registry.of_group(group).filter_map(move |resource| Some((&**resource, &**resource.version(version)?)))
}

fn entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": sorted(&resource.verbs),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if resource.verbs.contains(&"get") {
        entry["storageVersionHash"] = storage_hash(resource).into();
    }
    entry
}

fn sorted(verbs: &[&str]) -> Vec<String> {
    let mut verbs: Vec<String> = verbs.iter().map(|&verb| verb.to_owned()).collect();
    verbs.sort();
    verbs
}

/// Changes when the stored version does.
fn storage_hash(resource: &Resource) -> String {
    // Both faces of events are stored as that of the core group.
    let group = if resource.group == "events.k8s.io" { "" } else { &resource.group };
    let text = format!("{group}/{}/{}", resource.storage_version, resource.kind);
    STANDARD.encode(&Sha256::digest(text.as_bytes())[..8])
}

/// Everything below `/api` or `/apis` in one document of the given version.
pub(crate) fn aggregated(registry: &Registry, core: bool, document: &str) -> Value {
    let groups = registry.groups().into_iter().filter(|group| group.is_empty() == core);
    let items: Vec<Value> = groups.map(|group| aggregated_group(registry, group)).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{document}"),
        "metadata": {},
        "items": items,
    })
}

fn aggregated_group(registry: &Registry, group: &str) -> Value {
    let versions: Vec<Value> = registry
        .versions(group)
        .into_iter()
        .map(|version| {
            let resources: Vec<Value> = served(registry, group, version)
                .map(|(resource, served)| aggregated_resource(resource, served))
                .collect();
            json!({ "version": version, "resources": resources, "freshness": "Current" })
        })
        .collect();
    let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
    json!({ "metadata": metadata, "versions": versions })
}

fn aggregated_resource(resource: &Resource, version: &Version) -> Value {
    let kind = |group: &str, version: &str, kind: &str| {
        // Kinds of the core group are told without a version.
        let version = if group.is_empty() { "" } else { version };
        json!({ "group": group, "version": version, "kind": kind })
    };
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind(&resource.group, &version.name, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": sorted(&resource.verbs),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if !version.subresources.is_empty() {
        let list = version.subresources.iter().map(|Subresource { name, kind: sub, of, verbs }| {
            let (group, of_version) = of
                .as_ref()
                .map_or((resource.group.as_str(), version.name.as_str()), |(group, version)| (group, version));
            json!({ "subresource": name, "responseKind": kind(group, of_version, sub), "verbs": verbs })
        });
        entry["subresources"] = list.collect();
    }
    entry
}

/// A document of everything.
#[derive(Clone)]
pub(crate) struct Document {
    pub(crate) text: Bytes,
    /// Stands for the text: whoever knows it need not be sent the text again.
    pub(crate) tag: HeaderValue,
}

impl Document {
    fn new(value: &Value) -> Result<Self, InvalidHeaderValue> {
        let text = format!("{value}\n");
        let tag = HeaderValue::from_str(&format!("\"{}\"", STANDARD.encode(Sha256::digest(&text))))?;
        Ok(Self { text: text.into(), tag })
    }
}

/// The documents of everything. Every client that starts asks for them, and they are the same until a definition changes.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Cached>);

#[derive(Default)]
struct Cached {
    of: Weak<Registry>,
    /// By whether they are of the core group, and by their version.
    documents: BTreeMap<(bool, &'static str), Document>,
}

impl Cache {
    /// The document of a registry; `make` makes it where it is not known.
    pub(crate) fn get(
        &self,
        registry: &Arc<Registry>,
        core: bool,
        document: &'static str,
        make: impl FnOnce() -> Value,
    ) -> Result<Document, InvalidHeaderValue> {
        // Whoever comes while it is made waits for it instead of making another.
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::ptr::eq(cached.of.as_ptr(), Arc::as_ptr(registry)) {
            *cached = Cached { of: Arc::downgrade(registry), documents: BTreeMap::new() };
        }
        match cached.documents.entry((core, document)) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(missing) => Ok(missing.insert(Document::new(&make())?).clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_made_once_for_each_registry() {
        let (cache, registry) = (Cache::default(), Arc::new(Registry::built_in()));
        let get = |registry: &Arc<Registry>, core, value| {
            let Document { text, tag } = cache.get(registry, core, "v2", || value).unwrap();
            (text, tag)
        };
        let first = get(&registry, true, aggregated(&registry, true, "v2"));
        assert_eq!(get(&registry, true, Value::Null), first);
        let others = get(&registry, false, aggregated(&registry, false, "v2"));
        assert!(others.0 != first.0 && others.1 != first.1);
        let other = Arc::new(Registry::default());
        assert_eq!(get(&other, true, Value::Null).0, "null\n");
    }
}
