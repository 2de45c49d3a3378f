//! Requests for certificates: they name who made them, and nobody can name another.

use serde_json::{Value, json};

use super::Strategy;
use crate::identity::Identity;

pub(super) struct SigningRequest;

impl Strategy for SigningRequest {
    fn sign(&self, object: &mut Value, who: &Identity) {
        let spec = &mut object["spec"];
        spec["username"] = who.user.as_str().into();
        spec["groups"] = json!(who.groups);
        if let Some(spec) = spec.as_object_mut() {
            spec.remove("uid");
            spec.remove("extra");
        }
    }

    fn prepare_update(&self, old: &Value, new: &mut Value, _subresource: Option<&str>) {
        new["spec"] = old["spec"].clone();
    }
}
