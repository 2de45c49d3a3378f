//! What to change of an object so that it is what a manifest says: between what the manifest said before, what it says now, and
//! what is there. The former is kept on the object, where kubectl keeps it, so that both tools agree.

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

/// Where kubectl keeps what was applied last.
pub(crate) const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The object, with itself written down on it.
pub(super) fn remember(mut object: Value) -> anyhow::Result<Value> {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        bail!("the object has no metadata")
    };
    // An annotation that the manifest brings along is of another time.
    if let Some(annotations) = metadata.entry("annotations").or_insert_with(|| Map::new().into()).as_object_mut() {
        annotations.remove(LAST);
    }
    let text = serde_json::to_string(&object).context("write the object")? + "\n";
    object["metadata"]["annotations"][LAST] = text.into();
    Ok(object)
}

/// The merge patch that makes of a live object what is wanted; none if it is that already.
///
/// # Guarantees
/// - What is wanted is there afterwards; lists as a whole.
/// - What was applied before and is not wanted any more is gone.
/// - What somebody else has added, such as a status, a default or a label, stays.
pub(super) fn patch(live: &Value, wanted: &Value) -> Option<Value> {
    let last = live["metadata"]["annotations"][LAST].as_str().and_then(|text| serde_json::from_str(text).ok());
    let patch = difference(&last.unwrap_or(Value::Null), live, wanted)?;
    Some(patch)
}

fn difference(last: &Value, live: &Value, wanted: &Value) -> Option<Value> {
    let (Value::Object(there), Value::Object(now)) = (live, wanted) else {
        return (live != wanted).then(|| wanted.clone());
    };
    let nothing = Map::new();
    let before = last.as_object().unwrap_or(&nothing);
    let mut patch = Map::new();
    for (name, value) in now.iter().filter(|(_, value)| !value.is_null()) {
        match there.get(name) {
            Some(known) => {
                let change = difference(before.get(name).unwrap_or(&Value::Null), known, value);
                patch.extend(change.map(|change| (name.clone(), change)));
            }
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    let is_wanted = |name: &String| now.get(name).is_some_and(|value| !value.is_null());
    let unwanted = before.keys().filter(|name| !is_wanted(name) && there.contains_key(*name));
    patch.extend(unwanted.map(|name| (name.clone(), Value::Null)));
    (!patch.is_empty()).then(|| patch.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn applied(manifest: &Value) -> Value {
        remember(manifest.clone()).unwrap()
    }

    #[test]
    fn what_the_manifest_no_longer_has_goes_and_what_others_added_stays() {
        let first = applied(
            &json!({ "metadata": { "name": "a", "labels": { "x": "1", "y": "2" } }, "spec": { "cpu": 1, "disks": [1] } }),
        );
        let mut live = first.clone();
        live["status"] = json!({ "phase": "Running" });
        live["metadata"]["labels"]["z"] = "3".into();
        live["spec"]["default"] = true.into();
        let second = applied(&json!({ "metadata": { "name": "a", "labels": { "x": "1" } }, "spec": { "disks": [2] } }));
        let mut patch = patch(&live, &second).unwrap();
        assert!(patch["metadata"]["annotations"][LAST].is_string());
        patch["metadata"].as_object_mut().unwrap().remove("annotations");
        assert_eq!(patch, json!({ "metadata": { "labels": { "y": null } }, "spec": { "cpu": null, "disks": [2] } }));
    }

    #[test]
    fn the_same_again_changes_nothing() {
        let manifest = json!({ "metadata": { "name": "a" }, "spec": { "cpu": 1 } });
        let mut live = applied(&manifest);
        live["status"] = json!({});
        assert_eq!(patch(&live, &applied(&manifest)), None);
        // An object that was created by other means is taken over.
        live["metadata"] = json!({ "name": "a" });
        assert!(patch(&live, &applied(&manifest)).is_some());
    }

    #[test]
    fn an_object_without_metadata_is_refused() {
        assert!(remember(json!({ "kind": "VirtualMachine" })).is_err());
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3_u8).prop_map(Value::from)];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..2).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(Value::from_iter),
            ]
        })
    }

    /// As RFC 7386 says.
    fn merge(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else { return *target = patch.clone() };
        if !target.is_object() {
            *target = json!({});
        }
        for (name, value) in patch {
            match value {
                Value::Null => drop(target.as_object_mut().unwrap().remove(name)),
                value => merge(&mut target[name], value),
            }
        }
    }

    /// Everything in `part` is in `whole`, and nothing that only `gone` has.
    fn holds(whole: &Value, part: &Value, gone: &Value) -> bool {
        let (Value::Object(whole), Value::Object(part)) = (whole, part) else { return whole == part };
        let kept =
            part.iter().all(|(name, value)| whole.get(name).is_some_and(|found| holds(found, value, &gone[name])));
        let removed = gone
            .as_object()
            .into_iter()
            .flatten()
            .all(|(name, _)| part.contains_key(name) || !whole.contains_key(name));
        kept && removed
    }

    proptest! {
        #[test]
        fn the_result_is_what_is_wanted_and_nothing_that_was_only_wanted_before(
            last in values(), live in values(), wanted in values()
        ) {
            let mut result = live.clone();
            if let Some(patch) = difference(&last, &live, &wanted) {
                merge(&mut result, &patch);
            }
            prop_assert!(holds(&result, &wanted, &last), "{result} is not {wanted} without {last}");
        }
    }
}
