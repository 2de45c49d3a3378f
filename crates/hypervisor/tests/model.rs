//! The model of a guest: what never moves, and how one guest becomes another.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;

use api::vmi::VirtualMachineInstance;
use hypervisor::accelerator::Accelerator;
use hypervisor::guest::build::{Before, build};
use hypervisor::guest::{Device, Guest, Kind, Place};
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
        let Difference::Steps(steps) = difference(&old, &new) else { return Ok(()) };
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
        prop_assert_eq!(difference(&guest, &new), Difference::Steps(vec![]));
        for step in steps.into_iter().rev() {
            step.undo().apply(&mut guest);
        }
        prop_assert_eq!(&guest.devices, &old.devices);
        // Whoever asks for the old instance again gets the same steps back.
        let again = build(&old_vmi, Accelerator::Tcg, Before::Running(&new)).expect("it was supported");
        let Difference::Steps(back) = difference(&new, &again) else { panic!("what was plugged in cannot go") };
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
    let cases: [(&str, Change); 4] = [
        ("memory", |guest| guest.memory.bytes *= 2),
        ("cpu", |guest| guest.cpu.sockets += 1),
        ("board", |guest| guest.board.type_ = "pc".to_owned()),
        // It is on the root bus, from which nothing goes while the guest runs.
        ("disk-0", |guest| guest.devices.retain(|_, device| device.of.is_none())),
    ];
    for (what, change) in cases {
        let Difference::Restart(parts) = changed(change) else { panic!("{what} was changed") };
        assert!(parts.contains(&what.to_owned()), "{parts:?} for {what}");
    }
    assert_eq!(difference(&old, &old), Difference::Steps(vec![]));
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
