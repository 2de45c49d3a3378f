//! What is created: small config maps, and machine instances of the size that real ones have.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use e2e::http::{Connection, Server};
use http::Method;
use serde_json::{Value, json};

/// The namespace of everything that lists do not count.
pub(super) const NAMESPACE: &str = "bench";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// What makes an instance some three kilobytes: a cloud-init text.
const USER_DATA: usize = 1800;

/// A kind of object to load the server with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    ConfigMap,
    Instance,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "config map",
            Self::Instance => "instance",
        }
    }

    pub(super) fn path(self, namespace: &str) -> String {
        match self {
            Self::ConfigMap => format!("/api/v1/namespaces/{namespace}/configmaps"),
            Self::Instance => format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances"),
        }
    }

    /// An object; its number makes each update a change.
    pub(super) fn body(self, name: &str, number: usize, version: Option<&str>) -> Bytes {
        let mut object = match self {
            Self::ConfigMap => json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "n": number.to_string() } }),
            Self::Instance => instance(number),
        };
        object["metadata"]["name"] = name.into();
        if let Some(version) = version {
            object["metadata"]["resourceVersion"] = version.into();
        }
        Bytes::from(object.to_string())
    }
}

fn instance(number: usize) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "labels": { "app": "bench", "kubevirt.io/size": "small", "kubevirt.io/domain": "bench" },
            "annotations": { "bench/number": number.to_string() },
        },
        "spec": {
            "terminationGracePeriodSeconds": 30,
            "domain": {
                "cpu": { "cores": 2, "sockets": 1, "threads": 1 },
                "memory": { "guest": "2Gi" },
                "firmware": { "bootloader": { "efi": { "secureBoot": false } } },
                "devices": {
                    "disks": [
                        { "name": "root", "disk": { "bus": "virtio" }, "bootOrder": 1 },
                        { "name": "cloudinit", "disk": { "bus": "virtio" } },
                    ],
                    "interfaces": [{ "name": "default", "masquerade": {}, "model": "virtio", "ports": [{ "port": 22 }] }],
                    "rng": {},
                },
            },
            "networks": [{ "name": "default", "pod": {} }],
            "volumes": [
                { "name": "root", "containerDisk": { "image": "registry.example/demo/disk:latest" } },
                { "name": "cloudinit", "cloudInitNoCloud": { "userData": "#".repeat(USER_DATA) } },
            ],
        },
    })
}

/// Makes the namespace and all definitions of the product, and waits until instances are served.
pub(super) async fn prepare(server: &Server) -> Result<()> {
    let mut connection = server.connect().await?;
    namespace(&mut connection, NAMESPACE).await?;
    let folder = e2e::root().join("deploy/crds");
    for entry in std::fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
        let text = std::fs::read_to_string(entry?.path())?;
        let crd: Value = serde_saphyr::from_str(&text)?;
        post(&mut connection, CRDS, crd.to_string()).await?;
    }
    let served = async {
        let path = Kind::Instance.path(NAMESPACE);
        while connection.ask(Method::GET, &path, &[], Bytes::new()).await?.status() != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(60), served).await.context("instances are not served")??;
    // What a server prepares with the first object of a kind is no part of the figures.
    for kind in [Kind::ConfigMap, Kind::Instance] {
        post(&mut connection, &kind.path(NAMESPACE), kind.body("warm", 0, None)).await?;
    }
    Ok(())
}

/// Makes a namespace.
pub(super) async fn namespace(connection: &mut Connection, name: &str) -> Result<()> {
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    post(connection, "/api/v1/namespaces", body.to_string()).await
}

async fn post(connection: &mut Connection, path: &str, body: impl Into<Bytes>) -> Result<()> {
    let answer = connection.ask(Method::POST, path, &[("content-type", "application/json")], body.into()).await?;
    if answer.status() != 201 {
        bail!("POST {path}: {} {}", answer.status(), String::from_utf8_lossy(answer.body()));
    }
    Ok(())
}
