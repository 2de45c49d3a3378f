//! Seeds of virtual machines, each twice.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a test tells what came about")]

mod support;

use simulation::{Options, Scene, VirtualMachines, check};
use virt_handler::hollow::Twin;

#[test]
fn what_must_hold_holds_for_every_seed() {
    support::check_seeds(10, Options::virtual_machines);
}

#[test]
fn whoever_takes_pods_away_by_force_breaks_nothing_else() {
    support::check_seeds(4, |seed| {
        let controllers = virt_controller::DESCRIPTORS;
        let scene = Scene::VirtualMachines(VirtualMachines { controllers, by_force: true, handlers: Twin::None });
        Options { scene, ..Options::virtual_machines(seed) }
    });
}

/// In this seed a VM is changed before its controller has heard of the revision that its instance was started from.
#[test]
fn a_revision_that_is_known_late_is_heeded() {
    check(&Options::virtual_machines(519_839_741)).unwrap();
}

/// In this seed the user deletes a pod that no node had room for, and the VM does not start another.
#[test]
fn a_vm_whose_pod_found_no_node_and_is_gone_has_stopped() {
    check(&Options::virtual_machines(20_000_132)).unwrap();
}

/// This one is in no range of seeds that runs with every change.
#[test]
fn what_must_hold_holds_for_seed_7_000_332() {
    check(&Options::virtual_machines(7_000_332)).unwrap();
}
