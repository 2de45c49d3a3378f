//! Manifests and indexes of images.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    storage::fuzzing::manifest(bytes);
});
