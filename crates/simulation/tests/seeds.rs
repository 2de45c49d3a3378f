//! Seeds of deployments and what every cluster has, each twice.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a test tells what came about")]

mod support;

use simulation::{Options, check};

#[test]
fn what_must_hold_holds_for_every_seed() {
    support::check_seeds(20, Options::seeded);
}

/// In this seed a leader replaces a pod that is on its way out, and is gone before its request arrives; the next leader gives
/// the replacement the name that is free by then.
#[test]
fn a_request_that_outlives_its_sender_may_make_one_pod_too_many() {
    check(&Options::seeded(20_000_492)).unwrap();
}

/// In this seed a deployment grows while a replica set that was given up still has a pod.
#[test]
fn a_deployment_that_grows_waits_for_the_pods_it_gave_up() {
    check(&Options::seeded(30_000_973)).unwrap();
}
