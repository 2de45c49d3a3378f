//! virt-controller: the controllers of virtual machines, their instances and their nodes.
//!
//! ```text
//! KubeVirt ──> config ─┐
//! VMI, claims ─────────┼─> render ──> the launcher pod
//! launcher settings ───┘
//! ```
//! Watches nothing yet, owns nothing, emits nothing: so far there are the pure parts, configuration and rendering.
//! Absent on purpose: nodes' disks and sockets; what a pod becomes on its node is virt-handler's.

pub mod render;
pub mod vm;
