//! Our API server and a real kube-apiserver get the same requests; `e2e/differential` has the scripts, and the list of
//! deliberate deviations. The comparison itself is judged in `e2e/tests/peers_control.rs`.

use std::path::Path;

use e2e::differential::{self, Subject};

fn ours() -> Subject<'static> {
    Subject::Ours(Path::new(env!("CARGO_BIN_EXE_orlop")))
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn scripts_are_answered_as_by_kubernetes() {
    if let Err(error) = differential::scripts(ours()).await {
        panic!("{error:#}");
    }
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn random_requests_are_answered_as_by_kubernetes() {
    if let Err(error) = differential::random_sequences(ours()).await {
        panic!("{error:#}");
    }
}
