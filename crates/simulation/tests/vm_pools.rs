//! Seeds of pools of virtual machines, each twice.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a test tells what came about")]

mod support;

use simulation::Options;

#[test]
fn what_must_hold_holds_for_every_seed() {
    support::check_seeds(6, Options::pools);
}
