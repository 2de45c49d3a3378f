//! Headers of qcow2 images.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| storage::fuzzing::qcow2_header(bytes));
