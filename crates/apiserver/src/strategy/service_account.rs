//! Service accounts and services: small kinds with a word of their own.

use serde_json::Value;
use structural::FieldError;

use super::{Strategy, immutable};

pub(super) struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn returns_deleted(&self) -> bool {
        true
    }
}

pub(super) struct Service;

impl Strategy for Service {
    fn returns_deleted(&self) -> bool {
        true
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn prepare_update(&self, old: &Value, new: &mut Value, _subresource: Option<&str>) {
        // Clients that leave out what was allocated mean to keep it.
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if new["spec"][field].is_null() && !old["spec"][field].is_null() {
                new["spec"][field] = old["spec"][field].clone();
            }
        }
    }

    fn validate_update(&self, old: &Value, new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        let (before, after) = (&old["spec"]["clusterIP"], &new["spec"]["clusterIP"]);
        let assigned = before.as_str().is_some_and(|address| !address.is_empty());
        let external = new["spec"]["type"] == "ExternalName";
        if assigned && !external && before != after { vec![immutable("spec.clusterIP", after)] } else { Vec::new() }
    }
}
