//! The kubevirt.io API: every kind, version and field, and the CRDs made from them.
//!
//! ```text
//! manifest ──> decode ──> types ──> schema ──> crd ──> deploy/crds/*.yaml, `orlop crds`
//!              (path in    │
//!               errors)    └──> quantity, duration, conditions, names, owner: helpers for everyone
//! ```
//! Watches nothing, owns nothing, emits nothing: types, pure functions and one table.
//! Absent on purpose: a client, a clock, any I/O.
//!
//! Modules are named after their subject, types as in the API. A field is an `Option` unless the schema requires it, so
//! that absent stays absent and an explicit `false`, `0` or `[]` stays explicit.

// The comments of fields are what `kubectl explain` shows.
#![warn(missing_docs)]

pub mod conditions;
pub mod crd;
pub mod decode;
pub mod duration;
mod enums;
pub mod names;
pub mod nullable;
pub mod owner;
pub mod quantity;
mod resource;
pub mod schema;
#[cfg(feature = "testing")]
pub mod testing;

pub mod access;
pub mod backup;
pub mod cdi;
pub mod clock;
pub mod clone;
pub mod configuration;
pub mod data_volume;
pub mod devices;
pub mod domain;
pub mod export;
pub mod features;
pub mod firmware;
pub mod host_devices;
pub mod instancetype;
pub mod kubevirt;
pub mod migration;
pub mod migration_policy;
pub mod networks;
pub mod plugin;
pub mod pool;
pub mod preference;
pub mod preset;
pub mod replicaset;
pub mod restore;
pub mod snapshot;
pub mod subresources;
pub mod vm;
pub mod vmi;
pub mod vmi_status;
pub mod volume_snapshot;
pub mod volumes;
