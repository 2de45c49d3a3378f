//! Whatever reads the bytes of clients, as functions of bytes: each returns, or panics where a promise is broken. The fuzzers of
//! `fuzz/` look for bytes that lead to new places; the property tests here change what is right.

#[cfg(test)]
mod tests;

use rustls::pki_types::CertificateDer;
use serde_json::Value;

use crate::bounds::{self, DEEPEST, LARGEST_BODY, MOST_TOLD};
use crate::facts::{self, facts};
use crate::json::{self, Document};
use crate::jsonpath::Path;
use crate::protobuf;
use crate::request::{Query, Target, WriteOptions};
use crate::selector::{FieldSelector, LabelSelector};
use crate::verbs::Patch;

/// A body in JSON.
pub fn json_body(bytes: &[u8]) {
    if let Ok(document) = json::parse(bytes) {
        document_holds(&document);
    }
}

/// A body in YAML.
pub fn yaml_body(bytes: &[u8]) {
    if let Ok(document) = json::parse_yaml(bytes) {
        document_holds(&document);
    }
}

/// A body in Kubernetes' protobuf form, as an object of its kind.
pub fn protobuf_body(bytes: &[u8]) {
    let Ok(mut value) = protobuf::decode(bytes) else { return };
    assert!(bounds::depth(&value) <= DEEPEST);
    let (group, version) = match text(&value["apiVersion"]).split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), text(&value["apiVersion"]).to_owned()),
    };
    if let Some(id) = facts().of_kind(&group, &version, text(&value["kind"])) {
        drop(facts::decode(id, &mut value));
    }
}

/// A patch: a byte for its form, an object, a line's end, and the patch itself.
pub fn patch(bytes: &[u8]) {
    let Some((form, rest)) = bytes.split_first() else { return };
    let Some(at) = rest.iter().position(|byte| *byte == b'\n') else { return };
    let (object, patch) = rest.split_at(at);
    let Ok(Document { value: mut object, .. }) = json::parse(object) else { return };
    let media_type = match form % 3 {
        0 => "application/json-patch+json",
        1 => "application/merge-patch+json",
        _ => "application/strategic-merge-patch+json",
    };
    let pod = facts().named("core.v1.Pod");
    let Ok(read) = Patch::of(media_type, pod, patch) else { return };
    let before = bounds::measure(&object).bytes;
    if read.apply(&mut object).is_err() {
        return;
    }
    let after = bounds::measure(&object);
    assert!(after.depth <= DEEPEST, "{} levels", after.depth);
    // All of the object, all of the patch, and what the patch may copy.
    assert!(after.bytes <= before + patch.len() + LARGEST_BODY, "{} bytes of {before}", after.bytes);
    if let Some(id) = pod {
        drop(facts::decode(id, &mut object));
    }
}

/// Selectors of labels and of fields.
pub fn selectors(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    drop(FieldSelector::parse(text));
    if let Ok(selector) = LabelSelector::parse(text) {
        // What has no condition takes all.
        assert!(!selector.is_empty() || selector.matches(|_| None));
        selector.matches(|_| Some("1"));
    }
}

/// Paths and queries of requests, and paths into objects.
pub fn paths(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(target) = Target::parse(text) {
        assert!(
            !target.resource.is_empty()
                && target.name.as_deref() != Some("")
                && target.namespace.as_deref() != Some("")
        );
    }
    let query = Query::parse(text);
    drop(WriteOptions::parse(&query, "CreateOptions"));
    drop(query.number("limit"));
    if let Ok(path) = Path::parse(text) {
        let object = serde_json::json!({ "a": [{ "a": 1, "b": "x" }, [1, 2]], "b": { "a": { "b": [] } } });
        path.find(&object);
    }
}

/// A client's certificate.
pub fn certificate(bytes: &[u8]) {
    drop(crate::serve::identify(&CertificateDer::from(bytes)));
}

/// What was read is within its bounds, and is read again from what would be stored.
fn document_holds(document: &Document) {
    let Document { value, duplicates } = document;
    assert!(bounds::depth(value) <= DEEPEST && duplicates.len() <= MOST_TOLD);
    let again = json::parse(value.to_string().as_bytes());
    assert!(again.is_ok_and(|again| same(&again.value, value)), "{value}");
}

/// Equal, but for the last bits of fractions, which are read in a hurry.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|other| same(one, other)))
        }
        (Value::Number(one), Value::Number(other)) => {
            let (Some(one), Some(other)) = (one.as_f64(), other.as_f64()) else { return false };
            (one - other).abs() <= one.abs() * 1e-15
        }
        (one, other) => one == other,
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
