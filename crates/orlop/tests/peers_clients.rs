//! Our API server with the clients that people use: kubectl, the Python client, kube-rs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use e2e::clients;
use e2e::embedded::Embedded;

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn kubectl_works() {
    let server = start().await;
    if let Err(error) = clients::kubectl::run(&server.kubeconfig(), &[]) {
        panic!("{error:#}");
    }
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn the_python_client_works() {
    let server = start().await;
    if let Err(error) = clients::python::run(&server.kubeconfig()) {
        panic!("{error:#}");
    }
}

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn kube_rs_works() {
    let server = start().await;
    if let Err(error) = clients::kube::run(&server.kubeconfig()).await {
        panic!("{error:#}");
    }
}

async fn start() -> Embedded {
    Embedded::start(Path::new(env!("CARGO_BIN_EXE_orlop"))).await.unwrap()
}
