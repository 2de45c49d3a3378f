//! Selectors of labels and of fields.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| apiserver::fuzzing::selectors(bytes));
