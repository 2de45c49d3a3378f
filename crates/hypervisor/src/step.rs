//! The steps that turn a running guest into the one that is asked for.
//!
//! # Guarantees
//! - Steps are in an order in which each can be taken: what is plugged in finds its port, what goes leaves it first.
//! - Each step has an undoing, which is a step itself: taken backwards, the undone steps lead back to the guest before.
//! - What no step can change is said, with what it waits for; it is in nobody's way.

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
    /// What comes or goes.
    #[must_use]
    pub fn device(&self) -> &Device {
        let (Self::Plug(_, device) | Self::Unplug(_, device)) = self;
        device
    }

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
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Difference {
    /// What can be done while it runs.
    pub steps: Vec<Step>,
    /// Fields of the instance that it takes on at its next start.
    pub restart: Vec<String>,
}

/// What leads from one guest to the other.
#[must_use]
pub fn difference(old: &Guest, new: &Guest) -> Difference {
    let Guest { version: _, identity, board, cpu, memory, boot, clock, devices, minted: _ } = new;
    let mut found = Difference::default();
    for (field, is_same) in [
        ("metadata", old.identity == *identity),
        ("spec.domain.machine", old.board == *board),
        ("spec.domain.firmware", old.boot == *boot),
        ("spec.domain.clock", old.clock == *clock),
        // No step fills a socket or adds memory yet, where there is room for more. Nor does a migration: what arrives is what has left.
        ("spec.domain.cpu", old.cpu == *cpu),
        ("spec.domain.memory", old.memory == *memory),
    ] {
        if !is_same {
            found.restart.push(field.to_owned());
        }
    }
    for (id, device) in &old.devices {
        match devices.get(id) {
            Some(same) if same == device => {}
            // A device whose properties change is another device.
            Some(_) => found.restart.push(field(id, device)),
            None if can_move(old, device) => found.steps.push(Step::Unplug(id.clone(), device.clone())),
            None => found.restart.push(field(id, device)),
        }
    }
    for (id, device) in devices.iter().filter(|(id, _)| !old.devices.contains_key(id)) {
        if can_move(old, device) {
            found.steps.push(Step::Plug(id.clone(), device.clone()));
        } else {
            found.restart.push(field(id, device));
        }
    }
    found
}

impl Difference {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether steps alone lead there.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.restart.is_empty()
    }
}

/// The field of the instance that asks for a device.
fn field(id: &DeviceId, device: &Device) -> String {
    let list = match device.kind {
        Kind::Disk(_) => "disks",
        Kind::Interface(_) => "interfaces",
        _ => return format!("spec.domain.devices ({id})"),
    };
    device.of.as_ref().map_or_else(
        || format!("spec.domain.devices.{list} ({id})"),
        |name| format!("spec.domain.devices.{list}[name={name}]"),
    )
}

/// Whether a device can come and go while the guest runs: by what it is, and by where it is.
pub(crate) fn can_move(guest: &Guest, device: &Device) -> bool {
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
