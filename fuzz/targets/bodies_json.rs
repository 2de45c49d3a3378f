//! Bodies of requests in JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| apiserver::fuzzing::json_body(bytes));
