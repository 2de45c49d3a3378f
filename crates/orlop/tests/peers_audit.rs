//! Our API server and a real kube-apiserver get the same requests; what both write down about them is the same.

use std::path::Path;

use e2e::audit::{comparable, events, requests};
use e2e::control_plane::ControlPlane;
use e2e::embedded::Embedded;
use e2e::kubeconfig::Kubeconfig;
use serde_json::Value;

const POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{ level: Metadata }]\nomitStages: [RequestReceived]\n";

#[tokio::test]
#[ignore = "needs the real peers: make test-peers"]
async fn the_audit_log_is_that_of_kubernetes() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("policy"), POLICY).unwrap();
    let flag = |name: &str, file: &str| format!("--{name}={}", path(file).display());
    let flags = [flag("audit-policy-file", "policy"), flag("audit-log-path", "theirs")];
    let real = ControlPlane::start_with(&[&flags[0], &flags[1]]).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_orlop"));
    let ours = Embedded::start_with(program, &[&flag("audit-log", "ours")]).await.unwrap();
    let expected = requests(&Kubeconfig::read(&real.kubeconfig()).unwrap()).await.unwrap();
    assert_eq!(requests(&Kubeconfig::read(&ours.kubeconfig()).unwrap()).await.unwrap(), expected);
    // The end of a watch is written after its client has seen it: the request after it tells.
    let written = |name: &str| -> Vec<Value> {
        events(&path(name)).unwrap().into_iter().map(comparable).map(without_deviations).collect()
    };
    let (theirs, own) = (written("theirs"), written("ours"));
    let pretty = |events: &[Value]| serde_json::to_string_pretty(events).unwrap();
    assert_eq!(pretty(&own), pretty(&theirs));
}

/// The event without what is different, and deliberately so.
fn without_deviations(mut event: Value) -> Value {
    let is_unserved = event["responseStatus"]["code"] == 405;
    if let Some(event) = event.as_object_mut() {
        // By which rule somebody acts as another: there is one such rule here.
        event.remove("authenticationMetadata");
        // A method that nobody serves is refused before rights are looked at.
        if is_unserved {
            event.remove("annotations");
        }
    }
    event
}
