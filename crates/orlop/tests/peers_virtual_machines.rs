//! Virtual machines as kubectl's users see them: our controllers on our own API server and on a real one, with nodes and
//! domains that are simulated.

use std::path::Path;

use e2e::controllers;

fn orlop() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_orlop"))
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn kubectl_runs_virtual_machines() {
    if let Err(error) = controllers::machines(orlop()).await {
        panic!("{error:#}");
    }
}

#[test]
#[ignore = "needs the real peers: make test-peers"]
fn kubectl_runs_virtual_machines_on_kubernetes() {
    if let Err(error) = controllers::machines_on_kubernetes(orlop()) {
        panic!("{error:#}");
    }
}
