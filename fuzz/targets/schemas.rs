//! A schema of a custom resource, a line's end, and an object for it.
#![no_main]

use serde_json::Value;
use structural::Schema;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(at) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let (schema, object) = bytes.split_at(at);
    let (Ok(schema), Ok(mut object)) =
        (serde_json::from_slice::<Value>(schema), serde_json::from_slice::<Value>(object))
    else {
        return;
    };
    drop(Schema::compile(&schema, "spec"));
    let schema = Schema::load(&schema);
    schema.prune(&mut object);
    assert!(schema.prune(&mut object).is_empty(), "what was pruned is pruned again");
    if schema.default(&mut object) {
        let before = object.clone();
        assert!(!schema.default(&mut object) || object == before, "defaults are set twice");
    }
    assert!(schema.validate(&object, None).len() <= 100);
});
