//! A user of virtual machines, who also plays what nobody simulates: virt-api's requests, storage and its importer.

use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use virt_handler::hollow::Machines;

use super::{NAMESPACES, told, tolerate};
use crate::chance::Chance;
use crate::witness::Witness;

mod instances;
mod requests;
mod sets;
mod vms;
mod volumes;

const API: &str = "kubevirt.io/v1";
const NAMES: [&str; 3] = ["web", "db", "cache"];

pub(in crate::scenario) struct User {
    client: Client,
    witness: Witness,
    /// What virt-api would speak with.
    machines: Machines,
    chance: Chance,
    /// Whether pods are taken away without waiting for their nodes.
    by_force: bool,
    /// Whether VMs of this run have claims and data volumes.
    with_volumes: bool,
}

impl User {
    pub(super) fn new(client: Client, witness: Witness, machines: Machines, by_force: bool, seed: u64) -> Self {
        let mut chance = Chance::new(seed, 3);
        let with_volumes = chance.permille(500);
        Self { client, witness, machines, chance, by_force, with_volumes }
    }

    pub(super) async fn begin(&mut self) -> Result<(), kube::Error> {
        super::make_namespaces(&self.client).await?;
        self.create_vm("blue", "web").await?;
        self.create_vm("green", "db").await.map(drop)
    }

    /// Does something, and tells what.
    pub(super) async fn act(&mut self) -> Result<String, kube::Error> {
        let namespace = self.chance.one_of(&NAMESPACES).copied().unwrap_or("blue");
        let name = self.chance.one_of(&NAMES).copied().unwrap_or("web");
        match self.chance.below(48) {
            0..=7 => self.create_vm(namespace, name).await,
            8 | 9 => self.delete_instance().await,
            10..=12 => self.delete_pod().await,
            13 | 14 => self.create_instance(namespace, name).await,
            15 | 16 => self.pause().await,
            17 => super::cordon(&self.client, &mut self.chance).await,
            18 => super::renew_namespace(&self.client, namespace).await,
            19..=24 if self.with_volumes => self.tend_volumes(namespace).await,
            42..=47 => self.tend_sets(namespace).await,
            _ => self.change_some_vm().await,
        }
    }

    async fn change_some_vm(&mut self) -> Result<String, kube::Error> {
        let all = Api::<VirtualMachine>::all(self.client.clone()).list(&ListParams::default()).await?.items;
        let Some(vm) = self.chance.one_of(&all) else { return Ok("find no VM".to_owned()) };
        let (namespace, name) = (vm.namespace().unwrap_or_default(), vm.name_any());
        match self.chance.below(20) {
            0..=5 => self.change_strategy(&namespace, &name).await,
            6..=13 => self.ask(&namespace, &name).await,
            14 | 15 => self.delete_vm(&namespace, &name).await,
            16..=18 => self.resize(&namespace, &name).await,
            _ => self.change_fate(&namespace, &name).await,
        }
    }

    /// Lets go of everything that would not come to rest by itself.
    pub(super) async fn let_go(&mut self) -> Result<(), kube::Error> {
        for namespace in NAMESPACES {
            self.forget_fates(namespace).await?;
            self.let_sets_go(namespace).await?;
        }
        if self.with_volumes {
            self.define_data_volumes().await?;
        }
        super::uncordon(&self.client).await
    }

    /// What others wait for: volumes, and the end of pauses.
    pub(super) async fn tend(&mut self) -> Result<Option<String>, kube::Error> {
        let mut done = Vec::new();
        if self.witness.progress().ran == 0 {
            done.extend(self.make_one_that_runs().await?);
        }
        for namespace in NAMESPACES {
            done.extend(self.resume_all(namespace).await?);
            if self.with_volumes {
                done.extend(self.complete_volumes(namespace).await?);
            }
        }
        Ok(done.pop())
    }

    /// A VM that failed to start tries again later, and so does a set.
    pub(super) async fn sees_patience(&self, now: Timestamp) -> Result<bool, kube::Error> {
        Ok(sees_patient_vms(&self.client, now).await? || self.sees_patient_sets(now).await?)
    }

    fn vms(&self, namespace: &str) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn vmis(&self, namespace: &str) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn change_vm(&self, namespace: &str, name: &str, patch: &Value) -> Result<String, kube::Error> {
        let changed = self.vms(namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        Ok(format!("change VM {namespace}/{name} {patch}: {}", told(&tolerate(changed)?)))
    }

    /// What the template of a VM or an instance says about its guest.
    fn guest(&mut self, data_volume: Option<String>) -> Value {
        let volume = match (self.chance.below(4), data_volume) {
            (0, _) if self.with_volumes => {
                let claim = self.chance.one_of(&volumes::CLAIMS).copied().unwrap_or_default();
                json!({ "name": "disk", "persistentVolumeClaim": { "claimName": claim } })
            }
            (1, Some(name)) if self.with_volumes => json!({ "name": "disk", "dataVolume": { "name": name } }),
            _ => json!({ "name": "disk", "containerDisk": { "image": "registry/disk:1" } }),
        };
        json!({
            "domain": { "devices": {}, "memory": { "guest": "64Mi" } },
            "terminationGracePeriodSeconds": self.chance.below(15),
            "volumes": [volume],
        })
    }

    /// What becomes of a guest, as the hollow handlers understand it; mostly nothing.
    fn fate(&mut self) -> Value {
        fate(&mut self.chance)
    }
}

pub(super) fn fate(chance: &mut Chance) -> Value {
    let word = match chance.below(10) {
        0 => "succeed",
        1 => "crash",
        2 => "fail-to-start",
        3 => "hang",
        _ => return json!({ FATE: null, RUN_FOR: null }),
    };
    json!({ FATE: word, RUN_FOR: format!("{}s", 1 + chance.below(20)) })
}

pub(super) const FATE: &str = "orlop.io/hollow-fate";
pub(super) const RUN_FOR: &str = "orlop.io/hollow-run-for";

/// Whether a VM that failed to start waits with the next start.
pub(super) async fn sees_patient_vms(client: &Client, now: Timestamp) -> Result<bool, kube::Error> {
    let vms = Api::<VirtualMachine>::all(client.clone()).list(&ListParams::default()).await?;
    let retry = |vm: &VirtualMachine| {
        vm.status.as_ref()?.start_failure.as_ref()?.retry_after_timestamp.as_ref().map(|Time(at)| *at)
    };
    Ok(vms.iter().filter_map(retry).any(|at| at > now))
}

/// Annotations without those that say nothing.
pub(super) fn said(annotations: &Value) -> Value {
    let all = annotations.as_object().into_iter().flatten();
    all.filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.clone(), value.clone())).collect()
}
