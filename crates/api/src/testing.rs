//! Objects made up from schemas, for property tests of whoever reads them.
#![expect(clippy::panic, clippy::unwrap_used, reason = "an invalid schema fails the test that uses it")]

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// Strings that are durations: the schema does not say so, the types do.
const DURATIONS: &[&str] = &[
    "batchEvictionInterval",
    "caOverlapInterval",
    "caRotateInterval",
    "certRotateInterval",
    "duration",
    "failureDeadline",
    "minFailingToStartDuration",
    "renewBefore",
    "timeout",
    "ttlDuration",
    "unfreezeTimeout",
];

/// How optional fields are treated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optional {
    /// Each is there now and then.
    Sometimes,
    /// All are there: nothing can hide behind a random choice.
    Always,
}

/// Values that fit a structural schema. Below `depth` only what is required is filled in.
pub fn values(schema: &Value, depth: u32, optional: Optional) -> BoxedStrategy<Value> {
    strategy("", schema, depth, optional)
}

fn strategy(name: &str, schema: &Value, depth: u32, optional: Optional) -> BoxedStrategy<Value> {
    let value = present(name, schema, depth, optional);
    match schema.get("nullable") {
        Some(_) if optional == Optional::Sometimes && name != "[]" => {
            prop_oneof![4 => value, 1 => Just(Value::Null)].boxed()
        }
        _ => value,
    }
}

fn present(name: &str, schema: &Value, depth: u32, optional: Optional) -> BoxedStrategy<Value> {
    if let Some(Value::Array(allowed)) = schema.get("enum") {
        return select(allowed.clone()).boxed();
    }
    if schema.get("x-kubernetes-int-or-string").is_some() {
        return match schema.get("pattern") {
            // Numbers are a unit test of quantities: inside k8s-openapi's own types they become strings.
            Some(_) => select(vec!["0", "1", "64Mi", "1.5Gi", "100m", "1e3", "12E"]).prop_map(Value::from).boxed(),
            None => prop_oneof![any::<i32>().prop_map(Value::from), Just("25%".into())].boxed(),
        };
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => integer(schema),
        Some("number") => (0u16..1000).prop_map(|number| Value::from(f64::from(number) / 4.0)).boxed(),
        Some("string") => string(name, schema),
        // Only an object graph contains itself; one level of it will do.
        Some("array") if schema["items"].get("$ref").is_some() => Just(json!([])).boxed(),
        Some("array") => {
            let least = schema["minItems"].as_u64().map_or(0, |least| usize::try_from(least).unwrap_or(0));
            let item = strategy("[]", &schema["items"], depth.saturating_sub(1), optional);
            let most =
                schema["maxItems"].as_u64().map_or(2, |most| usize::try_from(most).map_or(2, |most| most.min(2)));
            let range = if optional == Optional::Always { 1..=1 } else { least..=most };
            prop::collection::vec(item, range).prop_map(Value::from).boxed()
        }
        Some("object") => fields(name, schema, depth, optional),
        other => panic!("{name}: a schema of type {other:?}"),
    }
}

fn integer(schema: &Value) -> BoxedStrategy<Value> {
    let bound = |key: &str, otherwise: i64| schema[key].as_i64().unwrap_or(otherwise);
    let widest = if schema["format"] == "int64" { i64::MAX } else { i64::from(i32::MAX) };
    // The types refuse negative counts, the schemas do not say so.
    (bound("minimum", 0)..=bound("maximum", widest)).prop_map(Value::from).boxed()
}

fn string(name: &str, schema: &Value) -> BoxedStrategy<Value> {
    if schema["format"] == "date-time" {
        return (0i64..4_000_000_000)
            .prop_map(|second| jiff::Timestamp::from_second(second).unwrap().to_string().into())
            .boxed();
    }
    if DURATIONS.contains(&name) {
        return select(vec!["0s", "90s", "1h30m", "1.5s"]).prop_map(Value::from).boxed();
    }
    match schema["pattern"].as_str() {
        Some(pattern) if pattern.starts_with("^(0(") => select(vec!["0", "0.05", "1"]).prop_map(Value::from).boxed(),
        Some(_) => "[A-Z][a-z]{1,8}".prop_map(Value::from).boxed(),
        None if schema.get("minLength").is_some() => "[a-z]{1,8}".prop_map(Value::from).boxed(),
        None => prop_oneof![Just(String::new()), "[a-z]{1,8}", "\\PC{0,6}"].prop_map(Value::from).boxed(),
    }
}

fn fields(name: &str, schema: &Value, depth: u32, optional: Optional) -> BoxedStrategy<Value> {
    if let Some(values) = schema.get("additionalProperties") {
        let value = strategy("{}", values, depth.saturating_sub(1), optional);
        return prop::collection::btree_map("[a-z]{1,5}", value, 0..3)
            .prop_map(|map| map.into_iter().collect::<Map<_, _>>().into())
            .boxed();
    }
    let Some(Value::Object(properties)) = schema.get("properties") else {
        let plain = if name == "metadata" { json!({ "labels": { "a": "b" } }) } else { json!({}) };
        return Just(plain).boxed();
    };
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut all = Just(Map::new()).boxed();
    for (key, property) in properties {
        // What has a default is never absent once a server has seen it.
        let must = required.iter().any(|required| required == key)
            || property.get("default").is_some()
            || optional == Optional::Always;
        if !must && depth == 0 {
            continue;
        }
        let value = strategy(key, property, depth.saturating_sub(1), optional);
        // One field in eight: enough to meet every pair now and then, few enough to stay small.
        let value = if must { value.prop_map(Some).boxed() } else { prop::option::weighted(0.125, value).boxed() };
        let key = key.clone();
        all = (all, value)
            .prop_map(move |(mut map, value)| {
                if let Some(value) = value {
                    map.insert(key.clone(), value);
                }
                map
            })
            .boxed();
    }
    all.prop_map(Value::from).boxed()
}
