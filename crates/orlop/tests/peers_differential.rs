//! Our API server and a real kube-apiserver get the same requests; `e2e/differential` has the scripts, and the list of
//! deliberate deviations. `ORLOP_DIFFERENTIAL=self` compares the real one with itself.

use std::path::Path;

use e2e::differential;

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn scripts_are_answered_as_by_kubernetes() {
    if let Err(error) = differential::scripts(Path::new(env!("CARGO_BIN_EXE_orlop"))).await {
        panic!("{error:#}");
    }
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn random_requests_are_answered_as_by_kubernetes() {
    if let Err(error) = differential::random_sequences(Path::new(env!("CARGO_BIN_EXE_orlop"))).await {
        panic!("{error:#}");
    }
}
