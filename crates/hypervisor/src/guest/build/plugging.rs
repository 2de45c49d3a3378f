//! Assigns ids and places to devices.

use std::collections::BTreeMap;

use super::Before;
use crate::guest::place::{Bus, Taken};
use crate::guest::{Board, Device, DeviceId, Guest, Kind, Place};
use crate::refusal::Refusals;
use crate::step::can_move;

/// How many devices can be plugged into a guest that runs, beyond those that it was started with.
const SPARE_PORTS: usize = 4;
/// What is said of a device that has no place.
const FULL: &str = "the bus has no free slot for it; remove another device";

/// The devices of a guest under construction.
pub(super) struct Plugging<'a> {
    board: &'a Board,
    before: Option<&'a Guest>,
    is_running: bool,
    devices: BTreeMap<DeviceId, Device>,
    minted: BTreeMap<String, u32>,
    taken: Taken,
    /// Devices without a place, by their paths.
    crowded: Vec<(Bus, String)>,
}

/// What came of plugging everything in.
pub(super) struct Plugged {
    pub(super) devices: BTreeMap<DeviceId, Device>,
    pub(super) minted: BTreeMap<String, u32>,
    /// Paths of devices that have a place once another device has left the guest.
    pub(super) waiting: Vec<String>,
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
        Self { board, before, is_running, devices: BTreeMap::new(), minted, taken, crowded: Vec::new() }
    }

    /// Plugs a device in where it was, or else where there is room. `path` is told if there is none.
    pub(super) fn plug(&mut self, refusals: &mut Refusals, path: &str, bus: Bus, of: Option<&str>, kind: Kind) {
        match self.place(bus, of, kind) {
            Some(_) => {}
            // Whether something leaves is known when everything else has its place.
            None if self.is_running => self.crowded.push((bus, path.to_owned())),
            None => refusals.refuse(path, FULL),
        }
    }

    fn place(&mut self, bus: Bus, of: Option<&str>, kind: Kind) -> Option<DeviceId> {
        let was = self.was(bus, of, &kind);
        let (id, place) = match was {
            Some((id, device)) => {
                self.keep(device.place.needs());
                (id.clone(), device.place.clone())
            }
            None => {
                let place = self.free(bus)?;
                (self.mint(&kind), place)
            }
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

    /// Every device with its place. Those that have none are refused, unless another one leaves such a place to them.
    pub(super) fn finish(self, refusals: &mut Refusals) -> Plugged {
        let Self { before, devices, minted, crowded, .. } = self;
        let is_left = |bus: Bus| {
            let mut all =
                before.iter().flat_map(|guest| guest.devices.iter().map(move |(id, device)| (guest, id, device)));
            all.any(|(guest, id, device)| {
                !devices.contains_key(id) && bus.has(&device.place) && can_move(guest, device)
            })
        };
        let (waiting, refused): (Vec<_>, Vec<_>) = crowded.into_iter().partition(|(bus, _)| is_left(*bus));
        refused.iter().for_each(|(_, path)| refusals.refuse(path, FULL));
        Plugged { devices, minted, waiting: waiting.into_iter().map(|(_, path)| path).collect() }
    }
}

#[cfg(test)]
mod tests {
    use api::vmi::VirtualMachineInstance;
    use serde_json::{Value, json};

    use crate::accelerator::Accelerator;
    use crate::guest::Guest;
    use crate::guest::build::{Before, Next, build, next};
    use crate::step::{Step, difference};

    fn with_disks(names: &[&str]) -> VirtualMachineInstance {
        let disks: Vec<Value> = names.iter().map(|name| json!({ "name": name, "disk": { "bus": "virtio" } })).collect();
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "a" },
            "spec": { "domain": { "devices": { "disks": disks }, "memory": { "guest": "64Mi" } } },
        });
        api::decode::object::<VirtualMachineInstance>(vmi).unwrap().object
    }

    fn again(names: &[&str], guest: &Guest) -> Result<Next, Vec<crate::Refusal>> {
        next(&with_disks(names), Accelerator::Tcg, guest)
    }

    #[test]
    fn a_device_without_a_port_waits_for_one_that_is_left_and_for_no_other() {
        let first = build(&with_disks(&["root"]), Accelerator::Tcg, Before::Nothing).unwrap();
        let full = again(&["root", "a", "b", "c", "d"], &first).unwrap();
        assert_eq!(full.waiting, [""; 0]);
        let full = full.guest;

        let there = again(&["root", "a", "b", "c", "new"], &full).unwrap();
        assert_eq!(there.waiting, ["spec.domain.devices.disks[4]"]);
        let found = difference(&full, &there.guest);
        let [Step::Unplug(_, gone)] = found.steps.as_slice() else { panic!("{found:?}") };
        assert_eq!((gone.of.as_deref(), found.restart.len()), (Some("d"), 0));
        let mut then = full.clone();
        found.steps[0].apply(&mut then);
        let after = again(&["root", "a", "b", "c", "new"], &then).unwrap();
        assert_eq!(after.waiting, [""; 0]);
        let found = difference(&then, &after.guest);
        assert!(
            matches!(found.steps.as_slice(), [Step::Plug(_, new)] if new.of.as_deref() == Some("new")),
            "{found:?}"
        );

        // Nothing leaves, or only what cannot leave before the guest ends.
        for names in [["root", "a", "b", "c", "d", "new"].as_slice(), &["a", "b", "c", "d", "new"]] {
            let refused = again(names, &full).unwrap_err();
            assert!(refused[0].to_string().contains("has no free slot"), "{refused:?}");
        }
    }

    #[test]
    fn an_attempt_that_finds_no_place_takes_no_id() {
        let first = build(&with_disks(&["root"]), Accelerator::Tcg, Before::Nothing).unwrap();
        let full = again(&["root", "a", "b", "c", "d"], &first).unwrap().guest;
        let there = again(&["root", "a", "b", "c", "new"], &full).unwrap().guest;
        assert_eq!(there.minted, full.minted);
    }
}
