//! The controllers and hollow nodes as processes of their own, on the API server.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::process::{Process, ask};

fn beside(server: &Process, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(arguments).arg("--kubeconfig").arg(server.kubeconfig()).kill_on_drop(true);
    command.spawn().unwrap()
}

/// Watches until a frame is what the test waits for.
async fn until(server: &Process, path: &str, wanted: impl Fn(&Value) -> bool) {
    let mut connection = server.connect().await.unwrap();
    let answer = connection.send(Method::GET, path, &[], bytes::Bytes::new()).await.unwrap();
    let mut body = answer.into_body();
    let mut rest = Vec::new();
    let waiting = async {
        loop {
            let frame = body.frame().await.unwrap().unwrap();
            rest.extend_from_slice(frame.data_ref().unwrap());
            while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                if wanted(&serde_json::from_slice(&line).unwrap()) {
                    return;
                }
            }
        }
    };
    timeout(Duration::from_secs(60), waiting).await.unwrap();
}

#[tokio::test]
async fn a_bound_pod_runs_and_its_namespace_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path()).await;
    let _nodes = beside(&server, &["node", "--hollow", "--count", "2"]);
    let _controllers = beside(&server, &["controller-manager"]);
    until(&server, "/api/v1/nodes?watch=1", |frame| frame["object"]["metadata"]["name"] == "hollow-1").await;
    let mut connection = server.connect().await.unwrap();
    let namespaces = "/api/v1/namespaces";
    ask(&mut connection, Method::POST, namespaces, &json!({ "metadata": { "name": "n" } })).await.unwrap();
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "hollow-1", "containers": [{ "name": "c", "image": "i" }] } });
    let pods = format!("{namespaces}/n/pods");
    ask(&mut connection, Method::POST, &pods, &pod).await.unwrap();
    until(&server, &format!("{pods}?watch=1"), |frame| frame["object"]["status"]["phase"] == "Running").await;
    ask(&mut connection, Method::DELETE, &format!("{namespaces}/n"), &json!({})).await.unwrap();
    until(&server, &format!("{namespaces}?watch=1&fieldSelector=metadata.name%3Dn"), |frame| {
        frame["type"] == "DELETED"
    })
    .await;
    let left = ask(&mut connection, Method::GET, &pods, &Value::Null).await.unwrap();
    assert_eq!(left["items"], json!([]));
}

#[tokio::test]
async fn an_unknown_controller_is_refused_with_the_known_ones() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_orlop")).args(["controller-manager", "--controllers=*,-foo"]).output();
    let error = String::from_utf8(output.await.unwrap().stderr).unwrap();
    assert_eq!(error, "orlop: --controllers: there is no controller \"foo\"; there are namespace-controller\n");
}
