//! What admission and the controllers of virtual machines must agree on.
//!
//! ```text
//! KubeVirt ──> config ──┐
//! VMI ──────────────────┴─> support ──> what nobody acts on yet, by its field
//! ```
//! Watches nothing, owns nothing, emits nothing: pure functions.
//! Absent on purpose: a client, and whatever only one of the two needs.

pub mod config;
pub mod support;
