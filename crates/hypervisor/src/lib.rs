//! QEMU: how it is started, and how it is controlled.
//!
//! ```text
//! VirtualMachineInstance ──> Guest ──┐
//! disks, taps, sockets ────> Wiring ─┴─> render ──> CommandLine ──> process ──> QEMU
//!                                        (pure)                             │   │
//!                                                 qmp, agent <── sockets ───┘   └── exit
//! ```
//! Watches: a QEMU process, by QMP events and its end. Owns: that process and its sockets. Emits: QMP events in order.
//! Absent on purpose: pods, images, networks. Whoever calls has prepared disks and interfaces, and says where they are.

pub mod accelerator;
pub mod agent;
pub mod guest;
mod keyval;
pub mod process;
pub mod programs;
pub mod qmp;
mod refusal;
pub mod render;
pub mod step;
pub mod wiring;

pub use refusal::Refusal;
