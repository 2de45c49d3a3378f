//! Admission from request to response: one module per subject.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "admission/attachments.rs"]
mod attachments;
#[path = "admission/defaults.rs"]
mod defaults;
#[path = "admission/evictions.rs"]
mod evictions;
#[path = "admission/instances.rs"]
mod instances;
#[path = "admission/machines.rs"]
mod machines;
#[path = "admission/migrations.rs"]
mod migrations;
#[path = "admission/others.rs"]
mod others;
#[path = "admission/placement.rs"]
mod placement;
#[path = "admission/pools.rs"]
mod pools;
#[path = "admission/presets.rs"]
mod presets;
#[path = "admission/properties.rs"]
mod properties;
#[path = "admission/replica_sets.rs"]
mod replica_sets;
#[path = "admission/reviews.rs"]
mod reviews;
#[path = "admission/support.rs"]
mod support;
#[path = "admission/updates.rs"]
mod updates;
