//! From a changed object back to the JSON that was sent, without losing fields that the types do not know.

use serde::Serialize;
use serde_json::Value;

/// What `original` becomes if everything that differs between `before` and `after` is changed in it. `None` if nothing
/// differs.
pub(crate) fn carried_over<T: Serialize>(original: &Value, before: &T, after: &T) -> Option<Value> {
    let (before, after) = (serde_json::to_value(before).ok()?, serde_json::to_value(after).ok()?);
    if before == after {
        return None;
    }
    let mut changed = original.clone();
    carry(&mut changed, &before, &after);
    Some(changed)
}

fn carry(target: &mut Value, before: &Value, after: &Value) {
    match (target, before, after) {
        (Value::Object(target), Value::Object(before), Value::Object(after)) => {
            for key in before.keys().filter(|key| !after.contains_key(*key)) {
                target.remove(key);
            }
            for (key, after) in after {
                match before.get(key) {
                    Some(before) if before == after => {}
                    Some(before) => carry(target.entry(key.clone()).or_insert(Value::Null), before, after),
                    None => {
                        target.insert(key.clone(), after.clone());
                    }
                }
            }
        }
        // Lists only grow here; what was in them keeps its place.
        (Value::Array(target), Value::Array(before), Value::Array(after))
            if target.len() == before.len() && before.len() <= after.len() =>
        {
            for ((target, before), after) in target.iter_mut().zip(before).zip(after) {
                carry(target, before, after);
            }
            target.extend(after.iter().skip(before.len()).cloned());
        }
        (target, before, after) => {
            if before != after {
                *target = after.clone();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_types_do_not_know_stays() {
        let original = json!({ "spec": { "a": 1, "future": true, "list": [{ "n": 1, "future": 2 }] }, "gone": 1 });
        let before = json!({ "spec": { "a": 1, "list": [{ "n": 1 }] }, "gone": 1 });
        let after = json!({ "spec": { "a": 2, "b": 3, "list": [{ "n": 1, "m": 2 }, { "n": 5 }] } });
        let wanted = json!({ "spec": { "a": 2, "b": 3, "future": true, "list": [{ "n": 1, "future": 2, "m": 2 }, { "n": 5 }] } });
        assert_eq!(carried_over(&original, &before, &after), Some(wanted));
        assert_eq!(carried_over(&original, &before, &before), None);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..4).prop_map(Value::from)];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..3).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #[test]
        fn without_unknown_fields_the_result_is_what_is_wanted(before in json(), after in json()) {
            let changed = carried_over(&before, &before, &after).unwrap_or_else(|| before.clone());
            prop_assert_eq!(changed, after);
        }
    }
}
