//! virt-controller: the controllers of virtual machines, their instances and their nodes.
//!
//! ```text
//! VM ──> vm ──> VMI ──> vmi ──> launcher pod ──> (a node) ──> vmi: hand-over ──> (virt-handler) ──> vm: status
//!                        │
//!                        └─ render: the pod as a pure function of the VMI and the KubeVirt object
//! Node ──> node ──> instances that are lost
//! ```
//! Watches: VMs, VMIs, their pods, volumes and nodes, and the KubeVirt object. Owns and emits: see each controller.
//! Absent on purpose: nodes' disks and sockets; what a pod becomes on its node is virt-handler's.

mod configuration;
mod data_volumes;
mod indexes;
pub mod node;
pub mod render;
pub mod table;
pub mod vm;
pub mod vmi;
