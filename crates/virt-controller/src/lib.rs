//! virt-controller: the controllers of virtual machines, their instances, sets of instances, pools of VMs, and their nodes.
//!
//! ```text
//! VM ──> vm ──> VMI ──> vmi ──> launcher pod ──> (a node) ──> vmi: hand-over ──> (virt-handler) ──> vm: status
//!                        │
//!                        └─ render: the pod as a pure function of the VMI and the KubeVirt object
//! VMI replica set ──> replicaset ──> VMIs
//! VMI migration ──> migration ──> target pod ──> (virt-handler) ──> migration: status
//! VM pool ──> pool ──> VMs
//! VM snapshot ──> snapshot ──> content, VolumeSnapshots
//! VM restore ──> restore ──> claims of VolumeSnapshots, the VM
//! VM export ──> export ──> exporter pod, service, claims of VolumeSnapshots
//! VM clone ──> clone ──> VM snapshot, VM restore
//! Node ──> node ──> instances that are lost
//! Node, VMIs that are to leave it ──> evacuation ──> VMI migrations
//! KubeVirt, outdated VMIs ──> workload_update ──> VMI migrations, evictions
//! ```
//! Watches: VMs, VMIs, sets and pools of them, their pods, volumes and nodes, and the KubeVirt object. Owns and emits: see each controller.
//! Absent on purpose: nodes' disks and sockets; what a pod becomes on its node is virt-handler's.

pub mod clone;
mod configuration;
mod data_volumes;
pub mod disruption_budget;
pub mod evacuation;
pub mod export;
mod indexes;
mod launcher;
pub mod migration;
pub mod node;
pub mod pool;
pub mod render;
pub mod replicaset;
pub mod restore;
pub mod snapshot;
mod surroundings;
mod table;
pub mod vm;
pub mod vmi;
pub mod volume_snapshots;
pub mod workload_update;

pub use launcher::is_launcher;
pub use render::{COMPUTE, Directories, Launcher, Nodes};
pub use table::{DESCRIPTORS, Settings, UNWRITTEN};
