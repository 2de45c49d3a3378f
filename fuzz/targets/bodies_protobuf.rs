//! Bodies of requests in Kubernetes' protobuf form.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| apiserver::fuzzing::protobuf_body(bytes));
