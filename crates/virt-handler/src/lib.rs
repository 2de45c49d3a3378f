//! The node's controller of virtual machines. What is here so far is its simulation: hollow handlers, which take instances to
//! Running and to their end without running anything, thousands of them in one process.

pub mod hollow;
