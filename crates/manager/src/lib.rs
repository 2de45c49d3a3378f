//! The frame that controllers run in, once for all of them: those of a cluster and those of virtual machines.
//!
//! ```text
//! watch ──▶ cache ──▶ subscribers ──▶ queue ──▶ workers: observe, decide, act
//!             │                                     │
//!             └───────────── read ──────────────────┘
//! ```
//!
//! Here so far: work queues and their workers, caches, expectations, the rate limit of a client, leader election, events,
//! and the table of controllers with its selection. It knows no controller by name, and no kinds but Lease and Event.

pub mod cache;
pub mod caches;
pub mod descriptor;
pub mod events;
pub mod expectations;
pub mod leader;
pub mod queue;
pub mod rate;
pub mod worker;
