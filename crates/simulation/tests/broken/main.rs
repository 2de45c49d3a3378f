//! Controllers that are broken in ways that a review would miss, or that are not there at all, and the simulation that must
//! catch each of them: a rule that nothing can break checks nothing. Every rule has such a twin.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod deployments;
mod launchers;
mod missing;
mod pools;
mod services;
mod virtual_machines;

use std::collections::BTreeSet;

use kube_controllers::table as kubernetes;
use manager::descriptor::Descriptor;
use simulation::{Options, Scene, Seconds, VirtualMachines, run};
use virt_controller as virt;
use virt_handler::hollow::Twin;

/// Seeds in which a broken controller must be caught.
const SEEDS: u64 = 40;
/// Those that caught the most when this was written come first, which saves minutes.
const FIRST: [u64; 4] = [0, 17, 12, 5];

/// Fails unless each of these rules is found broken, and tells what was found instead.
fn must_catch(rules: &[&str], options: impl Fn(u64) -> Options) {
    must_catch_before(Seconds(u64::MAX), rules, options);
}

/// The same, and no later than that.
fn must_catch_before(end: Seconds, rules: &[&str], options: impl Fn(u64) -> Options) {
    let (mut left, mut others) = (rules.to_vec(), BTreeSet::new());
    for seed in FIRST.into_iter().chain((0..SEEDS).filter(|seed| !FIRST.contains(seed))) {
        for violation in run(&options(seed)).unwrap().violations {
            left.retain(|rule| !violation.what.contains(rule) || violation.at >= end);
            others.insert(violation.to_string());
        }
        if left.is_empty() {
            return;
        }
    }
    panic!("{left:?} was never found, but {others:#?}");
}

/// The usual controllers without one, and with another.
fn without<S: Clone>(all: &[Descriptor<S>], one: &str, another: Option<Descriptor<S>>) -> &'static [Descriptor<S>] {
    let mut table: Vec<_> = all.iter().filter(|known| known.name != one).cloned().collect();
    assert_eq!(table.len() + usize::from(one != NONE), all.len(), "{one} is a controller");
    table.extend(another);
    table.leak()
}

/// No controller has this name.
const NONE: &str = "none";

/// Deployments, with another in the place of one.
fn deployments(one: &str, broken: Option<Descriptor<kubernetes::Settings>>) -> impl Fn(u64) -> Options + use<> {
    let controllers = without(kubernetes::DESCRIPTORS, one, broken);
    move |seed| Options { controllers, ..Options::seeded(seed) }
}

/// Virtual machines, with another in the place of one.
fn virtual_machines(one: &str, broken: Option<Descriptor<virt::Settings>>) -> impl Fn(u64) -> Options + use<> {
    let controllers = without(virt::DESCRIPTORS, one, broken);
    let scene = Scene::VirtualMachines(VirtualMachines { controllers, by_force: false, handlers: Twin::None });
    move |seed| Options { scene, ..Options::virtual_machines(seed) }
}

#[test]
fn two_runs_of_a_seed_are_equal_and_two_seeds_are_not() {
    let logs = [7, 7, 8].map(|seed| run(&Options::seeded(seed)).unwrap().log.lines());
    assert_eq!(logs[0], logs[1]);
    assert_ne!(logs[0], logs[2]);
}
