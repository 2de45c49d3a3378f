//! Where devices are plugged in, and which places are free.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Board, DeviceId};

/// Ports of one SATA controller.
const SATA_PORTS: u8 = 6;
/// Logical units of one SCSI controller that every guest finds: more are seen by guests that ask in the newer way only.
const SCSI_UNITS: u16 = 256;
/// Ports of the USB controller that take keyboards and tablets.
const USB_PORTS: u8 = 4;
/// Where spare ports are, eight in a slot: below everything that is built in, above what is plugged in.
pub(crate) const ROOT_PORTS_SLOT: u8 = 0x1e;

/// Where a device is plugged in. Controllers and ports are named by their ids.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    /// On the board's root bus.
    Pci {
        slot: u8,
        /// The function in it.
        function: u8,
    },
    /// In a port of the board.
    Port { port: DeviceId },
    /// On a SATA controller.
    Sata {
        controller: DeviceId,
        /// The port of it.
        port: u8,
    },
    /// On a SCSI controller.
    Scsi {
        controller: DeviceId,
        /// The logical unit.
        lun: u16,
    },
    /// On a USB controller.
    Usb {
        controller: DeviceId,
        /// The port of it.
        port: u8,
    },
    /// A channel of a controller.
    Channel {
        controller: DeviceId,
        /// The number of it.
        number: u8,
    },
    /// On the ISA bus, where each device has addresses of its own.
    Isa,
}

impl Place {
    /// The controller or port that must be there before.
    #[must_use]
    pub fn needs(&self) -> Option<&DeviceId> {
        match self {
            Self::Pci { .. } | Self::Isa => None,
            Self::Port { port } => Some(port),
            Self::Sata { controller, .. }
            | Self::Scsi { controller, .. }
            | Self::Usb { controller, .. }
            | Self::Channel { controller, .. } => Some(controller),
        }
    }
}

/// Which sort of place a device needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Bus {
    Pci,
    Sata,
    Scsi,
    Usb,
    Channel,
    Isa,
    RootPort,
}

impl Bus {
    /// Whether a place is of this sort.
    pub(super) fn has(self, place: &Place) -> bool {
        match self {
            Self::Pci => matches!(place, Place::Pci { .. } | Place::Port { .. }),
            Self::Sata => matches!(place, Place::Sata { .. }),
            Self::Scsi => matches!(place, Place::Scsi { .. }),
            Self::Usb => matches!(place, Place::Usb { .. }),
            Self::Channel => matches!(place, Place::Channel { .. }),
            Self::Isa => matches!(place, Place::Isa),
            Self::RootPort => matches!(place, Place::Pci { slot, .. } if *slot == ROOT_PORTS_SLOT),
        }
    }
}

/// Places that are taken.
#[derive(Default)]
pub(super) struct Taken(BTreeSet<Place>);

impl Taken {
    pub(super) fn take(&mut self, place: &Place) {
        self.0.insert(place.clone());
    }

    fn first<T>(&self, mut places: impl Iterator<Item = T>, place: impl Fn(T) -> Place) -> Option<Place>
    where
        T: Copy,
    {
        places.find(|at| !self.0.contains(&place(*at))).map(place)
    }

    /// The first slot of the root bus, where QEMU itself would put a device.
    pub(super) fn slot(&self, board: &Board) -> Option<Place> {
        // The board's own devices: host bridge and, on the old board, the one to ISA; the new one has its at the end.
        let slots = if board.is_pc() { 2..=31 } else { 1..=ROOT_PORTS_SLOT - 1 };
        self.first(slots, |slot| Place::Pci { slot, function: 0 })
    }

    /// A spare port's own place.
    pub(super) fn root_port(&self) -> Option<Place> {
        self.first(0..8, |function| Place::Pci { slot: ROOT_PORTS_SLOT, function })
    }

    /// A port with nothing in it.
    pub(super) fn port<'a>(&self, ports: impl Iterator<Item = &'a DeviceId>) -> Option<Place> {
        self.first(ports, |port| Place::Port { port: port.clone() })
    }

    /// A place on a controller.
    pub(super) fn on(&self, bus: Bus, controller: &DeviceId) -> Option<Place> {
        let controller = || controller.clone();
        match bus {
            Bus::Sata => self.first(0..SATA_PORTS, |port| Place::Sata { controller: controller(), port }),
            Bus::Scsi => self.first(0..SCSI_UNITS, |lun| Place::Scsi { controller: controller(), lun }),
            Bus::Usb => self.first(1..=USB_PORTS, |port| Place::Usb { controller: controller(), port }),
            Bus::Channel => self.first(1..=30, |number| Place::Channel { controller: controller(), number }),
            Bus::Pci | Bus::Isa | Bus::RootPort => None,
        }
    }
}

/// Which function of its slot a device is, if it is on the root bus.
pub(crate) fn function_of(place: &Place) -> Option<u8> {
    match place {
        Place::Pci { function, .. } => Some(*function),
        _ => None,
    }
}
