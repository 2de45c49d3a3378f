//! Bodies of requests in YAML.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| apiserver::fuzzing::yaml_body(bytes));
