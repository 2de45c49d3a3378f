//! Secrets and config maps: what was marked immutable stays as it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use structural::{FieldError, Reason};

use super::{Strategy, forbidden, immutable, member};

pub(super) struct Secret;

impl Strategy for Secret {
    fn prepare_create(&self, object: &mut Value) {
        fold_strings(object);
    }

    fn prepare_update(&self, _old: &Value, new: &mut Value, _subresource: Option<&str>) {
        fold_strings(new);
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        keys(object, &["data"]).into_iter().chain(size(object, &["data"], "data")).collect()
    }

    fn validate_update(&self, old: &Value, new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        let mut errors = self.validate_create(new);
        if old["type"] != new["type"] {
            errors.push(immutable("type", &new["type"]));
        }
        errors.extend(kept(old, new, &["data"]));
        errors
    }
}

pub(super) struct ConfigMap;

impl Strategy for ConfigMap {
    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = keys(object, &["data", "binaryData"]);
        for key in object["data"].as_object().into_iter().flat_map(Map::keys) {
            if object["binaryData"].get(key).is_some() {
                let message = format!("Invalid value: \"{key}\": duplicate of key present in binaryData");
                errors.push(FieldError { field: format!("data[{key}]"), reason: Reason::Invalid, message });
            }
        }
        errors.extend(size(object, &["data", "binaryData"], "[]"));
        errors
    }

    fn validate_update(&self, old: &Value, new: &Value, _subresource: Option<&str>) -> Vec<FieldError> {
        let mut errors = self.validate_create(new);
        errors.extend(kept(old, new, &["data", "binaryData"]));
        errors
    }
}

/// What all values together may weigh.
const MOST_BYTES: usize = 1 << 20;

fn size(object: &Value, fields: &[&str], told_as: &str) -> Option<FieldError> {
    let values = fields.iter().flat_map(|field| object[*field].as_object().into_iter().flat_map(Map::values));
    let bytes: usize = values.filter_map(Value::as_str).map(str::len).sum();
    (bytes > MOST_BYTES).then(|| FieldError {
        field: told_as.to_owned(),
        reason: Reason::TooLong,
        message: format!("Too long: may not be more than {MOST_BYTES} bytes"),
    })
}

fn keys(object: &Value, fields: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in fields {
        for key in object[*field].as_object().into_iter().flat_map(Map::keys) {
            if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
                let message = format!(
                    "Invalid value: \"{key}\": a valid config key must consist of alphanumeric characters, '-', '_' or \
                     '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                );
                errors.push(FieldError { field: format!("{field}[{key}]"), reason: Reason::Invalid, message });
            }
        }
    }
    errors
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
