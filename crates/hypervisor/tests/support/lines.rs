//! Command lines of instances whose wiring is made up.

use api::vmi::VirtualMachineInstance;
use hypervisor::Refusal;
use hypervisor::accelerator::Accelerator;
use hypervisor::guest::build::{Before, build};
use hypervisor::render::{self, CommandLine};

use crate::support;

/// How QEMU would be run for this instance. Refusals of the guest come before those of its wiring.
pub(crate) fn command_line(vmi: &VirtualMachineInstance) -> Result<CommandLine, Vec<Refusal>> {
    let guest = build(vmi, Accelerator::Tcg, Before::Nothing)?;
    render::command_line(&guest, &support::wiring(vmi))
}
