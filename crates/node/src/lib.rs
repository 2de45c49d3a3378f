//! The kubelet's part for one machine. What is here so far is its simulation: hollow nodes, which take pods to Running and
//! to their end without running anything, thousands of them in one process.

pub mod hollow;
