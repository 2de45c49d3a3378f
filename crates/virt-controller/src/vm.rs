//! Virtual machines: from what a VM asks for to its instance, and back to what its status tells.
//!
//! So far its decisions: the run-strategy table with its requests, the back-off of a VM that does not start, and the word
//! that tells how it is.

pub mod backoff;
pub mod printable;
pub mod revision;
pub mod run_strategy;
