//! Paths and queries of requests, and paths into objects.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| apiserver::fuzzing::paths(bytes));
