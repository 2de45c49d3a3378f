//! Container disks from OCI layouts and from a real registry, good ones and hostile ones.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do; the lints exempt functions marked as tests only"
)]

mod build;
mod cache;
mod disks;
mod hostile;
mod registry;
mod server;
mod whole;
