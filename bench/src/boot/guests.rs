//! VMs to start, and a watch that tells when they run.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::PATIENCE;
use crate::controllers::load::{Watch, each, send};
use crate::watched::Object;

const MACHINES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const INSTANCES: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";

/// A VM that boots the test guest's kernel: userland in seconds, nothing on disk.
///
/// # Errors
/// When the guest cannot be built.
pub fn linux(name: &str) -> Result<Value> {
    let container = json!({
        "image": e2e::guest::image("kernel")?, "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.img",
        "imagePullPolicy": "IfNotPresent",
    });
    let mut vm = empty(name, "256Mi");
    let boot = json!({ "container": container, "kernelArgs": "console=ttyS0 quiet no_timer_check" });
    vm["spec"]["template"]["spec"]["domain"]["firmware"] = json!({ "kernelBoot": boot });
    Ok(vm)
}

/// A VM that boots nothing: its firmware looks for a disk for ever.
#[must_use]
pub fn empty(name: &str, memory: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": name },
        "spec": {
            "runStrategy": "Always",
            "template": {
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "domain": {
                        "memory": { "guest": memory },
                        "devices": { "interfaces": [{ "name": "default", "masquerade": {} }] },
                    },
                    "networks": [{ "name": "default", "pod": {} }],
                },
            },
        },
    })
}

/// Instances, as a watch sees them.
pub struct Instances {
    client: Client,
    watch: Watch<Object>,
}

impl Instances {
    /// From now on.
    #[must_use]
    pub fn watch(client: &Client) -> Self {
        Self { client: client.clone(), watch: Watch::start(client, INSTANCES, "application/json") }
    }

    /// Creates a VM; returns when the server had answered.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn create(&self, vm: &Value) -> Result<Instant> {
        send(&self.client, Method::POST, MACHINES, Some(vm)).await?;
        Ok(Instant::now())
    }

    /// Waits until an instance runs; returns when that was seen.
    ///
    /// # Errors
    /// When it does not.
    pub async fn running(&mut self, name: &str) -> Result<Instant> {
        let seen = self.all_running(&[name.to_owned()]).await?;
        seen.get(name).copied().context("it was just seen")
    }

    /// Waits until these run; returns when each was first seen so.
    ///
    /// # Errors
    /// When one does not.
    pub async fn all_running(&mut self, names: &[String]) -> Result<BTreeMap<String, Instant>> {
        let mut seen = BTreeMap::new();
        while seen.len() < names.len() {
            let change = self.watch.next().await?;
            let Object { metadata, status } = change.object;
            let (name, phase) = (metadata.name, status.phase);
            if !names.contains(&name) {
                continue;
            }
            match phase.as_str() {
                "Running" => drop(seen.entry(name).or_insert(change.at)),
                "Failed" | "Succeeded" => bail!("{name} is {phase}"),
                _ => {}
            }
        }
        Ok(seen)
    }

    /// Deletes a VM and waits until its instance is gone.
    ///
    /// # Errors
    /// When it does not go.
    pub async fn delete(&mut self, name: &str) -> Result<()> {
        send(&self.client, Method::DELETE, &format!("{MACHINES}/{name}"), None).await?;
        let gone = async {
            loop {
                let change = self.watch.next().await?;
                if change.gone && change.object.metadata.name == name {
                    return anyhow::Ok(());
                }
            }
        };
        timeout(PATIENCE, gone).await.with_context(|| format!("{name} does not go"))?
    }

    /// Creates many VMs as fast as they are taken, and waits until all run: how long each took from its answer on, and
    /// how long all did.
    ///
    /// # Errors
    /// When one does not run.
    pub async fn start_all(&mut self, vms: Vec<Value>) -> Result<(Vec<Duration>, Duration)> {
        let names: Vec<String> =
            vms.iter().filter_map(|vm| vm["metadata"]["name"].as_str()).map(str::to_owned).collect();
        let accepted = std::sync::Arc::new(tokio::sync::Mutex::new(BTreeMap::new()));
        let (client, told, vms, count) = (self.client.clone(), accepted.clone(), std::sync::Arc::new(vms), names.len());
        let start = Instant::now();
        let create = each(count, move |number| {
            let (client, told, vms) = (client.clone(), told.clone(), vms.clone());
            async move {
                let vm = vms.get(number).context("there are so many")?;
                send(&client, Method::POST, MACHINES, Some(vm)).await?;
                told.lock()
                    .await
                    .insert(vm["metadata"]["name"].as_str().unwrap_or_default().to_owned(), Instant::now());
                Ok(())
            }
        });
        let ((), running) = tokio::try_join!(create, self.all_running(&names))?;
        let accepted = accepted.lock().await;
        let waits = running.iter().filter_map(|(name, at)| Some(at.saturating_duration_since(*accepted.get(name)?)));
        let last = running.values().max().map_or(Duration::ZERO, |at| *at - start);
        Ok((waits.collect(), last))
    }
}
