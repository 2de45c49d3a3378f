//! Persistent volumes and their claims: protected while in use, their source fixed.

use serde_json::{Value, json};
use structural::FieldError;

use super::{Strategy, forbidden, member};

pub(super) struct Claim;

impl Strategy for Claim {
    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({ "phase": "Pending" });
        protect(object, "kubernetes.io/pvc-protection");
    }

    fn validate_update(&self, old: &Value, new: &Value, subresource: Option<&str>) -> Vec<FieldError> {
        if subresource.is_some() {
            return Vec::new();
        }
        let mut allowed = new["spec"].clone();
        // A claim may be bound, grow, and change how it is served.
        allowed["resources"] = old["spec"]["resources"].clone();
        for field in ["volumeName", "volumeAttributesClassName", "storageClassName"] {
            let free = old["spec"][field].is_null() || field == "volumeAttributesClassName";
            if free && let Some(allowed) = allowed.as_object_mut() {
                match old["spec"].get(field) {
                    Some(before) => drop(allowed.insert(field.to_owned(), before.clone())),
                    None => drop(allowed.remove(field)),
                }
            }
        }
        if allowed == old["spec"] {
            return Vec::new();
        }
        let why =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        vec![forbidden("spec", why)]
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

pub(super) struct Volume;

impl Strategy for Volume {
    fn prepare_create(&self, object: &mut Value) {
        let now = object["metadata"]["creationTimestamp"].clone();
        object["status"] = json!({ "phase": "Pending", "lastPhaseTransitionTime": now });
        protect(object, "kubernetes.io/pv-protection");
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

/// The finalizer that the protection controllers take away when nobody uses it.
fn protect(object: &mut Value, finalizer: &str) {
    if let Some(metadata) = member(object, "metadata") {
        let list = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut()
            && !list.iter().any(|one| one == finalizer)
        {
            list.push(finalizer.into());
        }
    }
}
