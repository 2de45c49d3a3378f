//! From a VirtualMachineInstance to the arguments of QEMU.
//!
//! One small builder per concern, each a pure function that adds to a [`Line`]. Each takes its part of the spec apart
//! field by field, without `..`: a field that nobody handles does not compile. What cannot be honoured is refused by
//! its path, all at once.

mod boot;
mod clock;
mod console;
mod cpu;
mod devices;
mod disks;
mod features;
mod identity;
mod line;
mod machine;
mod memory;
mod networks;
mod support;

use std::ffi::OsString;

use api::vmi::VirtualMachineInstance;

pub use console::{AGENT_PORT, AGENT_SOCKET, MONITOR_SOCKET, SERIAL_LOG, SERIAL_SOCKET, VNC_SOCKET};
pub(crate) use cpu::host_model;
use line::Line;
pub(crate) use machine::DEFAULT_MACHINE;

use crate::Refusal;
use crate::resources::Resources;

/// How to run QEMU for one guest. It starts paused and connects to the monitor socket, where the caller must listen.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CommandLine {
    /// The arguments, without the program.
    pub arguments: Vec<OsString>,
    /// Variables to set in its environment.
    pub environment: Vec<(String, String)>,
}

/// Converts an instance.
///
/// # Errors
/// Everything in the spec that cannot be honoured, in the order of the builders.
pub fn command_line(vmi: &VirtualMachineInstance, resources: &Resources) -> Result<CommandLine, Vec<Refusal>> {
    let mut line = Line::default();
    base(&mut line);
    support::instance(&mut line, &vmi.spec);
    let domain = &vmi.spec.domain;
    identity::add(&mut line, vmi);
    machine::add(&mut line, domain, resources);
    cpu::add(&mut line, domain, resources.accelerator);
    memory::add(&mut line, domain);
    boot::add(&mut line, domain, resources);
    clock::add(&mut line, domain.clock.as_ref());
    features::add(&mut line, domain.features.as_ref());
    console::add(&mut line, domain, resources);
    disks::add(&mut line, &vmi.spec, resources);
    networks::add(&mut line, vmi, resources);
    devices::add(&mut line, domain);
    line.finish()
}

/// What every guest has: nothing that was not asked for, a sandbox, and no instruction run before it is told to.
fn base(line: &mut Line) {
    line.flag("-nodefaults");
    line.flag("-no-user-config");
    line.option("-display", "none");
    line.option("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    line.flag("-S");
}
