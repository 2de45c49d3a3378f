//! Namespaces: held by the finalizers of their spec until whoever empties them is done.

use serde_json::{Value, json};
use structural::{FieldError, Reason};

use super::{Strategy, member};

pub(super) struct Namespace;

impl Strategy for Namespace {
    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({ "phase": "Active" });
        if let Some(spec) = member(object, "spec") {
            let list = spec.entry("finalizers").or_insert_with(|| json!([]));
            if let Some(list) = list.as_array_mut()
                && !list.iter().any(|one| one == "kubernetes")
            {
                list.push("kubernetes".into());
            }
        }
        label(object);
    }

    fn prepare_update(&self, old: &Value, new: &mut Value, subresource: Option<&str>) {
        match subresource {
            // The only way to the finalizers of the spec.
            Some("finalize") => new["status"] = old["status"].clone(),
            _ => new["spec"]["finalizers"] = old["spec"]["finalizers"].clone(),
        }
        if new["spec"]["finalizers"].is_null()
            && let Some(spec) = member(new, "spec")
        {
            spec.remove("finalizers");
        }
        label(new);
    }

    fn validate_update(&self, _old: &Value, new: &Value, subresource: Option<&str>) -> Vec<FieldError> {
        if subresource != Some("finalize") {
            return Vec::new();
        }
        let names = new["spec"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let bad = names.enumerate().filter(|(_, name)| !name.contains('/') && *name != "kubernetes");
        bad.map(|(index, name)| FieldError {
            field: format!("spec.finalizers[{index}]"),
            reason: Reason::Invalid,
            message: format!(
                "Invalid value: \"{name}\": name is neither a standard finalizer name nor is it fully qualified"
            ),
        })
        .collect()
    }

    fn deleting(&self, object: &mut Value) {
        object["status"]["phase"] = "Terminating".into();
    }

    fn is_held(&self, object: &Value) -> bool {
        object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
    }
}

/// Selectors find a namespace by its name.
fn label(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if let Some(metadata) = member(object, "metadata") {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        labels["kubernetes.io/metadata.name"] = name;
    }
}
