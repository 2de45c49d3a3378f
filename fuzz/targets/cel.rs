//! A rule of a custom resource, a line's end, and an object that it is to judge.
#![no_main]

use serde_json::{Value, json};
use structural::Schema;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (rule, object) = text.split_once('\n').unwrap_or((text, "null"));
    let object: Value = serde_json::from_str(object).unwrap_or_default();
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let fields = json!({ "a": { "type": "array", "maxItems": 9, "items": { "type": "integer" } }, "s": { "type": "string", "maxLength": 99 } });
    for mut schema in [any, json!({ "type": "object", "properties": fields })] {
        schema["x-kubernetes-validations"] = json!([{ "rule": rule, "messageExpression": rule }]);
        drop(Schema::compile(&schema, "spec"));
        assert!(Schema::load(&schema).validate(&object, Some(&object)).len() <= 100);
    }
});
