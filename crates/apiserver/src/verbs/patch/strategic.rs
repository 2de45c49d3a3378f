//! Strategic merge: a merge patch that knows the kind, so that it merges lists by their keys instead of replacing them.
//!
//! Lists may be long, on both sides: items are found by the text of their key, never by looking at one after the other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use crate::bounds::shown;
use crate::facts::{Field, Shape, Type, TypeId, facts};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER_OF: &str = "$setElementOrder/";

/// Applies a patch to an object of a kind.
///
/// # Errors
/// What is wrong with the patch.
pub(super) fn apply(kind: TypeId, object: &mut Value, patch: &Value) -> Result<(), String> {
    merge_value(&Shape::Struct(kind), object, patch)
}

fn merge_value(shape: &Shape, old: &mut Value, patch: &Value) -> Result<(), String> {
    match (shape, patch) {
        (Shape::Struct(id), Value::Object(patch)) => merge_object(Of::Struct(facts().get(*id)), old, patch),
        (Shape::Map(inner), Value::Object(patch)) => merge_object(Of::Map(inner), old, patch),
        _ => {
            *old = patch.clone();
            Ok(())
        }
    }
}

/// What an object is: of a known type, or a map of one shape.
#[derive(Clone, Copy)]
enum Of<'a> {
    Struct(&'a Type),
    Map(&'a Shape),
}

impl<'a> Of<'a> {
    fn field(self, name: &str) -> Option<&'a Field> {
        match self {
            Self::Struct(of) => of.field(name),
            Self::Map(_) => None,
        }
    }

    fn shape(self, name: &str) -> &'a Shape {
        match self {
            Self::Struct(of) => of.field(name).map_or(&Shape::Any, |field| &field.shape),
            Self::Map(inner) => inner,
        }
    }
}

fn merge_object(of: Of<'_>, old: &mut Value, patch: &Map<String, Value>) -> Result<(), String> {
    match patch.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            let rest = patch.iter().filter(|(name, _)| *name != DIRECTIVE);
            *old = Value::Object(rest.map(|(name, value)| (name.clone(), value.clone())).collect());
            return Ok(());
        }
        Some("delete") => {
            *old = Value::Object(Map::new());
            return Ok(());
        }
        Some(other) => return Err(format!("unknown patch directive \"{other}\"")),
    }
    if !old.is_object() {
        *old = Value::Object(Map::new());
    }
    let Some(map) = old.as_object_mut() else { return Ok(()) };
    if let Some(kept) = patch.get(RETAIN_KEYS) {
        let kept: BTreeSet<&str> = kept.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        map.retain(|name, _| kept.contains(name.as_str()));
    }
    for (name, value) in patch {
        if name == DIRECTIVE || name == RETAIN_KEYS || name.starts_with(ORDER_OF) {
            continue;
        }
        if let Some(field) = name.strip_prefix(DELETE_FROM) {
            delete_from(map, field, value);
            continue;
        }
        if value.is_null() {
            map.remove(name);
            continue;
        }
        let order = patch.get(&format!("{ORDER_OF}{name}"));
        merge_field(of, map, name, value, order)?;
    }
    // An order may come alone: nothing changed but the places.
    for (name, order) in patch.iter().filter_map(|(name, order)| Some((name.strip_prefix(ORDER_OF)?, order))) {
        let Some(list) = map.get_mut(name).and_then(Value::as_array_mut) else { continue };
        if !patch.contains_key(name) {
            let before = list.clone();
            arrange(list, &before, order.as_array().map_or(&[], Vec::as_slice), merge_key(of, name));
        }
    }
    Ok(())
}

fn merge_key<'a>(of: Of<'a>, name: &str) -> Option<&'a str> {
    of.field(name)?.patch.as_ref()?.key
}

fn merge_field(
    of: Of<'_>,
    map: &mut Map<String, Value>,
    name: &str,
    value: &Value,
    order: Option<&Value>,
) -> Result<(), String> {
    let merges =
        of.field(name).and_then(|field| field.patch.as_ref()).is_some_and(|patch| patch.strategies.contains(&"merge"));
    let shape = of.shape(name);
    let (Shape::List(inner), Value::Array(items), true) = (shape, value, merges) else {
        let slot = map.entry(name).or_insert(Value::Null);
        merge_value(shape, slot, value)?;
        return Ok(());
    };
    let slot = map.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    let Some(list) = slot.as_array_mut() else { return Ok(()) };
    let before = list.clone();
    let key = merge_key(of, name);
    match key {
        Some(key) => merge_by_key(inner, list, items, key)?,
        None => {
            let mut known: BTreeSet<String> = list.iter().map(Value::to_string).collect();
            list.extend(items.iter().filter(|item| known.insert(item.to_string())).cloned());
        }
    }
    match order {
        Some(order) => arrange(list, &before, order.as_array().map_or(&[], Vec::as_slice), key),
        // Whoever gives no order wants that of the patch: what is new comes first.
        None => arrange(list, &before, items, key),
    }
    if list.is_empty() {
        map.remove(name);
    }
    Ok(())
}

fn merge_by_key(inner: &Shape, list: &mut Vec<Value>, items: &[Value], key: &str) -> Result<(), String> {
    if items.iter().any(|item| item[DIRECTIVE] == "replace") {
        let rest = items.iter().filter(|item| item[DIRECTIVE] != "replace");
        *list = rest.cloned().collect();
        return Ok(());
    }
    let mut slots: Vec<Option<Value>> = std::mem::take(list).into_iter().map(Some).collect();
    let mut places: BTreeMap<String, VecDeque<usize>> = BTreeMap::new();
    for (place, one) in slots.iter().enumerate() {
        if let Some(id) = one.as_ref().and_then(|one| one.get(key)) {
            places.entry(id.to_string()).or_default().push_back(place);
        }
    }
    for item in items {
        let Some(id) = item.get(key) else {
            return Err(format!("map: {} does not contain declared merge key: {key}", shown(item)));
        };
        let places = places.entry(id.to_string()).or_default();
        match item[DIRECTIVE].as_str() {
            Some("delete") => {
                if let Some(slot) = places.pop_front().and_then(|place| slots.get_mut(place)) {
                    *slot = None;
                }
            }
            _ => match places.front().and_then(|place| slots.get_mut(*place)) {
                Some(slot) => merge_value(inner, slot.get_or_insert_default(), item)?,
                None => {
                    let mut new = Value::Object(Map::new());
                    merge_value(inner, &mut new, item)?;
                    places.push_back(slots.len());
                    slots.push(Some(new));
                }
            },
        }
    }
    list.extend(slots.into_iter().flatten());
    Ok(())
}

fn delete_from(map: &mut Map<String, Value>, field: &str, values: &Value) {
    let gone: BTreeSet<String> = values.as_array().into_iter().flatten().map(Value::to_string).collect();
    if let Some(list) = map.get_mut(field).and_then(Value::as_array_mut) {
        list.retain(|value| !gone.contains(&value.to_string()));
    }
}

/// Puts items into the order that the client wants. Items that it does not know keep their place among the others.
fn arrange(list: &mut Vec<Value>, before: &[Value], order: &[Value], key: Option<&str>) {
    let id = |item: &Value| key.map_or_else(|| item.to_string(), |key| item[key].to_string());
    let places = |items: &[Value]| {
        let mut places = BTreeMap::new();
        for (place, item) in items.iter().enumerate() {
            places.entry(id(item)).or_insert(place);
        }
        places
    };
    let (wanted, original) = (places(order), places(before));
    let named = list.drain(..).map(|item| (id(&item), item));
    let (mut known, others): (Vec<_>, Vec<_>) = named.partition(|(id, _)| wanted.contains_key(id));
    known.sort_by_key(|(id, _)| wanted.get(id));
    let mut others = others.into_iter().peekable();
    for (id, item) in known {
        let place = original.get(&id);
        // New items come before whatever the server has besides; old ones where they were.
        while let Some((_, other)) =
            others.next_if(|(id, _)| place.is_some_and(|place| original.get(id).is_some_and(|at| at < place)))
        {
            list.push(other);
        }
        list.push(item);
    }
    list.extend(others.map(|(_, other)| other));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pod(object: &Value, patch: &Value) -> Value {
        let mut object = object.clone();
        apply(facts().named("core.v1.Pod").unwrap(), &mut object, patch).unwrap();
        object
    }

    #[test]
    fn lists_with_a_key_are_merged_by_it() {
        let object =
            json!({ "spec": { "containers": [{ "name": "a", "image": "1" }, { "name": "b", "image": "1" }] } });
        let patch = json!({ "spec": { "containers": [{ "name": "b", "image": "2" }, { "name": "c", "image": "3" }] } });
        let containers = pod(&object, &patch)["spec"]["containers"].clone();
        let expected =
            json!([{ "name": "a", "image": "1" }, { "name": "b", "image": "2" }, { "name": "c", "image": "3" }]);
        assert_eq!(containers, expected);
    }

    /// As Kubernetes does it, and its own tests expect it.
    #[test]
    fn what_is_new_comes_first_but_for_what_is_patched_beside_it() {
        let names = |list: &[&str]| -> Value { list.iter().map(|name| json!({ "name": name })).collect() };
        for (before, patch, after) in [
            (&["a", "b"][..], &["n"][..], &["n", "a", "b"][..]),
            (&["a", "b", "c"], &["b", "n"], &["a", "b", "n", "c"]),
            (&["a", "b", "c"], &["c", "a"], &["b", "c", "a"]),
        ] {
            let (object, patch) =
                (json!({ "spec": { "containers": names(before) } }), json!({ "spec": { "containers": names(patch) } }));
            assert_eq!(pod(&object, &patch)["spec"]["containers"], names(after), "{patch}");
        }
        let patched =
            pod(&json!({ "metadata": { "finalizers": ["a/a"] } }), &json!({ "metadata": { "finalizers": ["n/n"] } }));
        assert_eq!(patched["metadata"]["finalizers"], json!(["n/n", "a/a"]));
    }

    #[test]
    fn directives_delete_and_replace() {
        let object = json!({
            "metadata": { "finalizers": ["a/a", "b/b"], "labels": { "x": "1" } },
            "spec": { "containers": [{ "name": "a" }, { "name": "b" }], "nodeSelector": { "k": "v" } },
        });
        let patch = json!({
            "metadata": { "$deleteFromPrimitiveList/finalizers": ["a/a"], "labels": { "x": null, "y": "2" } },
            "spec": { "containers": [{ "name": "a", "$patch": "delete" }], "nodeSelector": { "$patch": "replace", "n": "w" } },
        });
        let expected = json!({
            "metadata": { "finalizers": ["b/b"], "labels": { "y": "2" } },
            "spec": { "containers": [{ "name": "b" }], "nodeSelector": { "n": "w" } },
        });
        assert_eq!(pod(&object, &patch), expected);
    }

    #[test]
    fn lists_without_a_strategy_are_replaced() {
        let object = json!({ "spec": { "containers": [{ "name": "a", "args": ["1", "2"] }] } });
        let patch = json!({ "spec": { "containers": [{ "name": "a", "args": ["3"] }] } });
        assert_eq!(pod(&object, &patch)["spec"]["containers"][0]["args"], json!(["3"]));
    }

    #[test]
    fn an_order_places_what_the_client_knows() {
        let object = json!({ "spec": { "containers": [{ "name": "a" }, { "name": "server" }, { "name": "b" }] } });
        let patch = json!({ "spec": {
            "$setElementOrder/containers": [{ "name": "b" }, { "name": "a" }, { "name": "new" }],
            "containers": [{ "name": "new" }],
        } });
        let names: Vec<String> = pod(&object, &patch)["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["server", "b", "a", "new"]);
    }

    #[test]
    fn an_item_without_its_key_is_refused() {
        let mut object = json!({});
        let patch = json!({ "spec": { "containers": [{ "image": "x" }] } });
        let problem = apply(facts().named("core.v1.Pod").unwrap(), &mut object, &patch).unwrap_err();
        assert!(problem.contains("does not contain declared merge key: name"), "{problem}");
    }

    fn spec() -> impl Strategy<Value = Value> {
        let container = ("[a-c]", prop::option::of("[xy]")).prop_map(|(name, image)| match image {
            Some(image) => json!({ "name": name, "image": image }),
            None => json!({ "name": name }),
        });
        let unique = |list: Vec<Value>| {
            let mut seen = Vec::new();
            list.into_iter()
                .filter(|one| {
                    !seen.contains(&one["name"]) && {
                        seen.push(one["name"].clone());
                        true
                    }
                })
                .collect::<Vec<_>>()
        };
        (prop::collection::vec(container, 0..4), prop::collection::btree_map("[a-c]", "[xy]", 0..3))
            .prop_map(move |(containers, selector)| json!({ "spec": { "containers": unique(containers), "nodeSelector": selector } }))
    }

    proptest! {
        #[test]
        fn a_patch_applied_twice_is_applied_once(object in spec(), patch in spec()) {
            let once = pod(&object, &patch);
            prop_assert_eq!(pod(&once, &patch), once);
        }

        #[test]
        fn what_the_patch_says_is_there_afterwards(object in spec(), patch in spec()) {
            let result = pod(&object, &patch);
            for container in patch["spec"]["containers"].as_array().unwrap() {
                let found = result["spec"]["containers"].as_array().unwrap().iter().find(|one| one["name"] == container["name"]);
                for (field, value) in container.as_object().unwrap() {
                    prop_assert_eq!(&found.unwrap()[field], value);
                }
            }
        }
    }
}
