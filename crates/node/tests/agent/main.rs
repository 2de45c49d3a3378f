//! The agent on the embedded API server, with a runtime, images and a network that only pretend.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod bench;
mod fake;
mod lifecycle;
mod machine;
mod probes;
mod restart;
mod volumes;
