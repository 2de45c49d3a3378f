//! What a real kube-apiserver v1.36 said to CRDs and objects, case by case (`recorded/`): this crate says the same.
//!
//! The order of errors is not compared: Kubernetes walks its maps in random order.
#![expect(clippy::unwrap_used, reason = "a record that cannot be read fails the test")]

use serde_json::{Value, json};
use structural::{FieldError, Schema};

/// Where the API server places the schema of a CRD whose versions have the same.
const PATH: &str = "spec.validation.openAPIV3Schema";

#[test]
fn schemas_are_refused_as_the_api_server_refuses_them() {
    each(include_str!("recorded/schemas.json"), |case| {
        let errors = Schema::compile(&case["schema"], PATH).err().unwrap_or_default();
        same_errors(&case["crd"], &errors)
    });
}

#[test]
fn objects_are_pruned_defaulted_and_judged_as_by_the_api_server() {
    each(include_str!("recorded/objects.json"), |case| {
        let errors = Schema::compile(&case["schema"], PATH).err().unwrap_or_default();
        same_errors(&case["crd"], &errors)?;
        if case.get("errors").is_none() {
            return Ok(());
        }
        let before = Schema::load(&case["schema"]);
        let schema = Schema::load(case.get("after").unwrap_or(&case["schema"]));
        let old = case.get("old").map(|old| {
            let mut old = resource(old);
            before.prune(&mut old);
            before.default(&mut old);
            old
        });
        let mut object = resource(&case["object"]);
        let dropped = schema.prune(&mut object);
        schema.default(&mut object);
        same_errors(&case["errors"], &schema.validate(&object, old.as_ref()))?;
        let Some(result) = case.get("result") else { return Ok(()) };
        same(&case["dropped"], &json!(dropped))?;
        // Whole floats are stored as integers; that is the encoder's work.
        let stored: Value = serde_json::from_str(&object.to_string().replace("1.0", "1")).unwrap();
        same(&with_head(result), &stored)
    });
}

fn resource(object: &Value) -> Value {
    with_head(object)
}

fn with_head(object: &Value) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = "example.com/v1".into();
    object["kind"] = "Case".into();
    object["metadata"] = json!({ "name": "x" });
    object
}

fn each(record: &str, check: impl Fn(&Value) -> Result<(), String>) {
    let cases: Vec<Value> = serde_json::from_str(record).unwrap();
    let problems: Vec<String> = cases
        .iter()
        .filter_map(|case| check(case).err().map(|problem| format!("{}: {problem}", case["name"])))
        .collect();
    assert!(problems.is_empty(), "{} of {} differ\n{}", problems.len(), cases.len(), problems.join("\n"));
}

fn same_errors(recorded: &Value, errors: &[FieldError]) -> Result<(), String> {
    let sorted = |mut errors: Vec<String>| {
        errors.sort();
        errors.join("\n    ")
    };
    let line = |parts: [&str; 3]| parts.join(" | ");
    let ours = errors.iter().map(|error| line([&error.field, error.reason.as_str(), &error.message])).collect();
    let theirs = recorded
        .as_array()
        .unwrap()
        .iter()
        .map(|cause| line([cause[0].as_str().unwrap(), cause[1].as_str().unwrap(), cause[2].as_str().unwrap()]));
    let (ours, theirs) = (sorted(ours), sorted(theirs.collect()));
    if ours == theirs { Ok(()) } else { Err(format!("\n  recorded\n    {theirs}\n  found\n    {ours}")) }
}

fn same(recorded: &Value, found: &Value) -> Result<(), String> {
    if recorded == found { Ok(()) } else { Err(format!("\n  recorded {recorded}\n  found    {found}")) }
}
