//! The kubelet's part for one machine: a real one, the agent, and its simulation, hollow nodes, which take pods to Running and
//! to their end without running anything, thousands of them in one process.

pub mod agent;
pub mod hollow;
mod lease;
pub mod provisioner;
pub mod runtime;
pub mod shim;
