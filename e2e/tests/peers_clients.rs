//! The checks with real clients, judged themselves: a real kube-apiserver passes them all.

use e2e::clients;
use e2e::control_plane::ControlPlane;

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn a_real_server_serves_every_client() {
    let plane = ControlPlane::start().unwrap();
    for (name, result) in [
        ("kubectl", clients::kubectl::run(&plane.kubeconfig(), &[])),
        ("python", clients::python::run(&plane.kubeconfig())),
        ("kube-rs", clients::kube::run(&plane.kubeconfig()).await),
    ] {
        if let Err(error) = result {
            panic!("{name}: {error:#}");
        }
    }
}
