//! When two pod templates are the same, and the hash that names a template's replica set.

use std::fmt::Write;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;

use manager::names;

/// The label that tells the pods of one template from those of another.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// Fields that hold a map, where none and an empty one mean the same. Elsewhere an empty object counts: `emptyDir`.
const MAPS: [&str; 7] = ["annotations", "labels", "limits", "matchLabels", "nodeSelector", "overhead", "requests"];
/// Maps whose values are quantities: `1000m` and `1` are the same.
const QUANTITIES: [&str; 3] = ["limits", "overhead", "requests"];

/// A template in the one form that all templates with its meaning have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Canonical(String);

impl Canonical {
    pub(super) fn of(template: &PodTemplateSpec) -> Self {
        let mut template = template.clone();
        if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
            labels.remove(HASH_LABEL);
        }
        let mut text = String::new();
        // A template is plain data with text keys: it always serializes.
        write_value(&mut text, None, &serde_json::to_value(template).unwrap_or_default());
        Self(text)
    }

    /// Differs between templates but for collisions, which `collisions` (the number of those found so far) resolves.
    pub(super) fn hash(&self, collisions: Option<i32>) -> String {
        let mut bytes = self.0.clone().into_bytes();
        if let Some(count) = collisions {
            bytes.extend(count.to_le_bytes());
        }
        names::safe(names::fnv1a(&bytes))
    }
}

/// Keys sorted, nothing written that means nothing. The order of `Value`'s own map depends on a feature of `serde_json`
/// that any crate of the build may turn on.
fn write_value(out: &mut String, parent: Option<&str>, value: &Value) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().filter(|(key, value)| !means_nothing(key, value)).collect();
            fields.sort_by_key(|(key, _)| key.as_str());
            out.push('{');
            for (key, value) in fields {
                write_text(out, key);
                out.push(':');
                match (parent, value) {
                    (Some(parent), Value::String(text)) if QUANTITIES.contains(&parent) => write_quantity(out, text),
                    _ => write_value(out, Some(key), value),
                }
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_value(out, None, item);
                out.push(',');
            }
            out.push(']');
        }
        Value::String(text) => write_text(out, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => write_text_of(out, value),
    }
}

fn means_nothing(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && (MAPS.contains(&key) || key == "metadata"),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn write_quantity(out: &mut String, text: &str) {
    match text.parse::<api::quantity::Amount>() {
        // A sum has the notation of its left side: `1Ki` and `1024` come out alike. What is added does not matter.
        Ok(amount) => write_text(out, &(api::quantity::Amount::milli(1) + amount).to_string()),
        Err(_) => write_text(out, text),
    }
}

fn write_text(out: &mut String, text: &str) {
    write_text_of(out, &Value::String(text.to_owned()));
}

fn write_text_of(out: &mut String, value: &Value) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{value}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn canonical(template: Value) -> Canonical {
        Canonical::of(&serde_json::from_value(template).unwrap())
    }

    fn image(image: &str) -> Value {
        let container = json!({ "name": "web", "image": image });
        json!({ "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [container] } })
    }

    #[test]
    fn the_hash_label_is_no_part_of_a_template() {
        let mut labelled = image("a");
        labelled["metadata"]["labels"][HASH_LABEL] = json!("bcdfg");
        assert_eq!(canonical(labelled), canonical(image("a")));
        assert_ne!(canonical(image("a")), canonical(image("b")));
    }

    #[test]
    fn nothing_and_an_empty_list_or_map_are_the_same() {
        let mut empty = image("a");
        empty["metadata"]["annotations"] = json!({});
        empty["spec"]["volumes"] = json!([]);
        empty["spec"]["nodeSelector"] = json!({});
        assert_eq!(canonical(empty), canonical(image("a")));
    }

    #[test]
    fn an_empty_object_that_means_something_counts() {
        let volume = |volume: Value| {
            let mut template = image("a");
            template["spec"]["volumes"] = json!([volume]);
            canonical(template)
        };
        assert_ne!(volume(json!({ "name": "v", "emptyDir": {} })), volume(json!({ "name": "v" })));
    }

    #[test]
    fn quantities_are_compared_by_amount() {
        let limited = |cpu: &str| {
            let mut template = image("a");
            template["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": cpu } });
            canonical(template)
        };
        assert_eq!(limited("1000m"), limited("1"));
        assert_eq!(limited("1Ki"), limited("1024"));
        assert_ne!(limited("1000m"), limited("2"));
    }

    #[test]
    fn a_hash_is_stable_and_depends_on_collisions() {
        let template = canonical(image("a"));
        assert_eq!(template.hash(None), canonical(image("a")).hash(None));
        let hashes =
            [template.hash(None), template.hash(Some(1)), template.hash(Some(2)), canonical(image("b")).hash(None)];
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash), "{hashes:?}");
            assert!(hash.chars().all(|letter| "bcdfghjklmnpqrstvwxz2456789".contains(letter)), "{hash}");
        }
    }
}
