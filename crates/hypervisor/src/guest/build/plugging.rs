//! Assigns ids and places to devices.

use std::collections::BTreeMap;

use super::Before;
use crate::guest::place::{Bus, Taken};
use crate::guest::{Board, Device, DeviceId, Guest, Kind, Place};
use crate::refusal::Refusals;

/// How many devices can be plugged into a guest that runs, beyond those that it was started with.
const SPARE_PORTS: usize = 4;

/// The devices of a guest under construction.
pub(super) struct Plugging<'a> {
    board: &'a Board,
    before: Option<&'a Guest>,
    is_running: bool,
    devices: BTreeMap<DeviceId, Device>,
    minted: BTreeMap<String, u32>,
    taken: Taken,
}

impl<'a> Plugging<'a> {
    pub(super) fn new(board: &'a Board, before: Before<'a>) -> Self {
        let (is_running, before) = (matches!(before, Before::Running(_)), before.guest());
        let mut taken = Taken::default();
        // What goes away leaves its place to the guest after this one: a device that runs lets go of it only later.
        for device in before.iter().flat_map(|guest| guest.devices.values()) {
            taken.take(&device.place);
        }
        let minted = before.map(|guest| guest.minted.clone()).unwrap_or_default();
        Self { board, before, is_running, devices: BTreeMap::new(), minted, taken }
    }

    /// Plugs a device in where it was, or else where there is room. `path` is told if there is none.
    pub(super) fn plug(&mut self, refusals: &mut Refusals, path: &str, bus: Bus, of: Option<&str>, kind: Kind) {
        if self.place(bus, of, kind).is_none() {
            refusals.refuse(path, "the bus has no free slot for it; remove another device");
        }
    }

    fn place(&mut self, bus: Bus, of: Option<&str>, kind: Kind) -> Option<DeviceId> {
        let was = self.was(bus, of, &kind);
        let (id, place) = match was {
            Some((id, device)) => {
                self.keep(device.place.needs());
                (id.clone(), device.place.clone())
            }
            None => (self.mint(&kind), self.free(bus)?),
        };
        // What is tried first is a matter of the next start, and no two devices may share a number until then.
        let kind = if self.is_running { kind.booted_as(was.map(|(_, device)| &device.kind)) } else { kind };
        // The next start takes the ROM of its node.
        let rom_bytes = was.filter(|_| self.is_running).and_then(|(_, device)| device.rom_bytes);
        self.taken.take(&place);
        self.devices.insert(id.clone(), Device { of: of.map(str::to_owned), place, kind, rom_bytes });
        Some(id)
    }

    /// The same device of the guest before, unless another one was taken for it already.
    fn was(&self, bus: Bus, of: Option<&str>, kind: &Kind) -> Option<(&'a DeviceId, &'a Device)> {
        let is_it = |(id, device): &(&DeviceId, &Device)| {
            let is_same = device.kind.prefix() == kind.prefix() && device.of.as_deref() == of;
            is_same && bus.has(&device.place) && !self.devices.contains_key(*id)
        };
        self.before?.devices.iter().find(is_it)
    }

    /// A controller or port of the guest before stays where something stays that is plugged into it.
    fn keep(&mut self, id: Option<&DeviceId>) {
        let Some((id, device)) = id.and_then(|id| self.before?.devices.get_key_value(id)) else { return };
        if !self.devices.contains_key(id) {
            self.taken.take(&device.place);
            self.devices.insert(id.clone(), device.clone());
        }
    }

    fn mint(&mut self, kind: &Kind) -> DeviceId {
        let prefix = kind.prefix();
        DeviceId::mint(prefix, self.minted.entry(prefix.to_owned()).or_default())
    }

    fn free(&mut self, bus: Bus) -> Option<Place> {
        match bus {
            Bus::Isa => Some(Place::Isa),
            Bus::RootPort => self.taken.root_port(),
            // Only ports take a device while a guest runs, but for the old board.
            Bus::Pci if self.is_running && !self.board.is_pc() => {
                let ports = self.before.iter().flat_map(|guest| &guest.devices);
                let ports = ports.filter(|(_, device)| device.kind == Kind::RootPort).map(|(id, _)| id);
                let place = self.taken.port(ports)?;
                self.keep(place.needs());
                Some(place)
            }
            Bus::Pci => self.taken.slot(self.board),
            Bus::Sata => self.on_controller(bus, Kind::Sata),
            Bus::Scsi => self.on_controller(bus, Kind::Scsi),
            Bus::Usb => self.on_controller(bus, Kind::Usb),
            Bus::Channel => self.on_controller(bus, Kind::Channels),
        }
    }

    /// A place on a controller that is there, or else on a new one.
    fn on_controller(&mut self, bus: Bus, controller: Kind) -> Option<Place> {
        let known = self.before.iter().flat_map(|guest| &guest.devices).chain(&self.devices);
        let mut known = known.filter(|(_, device)| device.kind == controller).map(|(id, _)| id.clone());
        if let Some(place) = known.find_map(|id| self.taken.on(bus, &id)) {
            self.keep(place.needs());
            return Some(place);
        }
        // Guests know one controller of each sort, but for SATA, which has few ports.
        let is_first = self.devices.values().all(|device| device.kind != controller);
        if !is_first && controller != Kind::Sata {
            return None;
        }
        let id = self.place(Bus::Pci, None, controller)?;
        self.taken.on(bus, &id)
    }

    /// Ports for what is plugged in later. A guest that runs has those that it has.
    pub(super) fn spare_ports(&mut self) {
        if self.board.is_pc() {
            return;
        }
        let old = self.before.iter().flat_map(|guest| &guest.devices);
        let old: Vec<_> = old.filter(|(_, device)| device.kind == Kind::RootPort).map(|(id, _)| id.clone()).collect();
        for id in &old {
            self.keep(Some(id));
        }
        if self.is_running {
            return;
        }
        let in_use = self.devices.values().filter(|device| matches!(device.place, Place::Port { .. })).count();
        for _ in old.len()..in_use + SPARE_PORTS {
            // Beyond what a slot has, there are no more.
            if self.place(Bus::RootPort, None, Kind::RootPort).is_none() {
                return;
            }
        }
    }

    pub(super) fn finish(self) -> (BTreeMap<DeviceId, Device>, BTreeMap<String, u32>) {
        (self.devices, self.minted)
    }
}
