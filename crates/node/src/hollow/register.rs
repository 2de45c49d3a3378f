//! A hollow node as the cluster sees it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Names hollow nodes, by the label that they have.
pub(super) const SELECTOR: &str = "orlop.dev/hollow=true";

/// Makes the node, or brings one of that name up to date.
pub(super) async fn node(client: &Client, name: &str, now: Timestamp) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(object(name, now)).map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => report(client, name, now).await,
        made => made.map(drop),
    }
}

/// Writes the node's status: it is there, and well.
pub(super) async fn report(client: &Client, name: &str, now: Timestamp) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    let patch = json!({ "status": object(name, now)["status"] });
    match api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        // Somebody deleted it: as with a kubelet, it is made again only by a new start.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        written => written.map(drop),
    }
}

fn object(name: &str, now: Timestamp) -> Value {
    let amounts = json!({ "cpu": "32", "memory": "256Gi", "pods": "1000", "ephemeral-storage": "1Ti" });
    let condition = |kind: &str, truth: &str, reason: &str| {
        json!({
            "type": kind,
            "status": truth,
            "reason": reason,
            "message": reason,
            "lastHeartbeatTime": Time(now),
            "lastTransitionTime": Time(now),
        })
    };
    json!({
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "orlop.dev/hollow": "true",
            },
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [{ "type": "Hostname", "address": name }, { "type": "InternalIP", "address": "127.0.0.1" }],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "kubeletVersion": format!("v1.36.3-hollow.{}", env!("CARGO_PKG_VERSION")),
                "containerRuntimeVersion": "hollow://1",
                "kernelVersion": "",
                "osImage": "hollow",
                "machineID": name,
                "systemUUID": name,
                "bootID": name,
                "kubeProxyVersion": "",
            },
        },
    })
}
