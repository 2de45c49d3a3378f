//! Pods with a real OCI runtime: needs root, runc and cgroups.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do; the lints exempt functions marked as tests only"
)]

mod ends;
mod image;
mod lives;
mod roots;
mod support;
