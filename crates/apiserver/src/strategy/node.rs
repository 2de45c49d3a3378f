//! Nodes: they bring their status along when they register.

use serde_json::Value;

use super::Strategy;

pub(super) struct Node;

impl Strategy for Node {
    fn keeps_status_on_create(&self) -> bool {
        true
    }

    fn prepare_update(&self, old: &Value, new: &mut Value, subresource: Option<&str>) {
        // A node without a pod range may get one later, by anyone who may write nodes; the rest is free.
        if subresource.is_none() && new["spec"]["providerID"].is_null() && !old["spec"]["providerID"].is_null() {
            new["spec"]["providerID"] = old["spec"]["providerID"].clone();
        }
    }
}
