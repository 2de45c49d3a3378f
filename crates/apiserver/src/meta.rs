//! The rules for metadata that all kinds share.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use structural::{FieldError, Reason};

use crate::bounds::{MOST_TOLD, cut, shown};
use crate::clock::{self, Chance};
use crate::names;
use crate::registry::Resource;

/// All annotations of an object together.
const MOST_ANNOTATION_BYTES: usize = 256 << 10;
const FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

/// The metadata of an object, made if it is not there; none, if the value is no object at all.
pub(crate) fn of(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let slot = object.as_object_mut()?.entry("metadata").or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut()
}

pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Names an object and sets what only the server sets.
pub(crate) fn initialize(resource: &Resource, object: &mut Value, now: Timestamp, chance: &Chance) {
    let Some(metadata) = of(object) else { return };
    for field in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), chance.uid().into());
    metadata.insert("creationTimestamp".to_owned(), clock::text(now).into());
    if resource.generation {
        metadata.insert("generation".to_owned(), 1.into());
    }
    let named = metadata.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    let prefix = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default();
    if !named && !prefix.is_empty() {
        // A generated name is at most 63 characters, so that it can be a label's value.
        let prefix: String = prefix.chars().take(58).collect();
        metadata.insert("name".to_owned(), format!("{prefix}{}", chance.suffix()).into());
    }
}

/// What is wrong with the metadata of a new object.
pub(crate) fn validate(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(object, "name");
    let prefix = text(object, "generateName");
    if !prefix.is_empty() {
        for problem in names::prefix(resource.name_rule, prefix) {
            errors.push(invalid("metadata.generateName", prefix, &problem));
        }
    }
    if name.is_empty() {
        let message = "Required value: name or generateName is required";
        errors.push(error("metadata.name", Reason::Required, message));
    } else {
        for problem in names::name(resource.name_rule, name) {
            errors.push(invalid("metadata.name", name, &problem));
        }
    }
    validate_common(object, &mut errors);
    errors
}

/// What is wrong with the metadata of a changed object.
pub(crate) fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate_common(new, &mut errors);
    if !old["metadata"]["deletionTimestamp"].is_null() {
        let before: BTreeSet<&str> = list(old, "finalizers").into_iter().collect();
        let added: Vec<&str> = list(new, "finalizers").into_iter().filter(|one| !before.contains(one)).collect();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().take(MOST_TOLD).map(|one| Value::from(*one).to_string()).collect();
            let message = format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                quoted.join(", ")
            );
            errors.push(error("metadata.finalizers", Reason::Forbidden, &message));
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (before, after) = (&old["metadata"][field], &new["metadata"][field]);
        if before != after {
            let message = format!("Invalid value: {}: field is immutable", shown(after));
            errors.push(error(&format!("metadata.{field}"), Reason::Invalid, &message));
        }
    }
    errors
}

/// Takes over what a change cannot change and need not repeat.
pub(crate) fn carry_over(old: &Value, new: &mut Value) {
    let Some(metadata) = of(new) else { return };
    for field in ["selfLink", "managedFields"] {
        metadata.remove(field);
    }
    if metadata.get("uid").is_none_or(|value| value.is_null() || value.as_str() == Some("")) {
        put(metadata, "uid", &old["metadata"]["uid"]);
    }
    put(metadata, "creationTimestamp", &old["metadata"]["creationTimestamp"]);
    // A deletion cannot be taken back or put off.
    if !old["metadata"]["deletionTimestamp"].is_null() {
        put(metadata, "deletionTimestamp", &old["metadata"]["deletionTimestamp"]);
    }
    if metadata.get("deletionGracePeriodSeconds").is_none_or(Value::is_null) {
        put(metadata, "deletionGracePeriodSeconds", &old["metadata"]["deletionGracePeriodSeconds"]);
    }
    put(metadata, "generation", &old["metadata"]["generation"]);
    put(metadata, "resourceVersion", &old["metadata"]["resourceVersion"]);
}

fn put(metadata: &mut Map<String, Value>, field: &str, value: &Value) {
    if value.is_null() {
        metadata.remove(field);
    } else {
        metadata.insert(field.to_owned(), value.clone());
    }
}

/// The finalizers or other texts in a list.
pub(crate) fn list<'a>(object: &'a Value, field: &str) -> Vec<&'a str> {
    object["metadata"][field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn validate_common(object: &Value, errors: &mut Vec<FieldError>) {
    let metadata = &object["metadata"];
    for key in metadata["annotations"].as_object().into_iter().flat_map(Map::keys) {
        if errors.len() >= MOST_TOLD {
            return;
        }
        for problem in names::qualified_name(&key.to_lowercase()) {
            errors.push(invalid("metadata.annotations", key, &problem));
        }
    }
    let size: usize = metadata["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > MOST_ANNOTATION_BYTES {
        let message = format!("Too long: may not be more than {MOST_ANNOTATION_BYTES} bytes");
        errors.push(error("metadata.annotations", Reason::TooLong, &message));
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        if errors.len() >= MOST_TOLD {
            return;
        }
        for problem in names::qualified_name(key) {
            errors.push(invalid("metadata.labels", key, &problem));
        }
        let value = value.as_str().unwrap_or_default();
        for problem in names::label_value(value) {
            errors.push(invalid("metadata.labels", value, &problem));
        }
    }
    for (index, name) in list(object, "finalizers").into_iter().enumerate() {
        if errors.len() >= MOST_TOLD {
            return;
        }
        for problem in names::qualified_name(name) {
            errors.push(invalid("metadata.finalizers", name, &problem));
        }
        if !name.contains('/') && !FINALIZERS.contains(&name) {
            let field = format!("metadata.finalizers[{index}]");
            errors.push(invalid(&field, name, "name is neither a standard finalizer name nor is it fully qualified"));
        }
    }
    if list(object, "finalizers").contains(&"orphan") && list(object, "finalizers").contains(&"foregroundDeletion") {
        let value = shown(&metadata["finalizers"]);
        let message = format!("Invalid value: {value}: finalizer orphan and foregroundDeletion cannot be both set");
        errors.push(error("metadata.finalizers", Reason::Invalid, &message));
    }
    validate_owners(metadata, errors);
}

fn validate_owners(metadata: &Value, errors: &mut Vec<FieldError>) {
    let mut controller: Option<String> = None;
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        if errors.len() >= MOST_TOLD {
            return;
        }
        let path = "metadata.ownerReferences";
        for (field, problem) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                errors.push(error(
                    &format!("{path}.{field}"),
                    Reason::Invalid,
                    &format!("Invalid value: \"\": {problem}"),
                ));
            }
        }
        if owner["kind"] == "Event" && matches!(owner["apiVersion"].as_str(), Some("v1" | "events.k8s.io/v1")) {
            let message = format!("Invalid value: {}: /v1, Kind=Event is disallowed from being an owner", shown(owner));
            errors.push(error(path, Reason::Invalid, &message));
        }
        if owner["controller"] == true {
            let text = |field: &str| cut(owner[field].as_str().unwrap_or_default());
            let this = format!("{}/{}", text("kind"), text("name"));
            if let Some(first) = &controller {
                let message = format!(
                    "Invalid value: {}: Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}",
                    shown(&metadata["ownerReferences"])
                );
                errors.push(error(path, Reason::Invalid, &message));
            }
            controller = Some(controller.unwrap_or(this));
        }
    }
}

fn invalid(field: &str, value: &str, problem: &str) -> FieldError {
    error(field, Reason::Invalid, &format!("Invalid value: {}: {problem}", Value::from(cut(value))))
}

fn error(field: &str, reason: Reason, message: &str) -> FieldError {
    FieldError { field: field.to_owned(), reason, message: message.to_owned() }
}
