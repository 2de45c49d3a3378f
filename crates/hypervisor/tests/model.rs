//! The model of a guest: what never moves, and how one guest becomes another.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "model/pinned.rs"]
mod pinned;
mod support;

use std::collections::BTreeSet;

use api::vmi::VirtualMachineInstance;
use hypervisor::accelerator::Accelerator;
use hypervisor::guest::build::{Before, build};
use hypervisor::guest::{Cpu, Device, Flash, Guest, Kind, Place};
use hypervisor::render;
use hypervisor::step::{Difference, Step, difference};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A disk or an interface that somebody may add or remove.
#[derive(Clone, Debug)]
enum Item {
    Disk { name: u8, bus: &'static str },
    Interface { name: u8 },
}

fn item() -> impl Strategy<Value = Item> {
    let bus = prop::sample::select(vec!["virtio", "sata", "scsi"]);
    prop_oneof![
        3 => (0..12_u8, bus).prop_map(|(name, bus)| Item::Disk { name, bus }),
        1 => (0..6_u8).prop_map(|name| Item::Interface { name }),
    ]
}

/// An instance with these, in this order; what is named twice is there once.
fn instance(board: &str, items: &[Item]) -> VirtualMachineInstance {
    let mut seen = BTreeSet::new();
    let (mut disks, mut volumes, mut interfaces, mut networks) = (vec![], vec![], vec![], vec![]);
    for item in items {
        match item {
            Item::Disk { name, bus } if seen.insert((true, *name)) => {
                disks.push(json!({ "name": format!("disk-{name}"), "disk": { "bus": bus } }));
                volumes.push(json!({ "name": format!("disk-{name}"), "emptyDisk": { "capacity": "1Gi" } }));
            }
            Item::Interface { name } if seen.insert((false, *name)) => {
                interfaces.push(json!({ "name": format!("net-{name}"), "masquerade": {} }));
                networks.push(json!({ "name": format!("net-{name}"), "pod": {} }));
            }
            _ => {}
        }
    }
    let devices =
        json!({ "disks": disks, "interfaces": interfaces, "rng": {}, "inputs": [{ "name": "t", "type": "tablet" }] });
    decode(json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "a", "namespace": "b" },
        "spec": {
            "domain": { "devices": devices, "memory": { "guest": "64Mi" }, "machine": { "type": board } },
            "networks": networks, "volumes": volumes,
        },
    }))
}

fn decode(object: Value) -> VirtualMachineInstance {
    api::decode::object::<VirtualMachineInstance>(object).expect("it fits the types").object
}

fn first(vmi: &VirtualMachineInstance) -> Guest {
    build(vmi, Accelerator::Tcg, Before::Nothing).expect("it is supported")
}

/// What a device is known by in the instance, and the sort of place that it was asked for.
fn key(device: &Device) -> Option<(String, std::mem::Discriminant<Place>)> {
    let place = match &device.place {
        // Both are places for PCI devices.
        Place::Port { .. } => Place::Pci { slot: 0, function: 0 },
        place => place.clone(),
    };
    device.of.clone().map(|of| (of, std::mem::discriminant(&place)))
}

fn no_two_share_a_place(guest: &Guest) -> Result<(), TestCaseError> {
    let mut places = BTreeSet::new();
    for (id, device) in &guest.devices {
        prop_assert!(device.place == Place::Isa || places.insert(&device.place), "{id} shares {:?}", device.place);
        if let Some(needed) = device.place.needs() {
            prop_assert!(guest.devices.contains_key(needed), "{id} is plugged into {needed}, which is not there");
        }
    }
    Ok(())
}

fn boards() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["q35", "pc"])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: testkit::soak::cases(128), failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes and goes, while it runs or between two starts.
    #[test]
    fn ids_and_places_never_move(
        board in boards(),
        edits in prop::collection::vec((prop::collection::vec(item(), 0..9), any::<bool>()), 1..8),
    ) {
        let mut guest = first(&instance(board, &[]));
        let mut gone: BTreeSet<_> = BTreeSet::new();
        for (items, is_running) in edits {
            let before = if is_running { Before::Running(&guest) } else { Before::Stopped(&guest) };
            // There may be no room for it while it runs; then nothing changes.
            let Ok(next) = build(&instance(board, &items), Accelerator::Tcg, before) else { continue };
            no_two_share_a_place(&next)?;
            for (id, device) in &guest.devices {
                let now = next.devices.get(id);
                let is_asked_for = key(device).is_some_and(|old| next.devices.values().any(|new| key(new) == Some(old.clone())));
                let stays = now.is_some_and(|now| now.place == device.place && now.of == device.of);
                prop_assert!(!is_asked_for || stays, "{id} was {device:?} and is {now:?}");
                if now.is_none() {
                    gone.insert(id.clone());
                }
            }
            prop_assert!(next.devices.keys().all(|id| !gone.contains(id)), "an id was used again");
            guest = next;
        }
    }

    /// What is stored is what is read, and the same instance changes nothing.
    #[test]
    fn a_guest_is_stored_and_read(board in boards(), items in prop::collection::vec(item(), 0..9)) {
        let vmi = instance(board, &items);
        let guest = first(&vmi);
        let read: Guest = serde_json::from_str(&serde_json::to_string(&guest).expect("JSON")).expect("a guest");
        prop_assert_eq!(&read, &guest);
        for before in [Before::Stopped(&read), Before::Running(&read)] {
            prop_assert_eq!(&build(&vmi, Accelerator::Tcg, before).expect("it is supported"), &guest);
        }
    }

    /// Steps lead to the guest that was asked for and back, and what runs then is rendered as if it had been started so.
    #[test]
    fn steps_lead_there_and_back(
        board in boards(),
        items in prop::collection::vec(item(), 0..6),
        more in prop::collection::vec(item(), 0..4),
    ) {
        let (old_vmi, vmi) = (instance(board, &items), instance(board, &[items, more].concat()));
        let old = first(&old_vmi);
        let Ok(new) = build(&vmi, Accelerator::Tcg, Before::Running(&old)) else { return Ok(()) };
        let found = difference(&old, &new);
        if !found.is_live() {
            return Ok(());
        }
        let steps = found.steps;
        let mut guest = old.clone();
        for step in &steps {
            if let Step::Plug(id, _) = step {
                let parts = render::parts(&new, &support::wiring(&vmi), id).expect("it is wired");
                prop_assert!(parts.iter().all(|part| part.add().is_some() && part.remove().is_some()), "{parts:?}");
            }
            step.apply(&mut guest);
        }
        prop_assert_eq!(&guest.devices, &new.devices);
        guest.minted = new.minted.clone();
        let line = |guest: &Guest| render::command_line(guest, &support::wiring(&vmi)).expect("it is wired");
        prop_assert_eq!(line(&guest), line(&new));
        prop_assert!(difference(&guest, &new).is_empty());
        for step in steps.into_iter().rev() {
            step.undo().apply(&mut guest);
        }
        prop_assert_eq!(&guest.devices, &old.devices);
        // Whoever asks for the old instance again gets the same steps back.
        let again = build(&old_vmi, Accelerator::Tcg, Before::Running(&new)).expect("it was supported");
        let Difference { steps: back, restart } = difference(&new, &again);
        prop_assert!(restart.is_empty(), "what was plugged in cannot go: {restart:?}");
        prop_assert!(back.iter().all(|step| matches!(step, Step::Unplug(..))), "{back:?}");
        prop_assert_eq!(&again.devices, &old.devices);
    }
}

#[test]
fn what_no_step_can_change_waits_for_the_next_start() {
    let old = first(&instance("q35", &[Item::Disk { name: 0, bus: "virtio" }]));
    type Change = fn(&mut Guest);
    let changed = |change: Change| {
        let mut new = old.clone();
        change(&mut new);
        difference(&old, &new)
    };
    let restart: [(&str, Change); 4] = [
        ("spec.domain.memory", |guest| guest.memory.bytes *= 2),
        ("spec.domain.cpu", |guest| guest.cpu.sockets += 1),
        ("spec.domain.machine", |guest| guest.board.type_ = "pc".to_owned()),
        // It is on the root bus, from which nothing goes while the guest runs.
        ("spec.domain.devices.disks[name=disk-0]", |guest| {
            guest.devices.retain(|_, device| device.of.as_deref() != Some("disk-0"));
        }),
    ];
    for (field, change) in restart {
        let waits = Difference { restart: vec![field.to_owned()], ..Difference::default() };
        assert_eq!(changed(change), waits);
    }
    assert!(difference(&old, &old).is_empty());
}

/// A migration's target runs the model of its source: a guest that waited for one would move round and round.
#[test]
fn what_a_guest_has_room_for_waits_for_its_next_start_and_for_no_migration() {
    let vmi = |sockets: u32, memory: &str| {
        decode(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "name": "a" },
            "spec": { "domain": {
                "devices": {}, "cpu": { "sockets": sockets, "maxSockets": 4 },
                "memory": { "guest": memory, "maxGuest": "128Mi" },
            } },
        }))
    };
    let old = first(&vmi(2, "64Mi"));
    let changed = |sockets: u32, memory: &str| {
        let new = build(&vmi(sockets, memory), Accelerator::Tcg, Before::Running(&old)).expect("it is supported");
        difference(&old, &new)
    };
    let waits = |field: &str| Difference { restart: vec![field.to_owned()], ..Difference::default() };
    assert_eq!(changed(4, "64Mi"), waits("spec.domain.cpu"));
    assert_eq!(changed(2, "128Mi"), waits("spec.domain.memory"));
    assert_eq!(changed(1, "64Mi"), waits("spec.domain.cpu"));
}

/// QEMU before 8.1 leaves memory barriers out of emulated guests that can never have a second CPU.
#[test]
fn an_emulated_guest_has_room_for_a_second_cpu_from_its_first_start_on() {
    let vmi = instance("q35", &[]);
    let kvm = build(&vmi, Accelerator::Kvm, Before::Nothing).expect("it is supported");
    assert_eq!((first(&vmi).cpu.most_sockets, kvm.cpu.most_sockets), (2, 1));
    for before in [Before::Running(&kvm), Before::Stopped(&kvm)] {
        let next = build(&vmi, Accelerator::Tcg, before).expect("it is supported");
        assert_eq!(next.cpu, Cpu { model: next.cpu.model.clone(), ..kvm.cpu.clone() });
    }
}

/// What waits is in nobody's way: the disk comes now, the board at the next start.
#[test]
fn what_can_be_done_now_is_done_now() {
    let old = first(&instance("q35", &[]));
    let vmi = instance("pc-q35-2.4", &[Item::Disk { name: 0, bus: "virtio" }]);
    let new = build(&vmi, Accelerator::Tcg, Before::Running(&old)).expect("it is supported");
    let Difference { steps, restart } = difference(&old, &new);
    assert!(matches!(steps.as_slice(), [Step::Plug(..)]), "{steps:?}");
    assert_eq!(restart, ["spec.domain.machine"]);
}

/// `q35` is one board today and another one in QEMU's next release.
#[test]
fn a_board_stays_the_version_that_it_was() {
    let mut guest = first(&instance("q35", &[]));
    guest.board.type_ = "pc-q35-7.2".to_owned();
    let next = |board: &str| {
        let built = build(&instance(board, &[]), Accelerator::Tcg, Before::Stopped(&guest));
        built.expect("it is supported").board.type_
    };
    assert_eq!(next("q35"), "pc-q35-7.2");
    assert_eq!(next("pc-q35-9.0"), "pc-q35-9.0");
    assert_eq!(next("pc"), "pc");
}

/// People can write to the objects that a model is kept on.
#[test]
fn a_stored_model_cannot_say_what_no_guest_has() {
    let items =
        [Item::Disk { name: 0, bus: "sata" }, Item::Disk { name: 1, bus: "virtio" }, Item::Interface { name: 0 }];
    let guest = first(&instance("q35", &items));
    let stored = serde_json::to_value(&guest).expect("JSON");
    let read = |change: fn(&mut Value)| {
        let mut text = stored.clone();
        change(&mut text);
        Guest::from_stored(text.to_string().as_bytes()).map_err(|error| error.to_string())
    };
    assert_eq!(read(|_| {}), Ok(guest));
    let refused: [fn(&mut Value); 26] = [
        |text| text["version"] = 2.into(),
        |text| text["version"] = 0.into(),
        |text| text["board"]["type"] = "q35,dumpdtb=/etc/passwd".into(),
        |text| text["cpu"]["model"] = "max,+x".into(),
        |text| text["cpu"]["features"] = json!([["a=b", true]]),
        |text| text["devices"]["x,y"] = json!({ "place": "isa", "kind": "entropy" }),
        |text| text["identity"]["name"] = "a\nb".into(),
        |text| text["identity"]["uuid"] = "5d307ca9,x".into(),
        |text| text["identity"]["system"]["file=/etc/passwd,x"] = "x".into(),
        |text| text["identity"]["chassis"] = json!({ "file=/etc/passwd,x": "x" }),
        |text| text["identity"]["chassis"] = json!({ "serial": "a\nb" }),
        |text| text["cpu"]["cores"] = 0.into(),
        |text| text["cpu"]["most_sockets"] = 256.into(),
        |text| text["cpu"]["threads"] = u32::MAX.into(),
        |text| text["memory"]["bytes"] = 0.into(),
        |text| text["memory"]["most_bytes"] = u64::MAX.into(),
        |text| text["boot"]["kernel"] = json!({ "arguments": "a\nb" }),
        |text| text["clock"]["zone"] = ":/etc/shadow".into(),
        |text| text["devices"]["disk1"]["place"]["pci"]["slot"] = 32.into(),
        |text| text["devices"]["disk1"]["place"]["pci"]["function"] = 255.into(),
        |text| text["devices"]["disk0"]["place"]["sata"]["port"] = 6.into(),
        // It is there, and no controller of disks.
        |text| text["devices"]["disk0"]["place"]["sata"]["controller"] = "usb0".into(),
        |text| text["devices"]["disk1"]["place"] = text["devices"]["net0"]["place"].clone(),
        |text| text["devices"]["disk1"]["rom_bytes"] = 65536.into(),
        |text| text["devices"]["video0"]["rom_bytes"] = 65535.into(),
        // The next disk would be called so.
        |text| text["minted"]["disk"] = 1.into(),
    ];
    for (index, change) in refused.into_iter().enumerate() {
        assert!(read(change).is_err(), "{index} is not a model");
    }
}

/// What QEMU has made of a guest stays while it runs, and is its node's again at the next start.
#[test]
fn roms_and_flash_stay_as_they_are_while_a_guest_runs() {
    let mut vmi = instance("q35", &[Item::Interface { name: 0 }]);
    let devices = &mut vmi.spec.domain.devices;
    devices.interfaces.iter_mut().flatten().for_each(|interface| interface.boot_order = Some(1));
    let mut guest = first(&vmi);
    guest.boot.flash = Some(Flash { code: 4, variables: 2 });
    for device in guest.devices.values_mut().filter(|device| device.kind.has_rom()) {
        device.rom_bytes = Some(65536);
    }
    let build = |before| build(&vmi, Accelerator::Tcg, before).expect("it is supported");
    assert!(difference(&guest, &build(Before::Running(&guest))).is_empty());
    let next = build(Before::Stopped(&guest));
    assert_eq!((next.boot.flash, next.devices.values().filter_map(|device| device.rom_bytes).count()), (None, 0));
    let line = render::command_line(&guest, &support::wiring(&vmi)).expect("it is wired");
    let roms = line.arguments.iter().filter(|argument| argument.to_string_lossy().contains(r#""romsize":65536"#));
    assert_eq!(roms.count(), 2);
    let read = Guest::from_stored(guest.to_stored().expect("a text").as_bytes()).expect("it is a model");
    assert_eq!(read, guest);
}

#[test]
fn a_guest_that_runs_takes_as_many_as_it_has_ports() {
    let items = |count: u8| (0..count).map(|name| Item::Disk { name, bus: "virtio" }).collect::<Vec<_>>();
    let old = first(&instance("q35", &items(1)));
    let grown = |count: u8| build(&instance("q35", &items(count)), Accelerator::Tcg, Before::Running(&old));
    let in_ports =
        |guest: &Guest| guest.devices.values().filter(|device| matches!(device.place, Place::Port { .. })).count();
    assert_eq!(in_ports(&grown(5).expect("four more")), 4);
    let refusals = grown(6).expect_err("there are no more ports");
    assert_eq!(refusals[0].path, "spec.domain.devices.disks[5]");
    // The next start makes room again, and moves nothing.
    let four = grown(5).expect("four more");
    let next = build(&instance("q35", &items(5)), Accelerator::Tcg, Before::Stopped(&four)).expect("it is supported");
    assert_eq!(in_ports(&next), 4);
    let spare = next.devices.values().filter(|device| device.kind == Kind::RootPort).count();
    assert_eq!(spare, 8);
}
