//! From a VirtualMachineInstance to the guest that it asks for.
//!
//! One small function per concern, each pure. What nobody acts on is refused by the table of supported fields, which admission has as
//! well (`virt_rules::support`); what is refused here is what the table cannot see: devices that are in each other's way, and names
//! of files. All of it is told at once, by its path.

mod board;
mod boot;
mod clock;
mod console;
mod cpu;
mod disks;
mod identity;
mod memory;
mod networks;
mod plugging;
mod small;

use api::vmi::VirtualMachineInstance;

pub(crate) use board::DEFAULT_BOARD;
pub(crate) use cpu::host_model;
pub(crate) use identity::{CHASSIS_KEYS, SYSTEM_KEYS};
pub(crate) use memory::SIZES as MEMORY;
use plugging::{Plugged, Plugging};

use super::{Guest, VERSION};
use crate::Refusal;
use crate::accelerator::Accelerator;
use crate::refusal::Refusals;

/// What was there before.
#[derive(Clone, Copy, Debug)]
pub enum Before<'a> {
    /// Nothing: the first start.
    Nothing,
    /// A guest that has ended. What it had stays where it was; what is new is added as at a first start.
    Stopped(&'a Guest),
    /// A guest that runs. What is new goes where it can be plugged in now.
    Running(&'a Guest),
}

impl<'a> Before<'a> {
    fn guest(self) -> Option<&'a Guest> {
        match self {
            Self::Nothing => None,
            Self::Stopped(guest) | Self::Running(guest) => Some(guest),
        }
    }
}

/// What a guest that runs can become now.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    pub guest: Guest,
    /// Devices that are asked for and are not in it yet, by their paths: their place is that of a device which leaves first.
    pub waiting: Vec<String>,
}

/// The guest that an instance asks for.
///
/// # Guarantees
/// Every device that was there before and is still asked for, on the same sort of bus, keeps its id and its place.
///
/// # Errors
/// Everything in the spec that cannot be honoured.
pub fn build(
    vmi: &VirtualMachineInstance,
    accelerator: Accelerator,
    before: Before<'_>,
) -> Result<Guest, Vec<Refusal>> {
    let (mut refusals, next) = assemble(vmi, accelerator, before);
    for path in next.iter().flat_map(|next| &next.waiting) {
        refusals.refuse(path, "its place is that of a device that has not left yet");
    }
    refusals.or(next.map(|next| next.guest))
}

/// The next step of a guest that runs towards what an instance asks for. Where devices wait for the places of others, what is asked for
/// is reached in more than one.
///
/// # Errors
/// As [`build`].
pub fn next(vmi: &VirtualMachineInstance, accelerator: Accelerator, running: &Guest) -> Result<Next, Vec<Refusal>> {
    let (refusals, next) = assemble(vmi, accelerator, Before::Running(running));
    refusals.or(next)
}

fn assemble(vmi: &VirtualMachineInstance, accelerator: Accelerator, before: Before<'_>) -> (Refusals, Option<Next>) {
    let mut refusals = Refusals::of(vmi);
    let domain = &vmi.spec.domain;
    let identity = identity::identity(&mut refusals, vmi);
    let board = board::board(&mut refusals, domain, before.guest());
    let cpu = cpu::cpu(domain, accelerator, before.guest().map(|guest| &guest.cpu));
    let cpu = cpu::as_found(cpu, before);
    let memory = memory::memory(&mut refusals, domain);
    let boot = boot::boot(&mut refusals, domain, before);
    let clock = clock::clock(domain.clock.as_ref());
    let mut plugging = Plugging::new(&board, before);
    // In this order, so that a first start finds each device where it always was.
    console::plug(&mut refusals, &mut plugging, domain, boot.firmware);
    disks::plug(&mut refusals, &mut plugging, &vmi.spec);
    networks::plug(&mut refusals, &mut plugging, vmi);
    small::plug(&mut refusals, &mut plugging, domain);
    if domain.devices.disable_hotplug != Some(true) {
        plugging.spare_ports();
    }
    let Plugged { devices, minted, waiting } = plugging.finish(&mut refusals);
    let next = memory.map(|memory| {
        let version = VERSION;
        Next { guest: Guest { version, identity, board, cpu, memory, boot, clock, devices, minted }, waiting }
    });
    (refusals, next)
}
