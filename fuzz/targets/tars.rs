//! Layers of images, compressed or not.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    storage::fuzzing::archive(bytes);
});
