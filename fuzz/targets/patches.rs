//! A byte for the form of a patch, an object, a line's end, the patch.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| apiserver::fuzzing::patch(bytes));
