//! A user of pools of VMs, who also takes away what belongs to them.

use api::pool::VirtualMachinePool;
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};

use super::virtual_machines::{FATE, RUN_FOR, fate, said, sees_patient_vms};
use super::{NAMESPACES, policy, read, told, tolerate};
use crate::chance::Chance;
use crate::witness::Witness;

const API: &str = "pool.kubevirt.io/v1beta1";
const NAMES: [&str; 2] = ["farm", "herd"];

pub(in crate::scenario) struct User {
    client: Client,
    witness: Witness,
    chance: Chance,
    /// Whether the last change was made.
    is_done: bool,
}

impl User {
    pub(super) fn new(client: Client, witness: Witness, seed: u64) -> Self {
        Self { client, witness, chance: Chance::new(seed, 3), is_done: false }
    }

    pub(super) async fn begin(&mut self) -> Result<(), kube::Error> {
        super::make_namespaces(&self.client).await?;
        self.create("blue", "farm", 3).await.map(drop)
    }

    /// Does something, and tells what.
    pub(super) async fn act(&mut self) -> Result<String, kube::Error> {
        let namespace = self.chance.one_of(&NAMESPACES).copied().unwrap_or("blue");
        let name = self.chance.one_of(&NAMES).copied().unwrap_or("farm");
        let replicas = self.chance.below(5);
        let change = match self.chance.below(24) {
            0..=2 => return self.create(namespace, name, replicas).await,
            3 => return self.delete_pool(namespace, name).await,
            4..=7 => return self.scale(namespace, name, replicas).await,
            8..=11 => {
                let hostname = format!("h{}", self.chance.below(3));
                template(&json!({ "spec": { "hostname": hostname } }))
            }
            12 => template(&json!({ "metadata": { "annotations": fate(&mut self.chance) } })),
            13 => json!({ "maxUnavailable": self.limit() }),
            14 => self.strategies(),
            15 => json!({ "paused": self.chance.permille(500) }),
            16 => return self.detach().await,
            17 => return self.take_away::<VirtualMachine>().await,
            18 => return self.take_away::<VirtualMachineInstance>().await,
            19..=21 => return self.take_away::<Pod>().await,
            22 => return super::cordon(&self.client, &mut self.chance).await,
            _ => return super::renew_namespace(&self.client, namespace).await,
        };
        self.change(namespace, name, &change).await
    }

    /// Lets go of everything that would not come to rest by itself.
    pub(super) async fn let_go(&mut self) -> Result<(), kube::Error> {
        let none = json!({ FATE: null, RUN_FOR: null });
        let metadata = json!({ "metadata": { "annotations": none } });
        let mut calm = template(&metadata);
        for field in ["paused", "updateStrategy", "scaleInStrategy"] {
            calm[field] = Value::Null;
        }
        self.change_all(&calm).await?;
        let vms = Api::<VirtualMachine>::all(self.client.clone()).list(&ListParams::default()).await?;
        for vm in vms.iter().filter(|vm| vm.owner_references().is_empty()) {
            let api: Api<VirtualMachine> = Api::namespaced(self.client.clone(), &vm.namespace().unwrap_or_default());
            let patch = json!({ "spec": { "template": metadata } });
            tolerate(api.patch(&vm.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await)?;
        }
        super::uncordon(&self.client).await
    }

    /// What others wait for: something that runs.
    pub(super) async fn tend(&mut self) -> Result<Option<String>, kube::Error> {
        if self.witness.progress().ran > 0 {
            return Ok(None);
        }
        super::make_namespace(&self.client, "blue").await?;
        let made = tolerate(self.pools("blue").create(&PostParams::default(), &pool("certain", 1, &json!({}))?).await)?;
        Ok(made.map(|_| "create pool blue/certain, which runs".to_owned()))
    }

    /// All pools have another template: it reaches all VMs, within the limits.
    pub(super) async fn change_at_rest(&mut self) -> Result<Option<String>, kube::Error> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(None);
        }
        self.change_all(&template(&json!({ "spec": { "hostname": "last" } }))).await.map(Some)
    }

    /// A VM that failed to start tries again later.
    pub(super) async fn sees_patience(&self, now: Timestamp) -> Result<bool, kube::Error> {
        sees_patient_vms(&self.client, now).await
    }

    fn pools(&self, namespace: &str) -> Api<VirtualMachinePool> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn create(&mut self, namespace: &str, name: &str, replicas: u32) -> Result<String, kube::Error> {
        let mut settings = self.strategies();
        settings["maxUnavailable"] = self.limit();
        if self.chance.permille(500) {
            let threshold = 1 + self.chance.below(3);
            settings["autohealing"] =
                json!({ "startUpFailureThreshold": threshold, "minFailingToStartDuration": "1m" });
        }
        let mut object = pool(name, replicas, &said(&settings))?;
        let annotations = said(&fate(&mut self.chance));
        if let Some(spec) = &mut object.spec.virtual_machine_template.spec {
            spec.template.metadata = read(json!({ "annotations": annotations }))?;
        }
        let made = tolerate(self.pools(namespace).create(&PostParams::default(), &object).await)?;
        Ok(format!("create pool {namespace}/{name} of {replicas}, {settings} {annotations}: {}", told(&made)))
    }

    fn limit(&mut self) -> Value {
        self.chance.one_of(&[Value::Null, json!(1), json!(1), json!(2), json!("50%")]).cloned().unwrap_or_default()
    }

    /// Whom a change reaches, and who goes first where there are too many.
    fn strategies(&mut self) -> Value {
        let updates = [Value::Null, Value::Null, json!({ "opportunistic": {} }), json!({ "unmanaged": {} })];
        let sorts = ["Random", "AscendingOrder", "DescendingOrder", "Newest", "Oldest"];
        let sort = self.chance.one_of(&sorts).copied().unwrap_or_default();
        let ordered = json!({ "proactive": { "selectionPolicy": { "sortPolicy": sort } } });
        let scales = [Value::Null, ordered, json!({ "opportunistic": {} }), json!({ "unmanaged": {} })];
        json!({ "updateStrategy": self.chance.one_of(&updates), "scaleInStrategy": self.chance.one_of(&scales) })
    }

    async fn change(&self, namespace: &str, name: &str, spec: &Value) -> Result<String, kube::Error> {
        let patch = json!({ "spec": spec });
        let changed = self.pools(namespace).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        Ok(format!("change pool {namespace}/{name} {spec}: {}", told(&tolerate(changed)?)))
    }

    async fn change_all(&self, spec: &Value) -> Result<String, kube::Error> {
        for pool in Api::<VirtualMachinePool>::all(self.client.clone()).list(&ListParams::default()).await? {
            self.change(&pool.namespace().unwrap_or_default(), &pool.name_any(), spec).await?;
        }
        Ok(format!("change all pools {spec}"))
    }

    /// As `kubectl scale` does.
    async fn scale(&self, namespace: &str, name: &str, replicas: u32) -> Result<String, kube::Error> {
        let patch = json!({ "spec": { "replicas": replicas } });
        let scaled = self.pools(namespace).patch_scale(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        Ok(format!("scale pool {namespace}/{name} {patch}: {}", told(&tolerate(scaled)?)))
    }

    async fn delete_pool(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let policy = policy(&mut self.chance);
        let what = format!("delete pool {namespace}/{name}, {policy:?}");
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        let deleted = tolerate(self.pools(namespace).delete(name, &parameters).await)?;
        Ok(format!("{what}: {}", told(&deleted)))
    }

    /// Takes a VM out of its pool by its labels.
    async fn detach(&mut self) -> Result<String, kube::Error> {
        let all = Api::<VirtualMachine>::all(self.client.clone()).list(&ListParams::default()).await?.items;
        let Some(vm) = self.chance.one_of(&all) else { return Ok("detach no VM".to_owned()) };
        let (namespace, name) = (vm.namespace().unwrap_or_default(), vm.name_any());
        let api: Api<VirtualMachine> = Api::namespaced(self.client.clone(), &namespace);
        let patch = json!({ "metadata": { "labels": { "app": "own" } } });
        let changed = tolerate(api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await)?;
        Ok(format!("detach VM {namespace}/{name}: {}", told(&changed)))
    }

    async fn take_away<T>(&mut self) -> Result<String, kube::Error>
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        let (all, kind) = (Api::<T>::all(self.client.clone()).list(&ListParams::default()).await?.items, T::kind(&()));
        let Some(one) = self.chance.one_of(&all) else { return Ok(format!("delete no {kind}")) };
        let (namespace, name) = (one.namespace().unwrap_or_default(), one.name_any());
        self.witness.release(one.uid().unwrap_or_default());
        let api: Api<T> = Api::namespaced(self.client.clone(), &namespace);
        let deleted = tolerate(api.delete(&name, &DeleteParams::default()).await)?;
        Ok(format!("delete {kind} {namespace}/{name}: {}", told(&deleted)))
    }
}

/// A change of what VMs start.
fn template(change: &Value) -> Value {
    json!({ "virtualMachineTemplate": { "spec": { "template": change } } })
}

fn pool(name: &str, replicas: u32, settings: &Value) -> Result<VirtualMachinePool, kube::Error> {
    let labels = json!({ "app": name });
    let guest = json!({
        "domain": { "devices": {}, "memory": { "guest": "64Mi" } },
        "hostname": "first",
        "terminationGracePeriodSeconds": 5,
        "volumes": [{ "name": "disk", "containerDisk": { "image": "registry/disk:1" } }],
    });
    let template = json!({
        "metadata": { "labels": labels },
        "spec": { "runStrategy": "Always", "template": { "spec": guest } },
    });
    let mut spec =
        json!({ "replicas": replicas, "selector": { "matchLabels": labels }, "virtualMachineTemplate": template });
    for (field, value) in settings.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    read(json!({ "apiVersion": API, "kind": "VirtualMachinePool", "metadata": { "name": name }, "spec": spec }))
}
