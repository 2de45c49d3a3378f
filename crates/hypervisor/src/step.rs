//! From a guest that runs to the one that is asked for, step by step.
//!
//! # Guarantees
//! - Steps are in an order in which each can be taken: what is plugged in finds its port, what goes leaves it first.
//! - Each step has an undoing, which is a step itself: taken backwards, the undone steps lead back to the guest before.
//! - What no step can change is said instead, and then nothing is changed.

use crate::guest::{Device, DeviceId, Guest, Kind, Place};

/// One change of a guest that runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// A device comes.
    Plug(DeviceId, Device),
    /// A device goes. The guest has a say in when.
    Unplug(DeviceId, Device),
}

impl Step {
    /// What takes it back.
    #[must_use]
    pub fn undo(self) -> Self {
        match self {
            Self::Plug(id, device) => Self::Unplug(id, device),
            Self::Unplug(id, device) => Self::Plug(id, device),
        }
    }

    /// The guest after it.
    pub fn apply(&self, guest: &mut Guest) {
        match self {
            Self::Plug(id, device) => drop(guest.devices.insert(id.clone(), device.clone())),
            Self::Unplug(id, _) => drop(guest.devices.remove(id)),
        }
    }
}

/// How a guest becomes another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Difference {
    /// By these steps, while it runs; none if there is nothing to do.
    Steps(Vec<Step>),
    /// Only by its next start, for these parts of it.
    Restart(Vec<String>),
}

/// What leads from one guest to the other.
#[must_use]
pub fn difference(old: &Guest, new: &Guest) -> Difference {
    let Guest { version: _, identity, board, cpu, memory, boot, clock, devices, minted: _ } = new;
    let mut restart = Vec::new();
    for (name, is_same) in [
        ("identity", old.identity == *identity),
        ("board", old.board == *board),
        ("cpu", old.cpu == *cpu),
        ("memory", old.memory == *memory),
        ("boot", old.boot == *boot),
        ("clock", old.clock == *clock),
    ] {
        if !is_same {
            restart.push(name.to_owned());
        }
    }
    let mut steps = Vec::new();
    for (id, device) in &old.devices {
        match devices.get(id) {
            Some(same) if same == device => {}
            // A device whose properties change is another device.
            Some(_) => restart.push(named(id, device)),
            None if can_move(old, device) => steps.push(Step::Unplug(id.clone(), device.clone())),
            None => restart.push(named(id, device)),
        }
    }
    for (id, device) in devices.iter().filter(|(id, _)| !old.devices.contains_key(id)) {
        if can_move(old, device) {
            steps.push(Step::Plug(id.clone(), device.clone()));
        } else {
            restart.push(named(id, device));
        }
    }
    if restart.is_empty() { Difference::Steps(steps) } else { Difference::Restart(restart) }
}

fn named(id: &DeviceId, device: &Device) -> String {
    device.of.clone().unwrap_or_else(|| id.to_string())
}

/// Whether a device can come and go while the guest runs: by what it is, and by where it is.
fn can_move(guest: &Guest, device: &Device) -> bool {
    let is_movable = matches!(device.kind, Kind::Disk(_) | Kind::Interface(_));
    let is_open = match &device.place {
        // Whoever plugs into a controller needs one that is there.
        Place::Port { port } => guest.devices.contains_key(port),
        Place::Scsi { controller, .. } => guest.devices.contains_key(controller),
        Place::Pci { .. } => guest.board.is_pc(),
        Place::Sata { .. } | Place::Usb { .. } | Place::Channel { .. } | Place::Isa => false,
    };
    is_movable && is_open
}
