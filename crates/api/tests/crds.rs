//! What an API server and `kubectl apply` ask of a CRD, as far as it can be told without them.
#![expect(clippy::panic, reason = "a test fails by panicking")]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// `kubectl apply` keeps the whole object in an annotation, and all annotations together may have 256 KiB.
const MOST_BYTES: usize = 250_000;

fn all() -> Vec<CustomResourceDefinition> {
    let made = api::crd::all().and_then(|all| Ok([all, api::crd::storage()?].concat()));
    made.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn each_fits_into_the_annotation_of_kubectl_apply() {
    for crd in all() {
        let bytes = serde_json::to_vec(&crd).map_or(usize::MAX, |json| json.len());
        assert!(bytes < MOST_BYTES, "{:?} has {bytes} bytes", crd.metadata.name);
    }
}

#[test]
fn one_version_is_stored() {
    for crd in all() {
        let stored = crd.spec.versions.iter().filter(|version| version.storage).count();
        assert_eq!(stored, 1, "{:?}", crd.metadata.name);
    }
}

#[test]
fn each_schema_is_structural() {
    for crd in all() {
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
            let name = crd.metadata.name.as_deref().unwrap_or_default();
            structural(&format!("{name}/{}", version.name), schema.unwrap_or_else(|| panic!("{name} has no schema")));
        }
    }
}

/// Every field can be explained: `kubectl explain` shows a sentence that ends like one.
#[test]
fn each_field_has_a_sentence() {
    for crd in all() {
        let version = &crd.spec.versions[0];
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        let name = crd.metadata.name.as_deref().unwrap_or_default();
        let mut schema = schema.unwrap_or_else(|| panic!("{name} has no schema")).clone();
        // The API server explains the metadata of a root itself.
        schema.properties.get_or_insert_default().remove("metadata");
        described(name, &schema);
    }
}

fn structural(path: &str, schema: &JSONSchemaProps) {
    let int_or_string = schema.x_kubernetes_int_or_string == Some(true);
    assert!(schema.type_.is_some() || int_or_string, "{path} has no type");
    assert!(schema.ref_path.is_none() && schema.one_of.is_none() && schema.all_of.is_none(), "{path} is composed");
    assert!(int_or_string || schema.any_of.is_none(), "{path} is a choice");
    let is_map = schema.additional_properties.is_some();
    assert!(!(is_map && schema.properties.is_some()), "{path} is both a map and an object");
    for (key, inner, is_field) in children(schema) {
        let separator = if is_field { "." } else { "" };
        structural(&format!("{path}{separator}{key}"), inner);
    }
}

fn described(path: &str, schema: &JSONSchemaProps) {
    for (key, inner, is_field) in children(schema) {
        let path = format!("{path}.{key}");
        if is_field {
            let description = inner.description.as_deref().unwrap_or_default();
            assert!(description.ends_with('.') && description.len() > 8, "{path}: {description:?} explains nothing");
        }
        described(&path, inner);
    }
}

/// Fields, elements and values, and whether it is a field.
fn children(schema: &JSONSchemaProps) -> Vec<(&str, &JSONSchemaProps, bool)> {
    let mut children: Vec<(&str, &JSONSchemaProps, bool)> = Vec::new();
    children.extend(schema.properties.iter().flatten().map(|(key, inner)| (key.as_str(), inner, true)));
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        children.push(("[]", items, false));
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        children.push(("{}", values, false));
    }
    children
}
