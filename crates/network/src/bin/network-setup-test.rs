//! What `orlop network-setup` is, for this crate's own tests: cut off after a step if the environment says so.

use std::process::ExitCode;

use network::guest_network;

fn main() -> ExitCode {
    let last = std::env::var("NETWORK_TEST_LAST_STEP").ok().and_then(|last| last.parse().ok());
    match last.map_or_else(guest_network::child, guest_network::child_that_ends_after) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
