//! Who the programs of `orlop up` are: each has the rights that it needs, and none has all.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::control_plane::until;
use crate::process::{Process, ask};

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";

/// A VM runs and is deleted, and a deployment in a namespace that goes: the audit log has everybody who took part.
#[tokio::test]
async fn programs_have_the_rights_that_they_need_and_none_has_all() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("audit"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlop"));
    command.args(["up", "--hollow-nodes", "2", "--listen", "127.0.0.1:0", "--data-dir"]).arg(&data);
    command.arg("--audit-log").arg(&log);
    let mut server = Process::spawn(command, |_| data.join("kubeconfig")).await;
    let mut connection = server.connect().await.unwrap();
    let spec = json!({ "domain": { "devices": {}, "memory": { "guest": "64Mi" } } });
    let vm = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": "v" },
        "spec": { "runStrategy": "Always", "template": { "spec": spec } } });
    ask(&mut connection, Method::POST, VMS, &vm).await.unwrap();
    until(&server, &format!("{VMS}?watch=1"), |frame| frame["object"]["status"]["printableStatus"] == "Running").await;
    ask(&mut connection, Method::POST, "/api/v1/namespaces", &json!({ "metadata": { "name": "n" } })).await.unwrap();
    let template = json!({ "metadata": { "labels": { "app": "a" } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let deployment = json!({ "metadata": { "name": "d" },
        "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "a" } }, "template": template } });
    let deployments = "/apis/apps/v1/namespaces/n/deployments";
    ask(&mut connection, Method::POST, deployments, &deployment).await.unwrap();
    let available = |frame: &Value| frame["object"]["status"]["availableReplicas"] == 2;
    until(&server, &format!("{deployments}?watch=1"), available).await;
    let gone = |frame: &Value| frame["type"] == "DELETED";
    for (path, name, all) in [(VMS, "v", VMS), ("/api/v1/namespaces", "n", "/api/v1/namespaces")] {
        ask(&mut connection, Method::DELETE, &format!("{path}/{name}"), &json!({})).await.unwrap();
        until(&server, &format!("{all}?watch=1&fieldSelector=metadata.name%3D{name}"), gone).await;
    }
    drop(connection);
    server.terminate().await;

    let text = std::fs::read_to_string(&log).unwrap();
    let (mut refused, mut masters, mut seen) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let user = event["user"]["username"].as_str().unwrap().to_owned();
        if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
            refused.insert(format!("{user}: {} {}", event["verb"], event["objectRef"]));
        }
        if event["user"]["groups"].as_array().unwrap().iter().any(|group| group == "system:masters") {
            masters.insert(user.clone());
        }
        seen.insert(user);
    }
    assert_eq!(refused, BTreeSet::new());
    assert_eq!(masters, BTreeSet::from(["kubernetes-admin".to_owned()]));
    for user in [
        "orlop.dev:caches",
        "orlop.dev:setup",
        "system:kube-scheduler",
        "system:node:hollow",
        "system:serviceaccount:kube-system:deployment-controller",
        "system:serviceaccount:kube-system:namespace-controller",
        "system:serviceaccount:kubevirt:kubevirt-controller",
        "system:serviceaccount:kubevirt:kubevirt-handler",
    ] {
        assert!(seen.contains(user), "{user} among {seen:?}");
    }
}
