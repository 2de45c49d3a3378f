//! The agent on the embedded API server, with a runtime, images and a network that only pretend.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bench;
mod fake;
mod lifecycle;
mod machine;
#[path = "../support/pods.rs"]
mod pods;
mod probes;
mod restart;
mod volumes;
