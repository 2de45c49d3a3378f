//! OpenAPI: per group and version (v3), and all in one (v2). Enough for clients to validate, merge and explain: paths
//! with their kinds and parameters, and the schemas of all kinds, without descriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::facts::{ListType, Shape, TypeId, facts};
use crate::registry::{Content, Registry, Resource, Version};

/// `/openapi/v3`: where the documents are, with those of others. The hash lets clients keep what they have.
pub(crate) fn index(registry: &Registry, others: impl Iterator<Item = (String, Value)>) -> Value {
    let mut paths = Map::new();
    for group in registry.groups() {
        for version in registry.versions(group) {
            let path = path(group, version);
            let hash = hash(registry, group);
            paths.insert(path.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{path}?hash={hash:08X}") }));
        }
    }
    paths.extend(others);
    json!({ "paths": paths })
}

/// Changes when a document of the group does: with the program, or with a definition.
fn hash(registry: &Registry, group: &str) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    for resource in registry.of_group(group) {
        hasher.update(resource.plural.as_bytes());
        hasher.update(&resource.fingerprint.unwrap_or_default().to_le_bytes());
    }
    hasher.finalize()
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3/api/v1` and the like; none, if it is not served.
pub(crate) fn by_path(registry: &Registry, path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", version] => document(registry, "", version),
        ["apis", group, version] => document(registry, group, version),
        _ => None,
    }
}

fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut document = Document::new("#/components/schemas/");
    let mut served = false;
    for resource in registry.of_group(group) {
        if let Some(version) = resource.version(version) {
            document.add(resource, version);
            served = true;
        }
    }
    served.then(|| {
        let (paths, schemas) = document.finish();
        json!({
            "openapi": "3.0.0",
            "info": { "title": "Kubernetes", "version": crate::VERSION },
            "paths": paths,
            "components": { "schemas": schemas },
        })
    })
}

/// `/openapi/v2`
pub(crate) fn everything(registry: &Registry) -> Value {
    let mut document = Document::new("#/definitions/");
    for resource in registry.resources() {
        for version in &resource.versions {
            document.add(resource, version);
        }
    }
    let (paths, schemas) = document.finish();
    json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": crate::VERSION },
        "paths": paths,
        "definitions": schemas,
    })
}

struct Document {
    references: &'static str,
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
    wanted: BTreeSet<&'static str>,
}

impl Document {
    fn new(references: &'static str) -> Self {
        Self { references, paths: Map::new(), schemas: Map::new(), wanted: BTreeSet::new() }
    }

    fn add(&mut self, resource: &Resource, version: &Version) {
        let kind = json!({ "group": resource.group, "version": version.name, "kind": resource.kind });
        let name = match &version.content {
            Content::BuiltIn(id) => {
                self.want(*id);
                long_name(facts().get(*id).name)
            }
            Content::Custom(custom) => {
                let name = custom_name(resource, version);
                let mut schema = custom.source();
                schema["x-kubernetes-group-version-kind"] = json!([kind]);
                let properties =
                    schema.as_object_mut().map(|schema| schema.entry("properties").or_insert_with(|| json!({})));
                if let Some(properties) = properties {
                    properties["apiVersion"] = json!({ "type": "string" });
                    properties["kind"] = json!({ "type": "string" });
                    properties["metadata"] = self.reference("meta.v1.ObjectMeta");
                }
                if let Some(id) = facts().named("meta.v1.ObjectMeta") {
                    self.want(id);
                }
                self.schemas.insert(name.clone(), schema);
                name
            }
        };
        self.add_paths(resource, version, &kind, &name);
    }

    fn add_paths(&mut self, resource: &Resource, version: &Version, kind: &Value, name: &str) {
        let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let base = format!("/{}{scope}/{}", path(&resource.group, &version.name), resource.plural);
        let body = json!({ "content": { "application/json": { "schema": { "$ref": format!("{}{name}", self.references) } } } });
        let operation = |action: &str, parameters: &[&str]| {
            let parameters: Vec<Value> = parameters
                .iter()
                .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string", "uniqueItems": true } }))
                .collect();
            json!({
                "parameters": parameters,
                "responses": { "200": body },
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": kind,
            })
        };
        let writes = ["dryRun", "fieldManager", "fieldValidation", "pretty"];
        let mut collection = Map::new();
        let mut single = Map::new();
        for verb in &resource.verbs {
            match *verb {
                "create" => drop(collection.insert("post".to_owned(), operation("post", &writes))),
                "list" => drop(collection.insert(
                    "get".to_owned(),
                    operation(
                        "list",
                        &["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch"],
                    ),
                )),
                "get" => drop(single.insert("get".to_owned(), operation("get", &["pretty"]))),
                "update" => drop(single.insert("put".to_owned(), operation("put", &writes))),
                "patch" => drop(single.insert("patch".to_owned(), operation("patch", &writes))),
                "delete" => drop(single.insert(
                    "delete".to_owned(),
                    operation("delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
                )),
                _ => {}
            }
        }
        self.paths.insert(base.clone(), collection.into());
        if !single.is_empty() {
            self.paths.insert(format!("{base}/{{name}}"), single.into());
        }
    }

    /// Takes a type in, and all that it refers to.
    fn want(&mut self, id: TypeId) {
        let of = facts().get(id);
        if !self.wanted.insert(of.name) {
            return;
        }
        let mut properties = Map::new();
        for field in &of.fields {
            let mut schema = self.shape(&field.shape);
            if let Some(list) = &field.list {
                match list {
                    ListType::Atomic => schema["x-kubernetes-list-type"] = "atomic".into(),
                    ListType::Set => schema["x-kubernetes-list-type"] = "set".into(),
                    ListType::Map(keys) => {
                        schema["x-kubernetes-list-type"] = "map".into();
                        schema["x-kubernetes-list-map-keys"] = json!(keys);
                    }
                }
            }
            if let Some(patch) = &field.patch {
                schema["x-kubernetes-patch-strategy"] = patch.strategies.join(",").into();
                if let Some(key) = patch.key {
                    schema["x-kubernetes-patch-merge-key"] = key.into();
                }
            }
            if field.atomic {
                schema["x-kubernetes-map-type"] = "atomic".into();
            }
            properties.insert(field.name.to_owned(), schema);
        }
        let required: Vec<&str> = of.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
        let mut schema = json!({ "type": "object" });
        if !properties.is_empty() {
            schema["properties"] = properties.into();
        }
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        if of.atomic {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        if let Some(kind) = of.kind {
            let kind = json!({ "group": kind.group, "version": kind.version, "kind": kind.kind });
            schema["x-kubernetes-group-version-kind"] = json!([kind]);
        }
        self.schemas.insert(long_name(of.name), schema);
    }

    fn shape(&mut self, shape: &Shape) -> Value {
        match shape {
            Shape::String => json!({ "type": "string" }),
            Shape::Boolean => json!({ "type": "boolean" }),
            Shape::Int32 => json!({ "type": "integer", "format": "int32" }),
            Shape::Int64 => json!({ "type": "integer", "format": "int64" }),
            Shape::Number => json!({ "type": "number", "format": "double" }),
            Shape::Bytes => json!({ "type": "string", "format": "byte" }),
            Shape::Object => json!({ "type": "object" }),
            Shape::Any => json!({}),
            Shape::Time | Shape::MicroTime => json!({ "type": "string", "format": "date-time" }),
            Shape::Quantity => json!({ "oneOf": [{ "type": "string" }, { "type": "number" }] }),
            Shape::IntOrString => {
                json!({ "format": "int-or-string", "oneOf": [{ "type": "integer" }, { "type": "string" }] })
            }
            Shape::List(inner) => json!({ "type": "array", "items": self.shape(inner) }),
            Shape::Map(inner) => json!({ "type": "object", "additionalProperties": self.shape(inner) }),
            Shape::Struct(id) => {
                self.want(*id);
                self.reference(facts().get(*id).name)
            }
        }
    }

    fn reference(&self, name: &str) -> Value {
        json!({ "$ref": format!("{}{}", self.references, long_name(name)) })
    }

    fn finish(self) -> (Map<String, Value>, Map<String, Value>) {
        (self.paths, self.schemas)
    }
}

/// As Kubernetes names its schemas.
fn long_name(name: &str) -> String {
    match name.split('.').next().unwrap_or_default() {
        "meta" => format!("io.k8s.apimachinery.pkg.apis.{name}"),
        "apiextensions" => format!("io.k8s.apiextensions-apiserver.pkg.apis.{name}"),
        "apiregistration" => format!("io.k8s.kube-aggregator.pkg.apis.{name}"),
        _ => format!("io.k8s.api.{name}"),
    }
}

/// `kubevirt.io` in reverse, version, kind.
fn custom_name(resource: &Resource, version: &Version) -> String {
    let mut parts: Vec<&str> = resource.group.split('.').rev().collect();
    parts.push(&version.name);
    parts.push(&resource.kind);
    parts.join(".")
}

/// Documents as texts, by path. They are large, and the same until a definition changes.
#[derive(Default)]
pub(crate) struct Cache(Mutex<Made>);

#[derive(Default)]
struct Made {
    /// Of which they tell.
    of: Weak<Registry>,
    texts: BTreeMap<String, Bytes>,
}

impl Cache {
    /// The document at a path; none, if there is none.
    pub(crate) fn get(
        &self,
        registry: &Arc<Registry>,
        path: &str,
        make: impl FnOnce() -> Option<Value>,
    ) -> Option<Bytes> {
        // Whoever comes while it is made waits for it instead of making another.
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Held weakly: what is no longer served goes, whether or not anybody asks again.
        if !std::ptr::eq(made.of.as_ptr(), Arc::as_ptr(registry)) {
            *made = Made { of: Arc::downgrade(registry), texts: BTreeMap::new() };
        }
        if let Some(text) = made.texts.get(path) {
            return Some(text.clone());
        }
        let text = Bytes::from(format!("{}\n", make()?));
        made.texts.insert(path.to_owned(), text.clone());
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere() {
        let registry = Registry::built_in();
        let whole = everything(&registry).to_string();
        for reference in whole.split("\"$ref\":\"#/definitions/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(whole.contains(&format!("\"{name}\":{{")), "{name}");
        }
    }

    #[test]
    fn a_group_has_the_kinds_it_serves() {
        let document = by_path(&Registry::built_in(), "apis/apps/v1").unwrap();
        assert!(document["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"].is_object());
        assert!(by_path(&Registry::built_in(), "apis/apps/v9").is_none());
    }
}
