//! virt-launcher: one process, one VM.
//!
//! ```text
//! requests ──┐
//! QMP events ├─> driver ──> lifecycle (pure) ──> actions ──> QEMU
//! exit, time ┘      └─────> domain, published to whoever watches
//! ```
//! Watches: QEMU, by its monitor and its end. Owns: the QEMU process, its sockets, the guest agent's channel.
//! Emits: the [`domain::Domain`] after every change. If the launcher ends, however it ends, QEMU ends with it.
//! Absent on purpose: Kubernetes. It is told an instance and where its disks are.

pub mod boot;
mod change;
pub mod console;
pub mod domain;
pub mod driver;
mod errors;
#[cfg(test)]
mod fake_qmp;
mod firmware;
pub mod grant;
pub mod guest;
pub mod lifecycle;
pub mod migrate;
pub mod model;
mod out_of_memory;
pub mod reaper;
pub mod server;
mod start;
pub mod volumes;
mod whole_file;
