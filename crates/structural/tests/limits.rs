//! Nothing that a client sends runs for long or breaks the stack, whatever the schema says.

use serde_json::{Value, json};
use structural::{Reason, Schema};

const PATH: &str = "spec.validation.openAPIV3Schema";

fn with_rule(field: &Value, rule: &str) -> Value {
    let mut field = field.clone();
    field["x-kubernetes-validations"] = json!([{ "rule": rule }]);
    json!({ "type": "object", "properties": { "f": field } })
}

/// Rules that the estimate refuses at a CRD's creation are stopped at run time as well, should one be stored.
#[test]
fn a_rule_that_costs_too_much_is_refused_and_stopped() {
    let list = json!({ "type": "array", "items": { "type": "integer" } });
    let text = json!({ "type": "string" });
    let numbers = json!((0..3000).collect::<Vec<_>>());
    let letters = json!("a".repeat(1 << 20));
    let rules = [
        (&list, &numbers, "self.all(x, self.all(y, self.all(z, x + y + z >= 0)))"),
        (&list, &numbers, "self.map(x, self.map(y, self)).size() > 0"),
        (&list, &numbers, "self.all(x, (self + self + self + self).size() > x)"),
        (&text, &letters, "self.replace(\"\", self).size() > 1"),
        (&text, &letters, "self.split(\"\").all(c, self.contains(\"b\"))"),
        (&text, &letters, "self.split(\"\").all(c, self.matches(\"(a*)*$\"))"),
    ];
    for (schema, value, rule) in rules {
        let schema = with_rule(schema, rule);
        // The estimate takes a replacement for short, as that of Kubernetes does.
        if !rule.contains("replace") {
            let refused = Schema::compile(&schema, PATH).unwrap_err();
            assert!(refused[0].message.contains("exceeds budget by factor"), "{rule}: {refused:?}");
        }
        let errors = Schema::load(&schema).validate(&json!({ "f": value }), None);
        assert_eq!(errors.len(), 1, "{rule}");
        assert_eq!(errors[0].reason, Reason::Invalid);
        assert!(errors[0].message.contains("no further validation rules will be run"), "{rule}: {}", errors[0]);
    }
}

#[test]
fn all_rules_of_an_object_share_one_budget() {
    let items = json!({ "type": "array", "items": {
        "type": "array",
        "items": { "type": "integer" },
        "x-kubernetes-validations": [{ "rule": "self.all(x, self.exists(y, y == x))" }],
    } });
    let schema = json!({ "type": "object", "properties": { "f": items } });
    let object = json!({ "f": vec![(0..300).collect::<Vec<_>>(); 100] });
    let errors = Schema::load(&schema).validate(&object, None);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].message.contains("running out of cost budget"), "{}", errors[0]);
}

#[test]
fn deep_rules_are_refused() {
    let schemas = [
        "(".repeat(5000),
        format!("{}true", "!".repeat(50_000)),
        format!("1{}", "+1".repeat(50_000)),
        format!("self{}", ".a".repeat(40_000)),
        "[".repeat(90_000),
    ];
    for rule in schemas {
        let schema = with_rule(&json!({ "type": "integer" }), &rule);
        let errors = Schema::compile(&schema, PATH).unwrap_err();
        assert!(errors[0].message.contains("compilation failed"), "{}", errors[0]);
        // One that was stored all the same fails, and harms nobody.
        assert_eq!(Schema::load(&schema).validate(&json!({ "f": 1 }), None).len(), 1);
    }
}

#[test]
fn long_chains_of_alternatives_are_fine() {
    let rule = (0..2000).map(|number| format!("self == {number}")).collect::<Vec<_>>().join(" || ");
    let schema = Schema::compile(&with_rule(&json!({ "type": "integer" }), &rule), PATH).unwrap();
    assert_eq!(schema.validate(&json!({ "f": 1999 }), None), []);
    assert_eq!(schema.validate(&json!({ "f": 2000 }), None).len(), 1);
}

#[test]
fn deep_schemas_are_refused() {
    let mut schema = json!({ "type": "string" });
    let mut object = json!("x");
    for _ in 0..127 {
        schema = json!({ "type": "object", "properties": { "a": schema } });
        object = json!({ "a": object });
    }
    let compiled = Schema::compile(&schema, PATH).unwrap();
    assert_eq!(compiled.prune(&mut object), [""; 0]);
    assert_eq!(compiled.validate(&object, None), []);
    let deeper = json!({ "type": "object", "properties": { "a": { "type": "array", "items": schema } } });
    let errors = Schema::compile(&deeper, PATH).unwrap_err();
    assert_eq!(errors[0].reason, Reason::Forbidden);
}

#[test]
fn errors_are_bounded() {
    let schema = json!({ "type": "object", "properties": { "f": { "type": "array", "items": { "type": "string" } } } });
    let errors = Schema::load(&schema).validate(&json!({ "f": vec![1; 10_000] }), None);
    assert_eq!(errors.len(), 100);
}

/// Whoever followed each of them would do so twice on every level.
#[test]
fn a_field_that_is_required_twice_is_one_field() {
    let schema = (0..90).fold(
        json!({ "type": "string" }),
        |inner, _| json!({ "type": "object", "required": ["a", "a"], "properties": { "a": inner } }),
    );
    let mut schema = schema;
    schema["x-kubernetes-validations"] = json!([{ "rule": "has(self.a)" }]);
    let schema = Schema::compile(&schema, PATH).unwrap();
    assert_eq!(schema.validate(&json!({}), None).iter().filter(|error| error.reason == Reason::Required).count(), 1);
}

/// A path is in every error, and a name in it may be as long as a request.
#[test]
fn names_that_nobody_reads_are_not_repeated() {
    let long = "k".repeat(500_000);
    let told = |errors: &[structural::FieldError]| {
        errors.iter().map(|error| error.field.len() + error.message.len()).max().unwrap_or_default()
    };
    let fields: serde_json::Map<String, Value> =
        (0..5000).map(|turn| (format!("f{turn}"), json!({ "type": "foo" }))).collect();
    let schema = json!({ "type": "object", "properties": { &long: { "type": "object", "properties": fields } } });
    let errors = Schema::compile(&schema, PATH).unwrap_err();
    assert!(errors.len() <= 300 && told(&errors) < 50_000, "{} of {}", errors.len(), told(&errors));
    let items = json!({ "type": "array", "items": { "type": "string" } });
    let schema = Schema::load(&json!({ "type": "object", "additionalProperties": items }));
    let errors = schema.validate(&json!({ &long: vec![1; 5000] }), None);
    assert!(errors.len() == 100 && told(&errors) < 50_000, "{}", told(&errors));
}

/// Requests share schemas across threads.
#[test]
fn schemas_can_be_shared() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Schema>();
}

#[test]
fn types_are_found_by_simple_paths() {
    let schema = Schema::load(&json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": {
        "replicas": { "type": "integer" },
        "port": { "x-kubernetes-int-or-string": true },
    } } } }));
    assert_eq!(schema.type_at(".spec.replicas"), Some("integer"));
    assert_eq!(schema.type_at(".spec"), Some("object"));
    assert_eq!(schema.type_at(".spec.port"), None);
    assert_eq!(schema.type_at(".spec.other"), None);
    assert_eq!(schema.type_at("spec.replicas"), None);
}
