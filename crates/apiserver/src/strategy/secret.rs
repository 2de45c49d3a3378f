//! Secrets and config maps: what was marked immutable stays as it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use structural::FieldError;

use super::{Strategy, forbidden, immutable, member};

pub(super) struct Secret;

impl Strategy for Secret {
    fn prepare_create(&self, object: &mut Value) {
        fold_strings(object);
    }

    fn prepare_update(&self, _old: &Value, new: &mut Value, _subresource: Option<&str>) {
        fold_strings(new);
    }

    fn validate_update(&self, old: &Value, new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if old["type"] != new["type"] {
            errors.push(immutable("type", &new["type"]));
        }
        errors.extend(kept(old, new, &["data"]));
        errors
    }
}

pub(super) struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate_update(&self, old: &Value, new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        kept(old, new, &["data", "binaryData"])
    }
}

/// `stringData` is for writing only: it ends up in `data`.
fn fold_strings(object: &mut Value) {
    let strings = object.as_object_mut().and_then(|object| object.remove("stringData"));
    let Some(Value::Object(strings)) = strings else { return };
    if let Some(data) = member(object, "data") {
        for (key, value) in strings {
            let text = value.as_str().unwrap_or_default();
            data.insert(key, json!(STANDARD.encode(text)));
        }
    }
}

fn kept(old: &Value, new: &Value, fields: &[&str]) -> Vec<FieldError> {
    if old["immutable"] != true {
        return Vec::new();
    }
    let mut errors = Vec::new();
    if new["immutable"] != true {
        errors.push(forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for field in fields {
        if old[*field] != new[*field] {
            errors.push(forbidden(field, "field is immutable when `immutable` is set"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_win_over_data_and_are_not_kept() {
        let mut secret = json!({ "data": { "a": "eA==" }, "stringData": { "a": "y", "b": "z" } });
        Secret.prepare_create(&mut secret);
        assert_eq!(secret, json!({ "data": { "a": "eQ==", "b": "eg==" } }));
    }

    #[test]
    fn an_immutable_map_neither_changes_nor_becomes_mutable() {
        let old = json!({ "immutable": true, "data": { "a": "1" } });
        let changed = json!({ "immutable": false, "data": { "a": "2" } });
        let fields: Vec<String> =
            ConfigMap.validate_update(&old, &changed, None).into_iter().map(|error| error.field).collect();
        assert_eq!(fields, ["immutable", "data"]);
        assert!(ConfigMap.validate_update(&old, &old, None).is_empty());
    }
}
