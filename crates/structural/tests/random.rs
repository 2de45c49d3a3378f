//! Random schemas and objects: nothing panics, pruning and defaulting are idempotent, and nothing runs for long.
#![expect(clippy::unwrap_used, reason = "a test fails on what cannot be")]

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use structural::Schema;

/// Schemas that are structural in most parts, with keywords that contradict each other now and then.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = (
        prop::sample::select(vec!["string", "integer", "number", "boolean", "foo", ""]),
        prop::option::weighted(0.3, prop::sample::select(vec!["date-time", "int32", "byte", "ipv4", "duration"])),
        prop::option::weighted(0.2, json_value()),
        any::<[bool; 6]>(),
        prop::option::weighted(0.2, rule()),
    )
        .prop_map(|(kind, format, default, flags, rule)| {
            let mut schema = json!({ "type": kind });
            let [nullable, enumerated, limits, pattern, int_or_string, preserve] = flags;
            let entries = [
                ("nullable", nullable, json!(true)),
                ("enum", enumerated && limits, json!(["a", 1, null, {}])),
                ("minimum", limits, json!(0.5)),
                ("maxLength", limits, json!(3)),
                ("multipleOf", limits && pattern, json!(0)),
                ("pattern", pattern, json!("^(a|b")),
                ("x-kubernetes-int-or-string", int_or_string && limits, json!(true)),
                ("x-kubernetes-preserve-unknown-fields", preserve && pattern, json!(true)),
            ];
            for (key, wanted, value) in entries {
                if wanted {
                    schema[key] = value;
                }
            }
            schema.as_object_mut().unwrap().extend(
                [("format", format.map(Value::from)), ("default", default)]
                    .into_iter()
                    .filter_map(|(key, value)| Some((key.to_owned(), value?))),
            );
            if let Some(rule) = rule {
                schema["x-kubernetes-validations"] = json!([{ "rule": rule }]);
            }
            schema
        });
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            3 => (prop::collection::btree_map("[a-d]", inner.clone(), 0..4), any::<bool>(), rule()).prop_map(
                |(properties, embedded, rule)| json!({
                    "type": "object",
                    "properties": properties,
                    "required": ["a"],
                    "x-kubernetes-embedded-resource": embedded,
                    "x-kubernetes-validations": [{ "rule": rule, "messageExpression": "string(self.a)", "fieldPath": ".a" }],
                })
            ),
            1 => inner.clone().prop_map(|inner| json!({ "type": "object", "additionalProperties": inner })),
            2 => (inner.clone(), prop::sample::select(vec!["set", "map", "atomic", "foo"])).prop_map(
                |(inner, kind)| json!({
                    "type": "array",
                    "items": inner,
                    "x-kubernetes-list-type": kind,
                    "x-kubernetes-list-map-keys": ["a"],
                })
            ),
            1 => (inner.clone(), inner).prop_map(
                |(one, other)| json!({ "anyOf": [one, other.clone()], "oneOf": [other.clone()], "not": other })
            ),
        ]
    })
}

/// Rules that make sense, and texts that do not.
fn rule() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "self.a > 1",
            "self == oldSelf",
            "self.all(x, x.all(y, y == x))",
            "has(self.a) && self.a.size() > 2",
            "self.?b.orValue(1) == 1",
            "self[0] + self[1] == \"x\"",
            "type(self) == int",
        ])
        .prop_map(str::to_owned),
        "[a-z0-9 .()\\[\\]{}+*/%?:!&|<>=\"',-]{0,40}",
        "\\PC{0,20}",
    ]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c]{0,4}".prop_map(Value::from),
        Just(json!("2024-01-01T00:00:00Z")),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-e]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_what_changes_objects_is_idempotent(
        schema in schema(),
        mut object in json_value(),
        old in prop::option::of(json_value()),
    ) {
        let _ = Schema::compile(&schema, "spec.validation.openAPIV3Schema");
        let compiled = Schema::load(&schema);
        compiled.prune(&mut object);
        let pruned = object.clone();
        prop_assert_eq!(compiled.prune(&mut object), Vec::<String>::new());
        prop_assert_eq!(&object, &pruned);
        compiled.default(&mut object);
        let defaulted = object.clone();
        compiled.default(&mut object);
        prop_assert_eq!(&object, &defaulted);
        let errors = compiled.validate(&object, old.as_ref());
        prop_assert!(errors.len() <= 100);
        // What was stored as it is may stay as it is.
        let again = compiled.validate(&object, Some(&object));
        let tolerated = |field: &str| field.contains("apiVersion") || field.contains("kind");
        prop_assert!(
            again.iter().all(|error| tolerated(&error.field) || error.message.contains("rule")),
            "{again:?}"
        );
    }

    #[test]
    fn no_schema_at_all_is_taken_apart_without_harm(schema in json_value(), object in json_value()) {
        let _ = Schema::compile(&schema, "x");
        let _ = Schema::load(&schema).validate(&object, None);
    }
}
