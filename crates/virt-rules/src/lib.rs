//! What admission and the controllers of virtual machines must agree on.
//!
//! ```text
//! KubeVirt ──> config ──┐
//! VMI ──────────────────┼─> support ──> what nobody acts on yet, by its field
//!                       └─> attach ───> disks, input and network that go without saying
//! VM ──> instancetype: what its instancetype and preference make of the template
//! VMI, KubeVirt ──> eviction: what an eviction does to an instance
//! VMI, Pod ──> launchers: what a launcher is to its instance, and how its pod is named
//! ```
//! Watches nothing, owns nothing, emits nothing: pure functions.
//! Absent on purpose: a client, and whatever only one of the two needs.

pub mod attach;
pub mod config;
pub mod eviction;
pub mod instancetype;
pub mod launchers;
pub mod names;
pub mod support;
