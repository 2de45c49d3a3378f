//! The virtual machines of the load, and the definitions that they need.

use std::time::Duration;

use anyhow::{Context as _, Result};
use api::names::finalizer;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::controllers::PATIENCE;
use crate::controllers::load::{ask, send};

/// Where instances are.
pub(super) const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/bench/virtualmachineinstances";
/// Where VMs are.
pub(super) const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/bench/virtualmachines";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Between two looks at a kind that is about to be served.
const LOOK: Duration = Duration::from_millis(20);

/// What is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// VMs, which have their instances made.
    Vm,
    /// Instances without a VM.
    Vmi,
}

impl Kind {
    /// As the table has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Vmi => "vmi",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Vm => MACHINES,
            Self::Vmi => INSTANCES,
        }
    }

    /// The request that the load itself makes for each.
    pub(crate) fn creation(self) -> &'static str {
        match self {
            Self::Vm => "POST virtualmachines",
            Self::Vmi => "POST virtualmachineinstances",
        }
    }

    /// A small one, as admission leaves it: complete without anybody's defaults, and held until its controller lets it go.
    pub(crate) fn object(self, name: &str) -> Value {
        let spec = json!({
            "terminationGracePeriodSeconds": 0,
            "architecture": "amd64",
            "domain": {
                "machine": { "type": "q35" },
                "cpu": { "cores": 1, "sockets": 1, "threads": 1 },
                "memory": { "guest": "64Mi" },
                "resources": { "requests": { "memory": "64Mi" } },
                "devices": {
                    "disks": [{ "name": "root", "disk": { "bus": "virtio" } }],
                    "interfaces": [{ "name": "default", "masquerade": {} }],
                },
            },
            "networks": [{ "name": "default", "pod": {} }],
            "volumes": [{
                "name": "root",
                "containerDisk": { "image": "example.com/disk:1", "imagePullPolicy": "IfNotPresent" },
            }],
        });
        let (kind, held, spec) = match self {
            Self::Vm => {
                let spec = json!({ "runStrategy": "Always", "template": { "spec": spec } });
                ("VirtualMachine", finalizer::VM_CONTROLLER, spec)
            }
            Self::Vmi => ("VirtualMachineInstance", finalizer::VMI, spec),
        };
        let metadata = json!({ "name": name, "finalizers": [held] });
        json!({ "apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": metadata, "spec": spec })
    }
}

/// Defines all kinds that are not there yet, and waits until they are served.
pub(super) async fn definitions(client: &Client) -> Result<()> {
    let served = async |plural: &str, group: &str, version: &str| {
        ask(client, Method::GET, &format!("/apis/{group}/{version}/{plural}?limit=1"), None).await.is_ok()
    };
    let all = api::crd::all()?;
    for definition in &all {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        if ask(client, Method::GET, &format!("{DEFINITIONS}/{name}"), None).await.is_err() {
            send(client, Method::POST, DEFINITIONS, Some(&serde_json::to_value(definition)?)).await?;
        }
    }
    for definition in &all {
        let (group, plural) = (&definition.spec.group, &definition.spec.names.plural);
        let version = definition.spec.versions.iter().find(|version| version.storage).context("no stored version")?;
        let there = async {
            while !served(plural, group, &version.name).await {
                sleep(LOOK).await;
            }
        };
        timeout(PATIENCE, there).await.with_context(|| format!("{plural}.{group} is not served"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_of_our_own_types() {
        let vm: api::vm::VirtualMachine = serde_json::from_value(Kind::Vm.object("a")).unwrap();
        let vmi: api::vmi::VirtualMachineInstance = serde_json::from_value(Kind::Vmi.object("a")).unwrap();
        assert_eq!(vm.spec.template.spec.as_ref(), Some(&vmi.spec));
        let vmi = serde_json::to_value(vmi).unwrap();
        assert_eq!(vmi, Kind::Vmi.object("a"));
    }
}
