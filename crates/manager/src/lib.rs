//! The frame that controllers run in, once for all of them: those of a cluster and those of virtual machines.
//!
//! ```text
//! watch ──▶ cache ──▶ subscribers ──▶ queue ──▶ workers: observe, decide, act
//!             │                                     │
//!             └───────────── read ──────────────────┘
//! ```
//!
//! Whoever writes a controller begins with [`kit`], which declares what is watched and what is remembered. Below it: work queues
//! and their workers, caches, expectations, owners and selectors, the rate limit of a client, leader election, events, and the
//! table of controllers with its selection. It knows no controller by name, and no kinds but Lease and Event,
//! and what controllers read of pods ([`slim`]).

pub mod accepting;
pub mod cache;
pub mod caches;
pub mod claim;
pub mod clients;
pub mod context;
pub mod descriptor;
pub mod errors;
pub mod events;
pub mod expectations;
pub mod fence;
pub mod frame;
pub mod gates;
pub mod kit;
pub mod leader;
pub mod migration;
pub mod names;
mod once;
pub mod queue;
pub mod rate;
pub mod selector;
pub mod serving;
pub mod slim;
pub mod stopping;
pub mod watching;
pub mod worker;
pub mod writing;
