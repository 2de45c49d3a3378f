//! The controllers and hollow nodes as processes of their own, on the API server.

use std::process::Stdio;

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use testkit::waiting::within;
use tokio::process::{Child, Command};

use crate::process::{Process, ask};

/// A program on the server; what it says on standard error can be read.
pub(crate) fn beside(server: &Process, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(arguments).arg("--kubeconfig").arg(server.kubeconfig()).kill_on_drop(true);
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// Watches until a frame is what the test waits for, and hands it over.
pub(crate) async fn until(server: &Process, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
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
                let frame = serde_json::from_slice(&line).unwrap();
                if wanted(&frame) {
                    return frame;
                }
            }
        }
    };
    within(path, waiting).await
}

#[tokio::test]
async fn a_bound_pod_runs_and_its_namespace_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path()).await;
    let _nodes = beside(&server, &["node", "--hollow", "--count", "2"]);
    let _controllers = beside(&server, &["controller-manager", "--secure-port", "0"]);
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

/// A deployment of three on two nodes: made, rolled out, and gone with its namespace.
#[tokio::test]
async fn a_deployment_is_scheduled_rolled_out_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path()).await;
    let _nodes = beside(&server, &["node", "--hollow", "--count", "2"]);
    let _controllers = beside(&server, &["controller-manager", "--leader-elect", "false", "--secure-port", "0"]);
    let _scheduler = beside(&server, &["scheduler", "--secure-port", "0"]);
    let mut connection = server.connect().await.unwrap();
    ask(&mut connection, Method::POST, "/api/v1/namespaces", &json!({ "metadata": { "name": "n" } })).await.unwrap();
    let base = "/apis/apps/v1/namespaces/n/deployments";
    let deployment = json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "c", "image": "i:1", "resources": { "requests": { "cpu": "1" } } }] },
            },
        },
    });
    ask(&mut connection, Method::POST, base, &deployment).await.unwrap();
    let rolled_out = |generation: i64| {
        move |frame: &Value| {
            let status = &frame["object"]["status"];
            status["observedGeneration"] == generation
                && status["updatedReplicas"] == 3
                && status["availableReplicas"] == 3
                && status["replicas"] == 3
        }
    };
    until(&server, &format!("{base}?watch=1"), rolled_out(1)).await;
    let pods = ask(&mut connection, Method::GET, "/api/v1/namespaces/n/pods", &Value::Null).await.unwrap();
    let mut nodes: Vec<&str> =
        pods["items"].as_array().unwrap().iter().map(|pod| pod["spec"]["nodeName"].as_str().unwrap()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes, ["hollow-0", "hollow-1"], "they are spread");
    let mut second = ask(&mut connection, Method::GET, &format!("{base}/web"), &Value::Null).await.unwrap();
    second["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2".into();
    second["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    ask(&mut connection, Method::PUT, &format!("{base}/web"), &second).await.unwrap();
    until(&server, &format!("{base}?watch=1"), rolled_out(2)).await;
    ask(&mut connection, Method::DELETE, "/api/v1/namespaces/n", &json!({})).await.unwrap();
    let gone = |frame: &Value| frame["type"] == "DELETED";
    until(&server, "/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Dn", gone).await;
}

#[tokio::test]
async fn an_unknown_controller_is_refused_with_the_known_ones() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_orlop")).args(["controller-manager", "--controllers=*,-foo"]).output();
    let error = String::from_utf8(output.await.unwrap().stderr).unwrap();
    let known = "use one of clusterrole-aggregation-controller, deployment-controller, disruption-controller, \
                 endpoints-controller, endpointslice-controller, garbage-collector-controller, \
                 namespace-controller, node-lifecycle-controller, pod-garbage-collector-controller, \
                 replicaset-controller, replicationcontroller-controller, root-ca-certificate-publisher-controller, \
                 serviceaccount-controller, serviceaccount-token-controller, taint-eviction-controller";
    assert_eq!(error, format!("orlop: --controllers: unknown controller \"foo\"; {known}\n"));
}
