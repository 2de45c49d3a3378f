//! What a cluster has and one machine lacks: the built-in controllers and a scheduler.
//!
//! Each controller has the shape observe, decide, act: `decide` is a pure function from what the caches hold and the time
//! to a plan, and one short part carries the plan out. They run on any API server. Nothing here knows of virtual machines.

pub mod cluster_role_aggregation;
pub mod deployment;
mod discovery;
pub mod disruption;
pub mod endpoint_slice;
pub mod endpoints;
pub mod garbage;
pub mod indexes;
pub mod namespace;
pub mod node_lifecycle;
pub mod pod_gc;
pub(crate) mod pods;
mod reading;
pub mod replicaset;
pub mod replication_controller;
pub mod root_ca;
pub mod scheduler;
pub mod service_account;
pub mod service_account_token;
pub(crate) mod services;
pub(crate) mod share;
pub mod table;
pub mod taint_eviction;
pub mod unwritten;
mod writing;
