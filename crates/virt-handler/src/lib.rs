//! The node's controller of virtual machines: takes instances from `Scheduled` to `Running` and to their end.
//!
//! ```text
//! VMI of this node ─┐
//! launchers ────────┼─> observe ──> decide ──> act: network, launcher ──> one write of the VMI
//! records on disk ──┘
//! kubelet <── device plugins    node <── labels, heartbeat
//! ```
//! Watches: VirtualMachineInstance of this node, its Node, KubeVirt; launchers, over their sockets. Owns: the phase of an
//! instance from `Scheduled` on, the guest's network in the launcher's namespace, mounts of container disks, labels and
//! heartbeat of the node. Emits: one write per change of an instance, a heartbeat each minute, events.
//!
//! [`hollow`] is its simulation: it takes instances to Running and to their end without running anything, thousands of them
//! in one process.

pub mod container_disk;
mod container_disks;
mod decide;
mod devices;
mod folders;
mod guests;
mod handler;
pub mod hollow;
mod host;
pub mod identity;
mod instances;
mod isolation;
mod labels;
mod launchers;
pub mod networks;
mod node;
mod ownership;
mod records;
mod relay;
mod status;

pub use guests::NodeGuests;
pub use guests::door::{Door, DoorError, DoorSettings};
pub use handler::{Handler, Settings};
pub use relay::{Credentials, Relay};
