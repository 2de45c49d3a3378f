//! What Kubernetes' API server, and clients through it, are told about the group: discovery and OpenAPI.

use http::{HeaderMap, header};
use serde_json::{Map, Value, json};
use virt_api::subresources::{GROUP, VERSIONS, paths, resources};

/// What is at a path, if it is one of these.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Document {
    Here(Value),
    /// Only in another form than all that were asked for.
    NotAcceptable,
}

pub(crate) fn document(path: &str, headers: &HeaderMap) -> Option<Document> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let is_version = |version: &str| VERSIONS.contains(&version);
    let value = match parts.as_slice() {
        // Whoever asks for nothing but the newer form falls back to the pages of the versions.
        ["apis"] if wants_only_the_newer_form(headers) => return Some(Document::NotAcceptable),
        ["apis"] => json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group()] }),
        ["apis", GROUP] => {
            let mut group = group();
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }
        ["apis", GROUP, version] if is_version(version) => json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{version}"),
            "resources": resources(),
        }),
        ["openapi", "v2"] => {
            let all: Map<String, Value> = VERSIONS.iter().flat_map(|version| paths_v2(version)).collect();
            json!({ "swagger": "2.0", "info": info("all"), "paths": all, "definitions": {} })
        }
        ["openapi", "v3"] => {
            let entry = |version: &&str| {
                let path = format!("apis/{GROUP}/{version}");
                let url = format!("/openapi/v3/{path}?hash={}", env!("CARGO_PKG_VERSION"));
                (path, json!({ "serverRelativeURL": url }))
            };
            json!({ "paths": VERSIONS.iter().map(entry).collect::<Map<String, Value>>() })
        }
        ["openapi", "v3", "apis", GROUP, version] if is_version(version) => json!({
            "openapi": "3.0.0", "info": info(version), "paths": paths(version), "components": { "schemas": {} },
        }),
        _ => return None,
    };
    Some(Document::Here(value))
}

fn group() -> Value {
    let version = |version: &&str| json!({ "groupVersion": format!("{GROUP}/{version}"), "version": version });
    let versions: Vec<Value> = VERSIONS.iter().map(version).collect();
    json!({ "name": GROUP, "preferredVersion": versions.first(), "versions": versions })
}

fn info(version: &str) -> Value {
    json!({ "title": GROUP, "version": version })
}

/// The older form has the type of a parameter beside its name.
fn paths_v2(version: &str) -> Map<String, Value> {
    let mut paths = paths(version);
    for operation in paths.values_mut().filter_map(Value::as_object_mut).flat_map(|path| path.values_mut()) {
        for parameter in operation["parameters"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            if let Some(schema) = parameter.remove("schema") {
                parameter.insert("type".to_owned(), schema["type"].clone());
            }
        }
    }
    paths
}

fn wants_only_the_newer_form(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let forms: Vec<&str> = accepted.flat_map(|value| value.split(',')).collect();
    !forms.is_empty() && forms.iter().all(|form| form.contains("as=APIGroupDiscoveryList"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(path: &str) -> Value {
        match document(path, &HeaderMap::new()) {
            Some(Document::Here(value)) => value,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn every_version_is_told_of_in_every_document() {
        assert_eq!(here("/apis")["groups"][0]["preferredVersion"]["version"], "v1");
        assert_eq!(here("/apis/subresources.kubevirt.io")["versions"].as_array().unwrap().len(), 2);
        let start = "/namespaces/{namespace}/virtualmachines/{name}/start";
        for version in VERSIONS {
            let listed = here(&format!("/apis/{GROUP}/{version}"));
            let names: Vec<&str> =
                listed["resources"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
            assert!(names.contains(&"virtualmachineinstances/console"), "{names:?}");
            let full = format!("/apis/{GROUP}/{version}{start}");
            assert!(here(&format!("/openapi/v3/apis/{GROUP}/{version}"))["paths"][&full]["put"].is_object());
            let older = here("/openapi/v2");
            assert_eq!(older["paths"][&full]["put"]["parameters"][0]["type"], "string");
            assert!(here("/openapi/v3")["paths"][format!("apis/{GROUP}/{version}")].is_object());
        }
        for path in ["/", "/apis/other", "/apis/subresources.kubevirt.io/v2", "/openapi/v3/apis/other/v1", "/openapi"] {
            assert_eq!(document(path, &HeaderMap::new()), None, "{path}");
        }
    }

    #[test]
    fn the_newer_form_of_discovery_is_not_pretended() {
        let newer = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let asked =
            |accept: &str| document("/apis", &HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]));
        assert_eq!(asked(newer), Some(Document::NotAcceptable));
        assert!(matches!(asked(&format!("{newer},application/json")), Some(Document::Here(_))));
    }
}
