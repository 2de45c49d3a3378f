//! The agent on the embedded API server: with a runtime, images and a network that only pretend, and once with real ones.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod bench;
mod fake;
mod lifecycle;
mod machine;
mod probes;
mod real;
mod restart;
mod volumes;
