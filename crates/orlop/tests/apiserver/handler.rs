//! `orlop virt-handler` as a process of its own, beside a kubelet that is not there.

use http::Method;
use serde_json::{Value, json};
use testkit::waiting::within;
use tokio::process::Command;

use crate::control_plane::{beside, until};
use crate::process::{Process, ask};

/// It tells what its QEMU offers, that the devices are not there yet, and in the end that it takes no more guests.
#[tokio::test]
#[ignore = "needs QEMU: make test"]
async fn a_handler_tells_what_it_offers_and_takes_leave() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start_with(folder.path(), &["--virtual-machines"]).await;
    let mut connection = server.connect().await.unwrap();
    let node = json!({ "metadata": { "name": "n", "labels": { "kubevirt.io/schedulable": "true" } } });
    ask(&mut connection, Method::POST, "/api/v1/nodes", &node).await.unwrap();
    let place = |name: &str| folder.path().join(name).display().to_string();
    let (kubelet, state) = (place("kubelet"), place("state"));
    std::fs::create_dir_all(folder.path().join("kubelet/device-plugins")).unwrap();
    let mut handler =
        beside(&server, &["virt-handler", "--node-name", "n", "--kubelet-dir", &kubelet, "--state-dir", &state]);
    let labels = |frame: &Value| frame["object"]["metadata"]["labels"].clone();
    let nodes = "/api/v1/nodes?watch=1";
    let told = until(&server, nodes, |frame| labels(frame)["machine-type.node.kubevirt.io/q35"] == "true").await;
    assert!(told["object"]["metadata"]["annotations"]["kubevirt.io/heartbeat"].is_string(), "{told}");
    // Nobody registers its devices: nothing is sent to this node.
    assert_eq!(labels(&told)["kubevirt.io/schedulable"], "false");
    let patch = json!({ "metadata": { "labels": { "kubevirt.io/schedulable": "true" } } });
    let merge = [("content-type", "application/merge-patch+json")];
    let body = bytes::Bytes::from(patch.to_string());
    connection.ask(Method::PATCH, "/api/v1/nodes/n", &merge, body).await.unwrap();
    let pid = handler.id().unwrap().to_string();
    assert!(Command::new("kill").arg(pid).status().await.unwrap().success());
    let ended = within("the end of the handler", handler.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");
    let node = ask(&mut connection, Method::GET, "/api/v1/nodes/n", &Value::Null).await.unwrap();
    assert_eq!(node["metadata"]["labels"]["kubevirt.io/schedulable"], "false");
}
