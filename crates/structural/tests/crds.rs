//! The CRDs of `deploy/crds`: they compile, they are small in memory, and objects made up from them are valid.
#![expect(clippy::unwrap_used, reason = "a CRD that cannot be read fails the test")]

use std::fs;
use std::path::Path;

use api::testing::{Optional, values};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use structural::{Interner, Reason, Schema};

/// The schemas of all versions of all CRDs, with a name each.
fn schemas() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut schemas = Vec::new();
    for file in files {
        let crd: Value = serde_saphyr::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let name = format!("{} {}", crd["metadata"]["name"], version["name"]);
            let mut schema = version["schema"]["openAPIV3Schema"].clone();
            make_whole(&mut schema);
            schemas.push((name, schema));
        }
    }
    assert!(schemas.len() >= 20, "only {} schemas", schemas.len());
    schemas
}

/// The maker of objects reads limits as whole numbers, YAML has them as floats.
fn make_whole(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole: Option<i64> = number.as_f64().and_then(|number| number.to_string().parse().ok());
            *value = whole.map_or_else(|| Value::Number(number.clone()), Value::from);
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(map) => map.values_mut().for_each(make_whole),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Rules are not what objects are made up from.
fn remove_rules(schema: &mut Value) {
    if let Value::Object(map) = schema {
        map.remove("x-kubernetes-validations");
        map.values_mut().for_each(remove_rules);
    }
}

#[test]
fn every_crd_compiles() {
    for (name, schema) in schemas() {
        let errors = Schema::compile(&schema, "spec.versions[0].schema.openAPIV3Schema").err().unwrap_or_default();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

#[test]
fn equal_parts_are_stored_once() {
    let schemas = schemas();
    let mut together = Interner::new();
    let mut apart = 0;
    let mut written = 0;
    let mut loaded = Vec::new();
    for (_, schema) in &schemas {
        let mut alone = Interner::new();
        loaded.push(Schema::load_with(schema, &mut alone));
        apart += alone.len();
        loaded.push(Schema::load_with(schema, &mut together));
        written += schema.to_string().matches("\"type\":").count();
    }
    assert!(apart * 4 < written, "{apart} nodes for {written} schemas");
    assert!(together.len() * 3 < apart, "{} nodes together, {apart} apart", together.len());

    drop(loaded);
    together.forget_unused();
    assert!(together.is_empty());
}

#[test]
fn objects_made_from_a_schema_pass_through_unchanged_and_are_valid() {
    let mut runner = TestRunner::default();
    for (name, mut schema) in schemas() {
        remove_rules(&mut schema);
        let compiled = Schema::load(&schema);
        for (optional, rounds) in [(Optional::Sometimes, 2), (Optional::Always, 1)] {
            let strategy = values(&schema, 6, optional);
            for _ in 0..rounds {
                let mut object = strategy.new_tree(&mut runner).unwrap().current();
                let made = object.clone();
                assert_eq!(compiled.prune(&mut object), [""; 0], "{name}");
                assert_eq!(object, made, "{name}: pruning changed {made}");
                compiled.default(&mut object);
                let once = object.clone();
                compiled.default(&mut object);
                assert_eq!(object, once, "{name}: defaulting is not idempotent");
                let mut errors = compiled.validate(&object, None);
                // Whoever makes up items of a list does not know which fields tell them apart.
                errors.retain(|error| error.reason != Reason::Duplicate);
                assert!(errors.is_empty(), "{name}: {errors:?}\n{object}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(64), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn foreign_fields_are_dropped_and_nothing_else_is(field in "[A-Z]{3,6}", deep in any::<bool>()) {
        let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
            "configuration": { "type": "object", "properties": { "a": { "type": "string" } } },
        } } } });
        let compiled = Schema::load(&schema);
        let mut object = json!({ "spec": { "configuration": {} }, "metadata": { "x": 1 } });
        let kept = object.clone();
        let path = if deep {
            object["spec"]["configuration"][&field] = json!({ "y": [1] });
            format!("spec.configuration.{field}")
        } else {
            object[&field] = 1.into();
            field
        };
        prop_assert_eq!(compiled.prune(&mut object), [path]);
        prop_assert_eq!(object, kept);
    }
}
