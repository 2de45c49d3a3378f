//! QEMU: how it is started, and how it is spoken to.
//!
//! ```text
//! VirtualMachineInstance ─┐
//! Resources (disks, nets, ├─> arguments ──> CommandLine ──> process ──> QEMU
//! sockets, accelerator)  ─┘   (pure)                                   │   │
//!                                            qmp, agent <── sockets ───┘   └── exit
//! ```
//! Watches: a QEMU process, by QMP events and its end. Owns: that process and its sockets. Emits: QMP events in order.
//! Absent on purpose: pods, images, networks. Whoever calls has prepared disks and interfaces, and says where they are.

pub mod accelerator;
pub mod agent;
pub mod arguments;
mod keyval;
pub mod process;
pub mod programs;
pub mod qmp;
mod refusal;
pub mod resources;

pub use refusal::Refusal;
