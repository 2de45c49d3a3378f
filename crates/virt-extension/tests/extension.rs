//! virt-api behind an API server: real TLS on loopback, the embedded API server as the cluster, and the tests as its front proxy.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "extension/bench.rs"]
mod bench;
#[path = "extension/metrics.rs"]
mod metrics;
#[path = "extension/reviews.rs"]
mod reviews;
#[path = "extension/streams.rs"]
mod streams;
#[path = "extension/trust.rs"]
mod trust;
