//! VMs come, change and go.

use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::super::{policy, read, told, tolerate};
use super::{API, FATE, RUN_FOR, User, said, volumes};

impl User {
    /// Either of the two fields that say whether a VM runs.
    fn strategy(&mut self) -> Value {
        let strategies = ["Always", "Always", "RerunOnFailure", "Manual", "Halted", "Once"];
        match self.chance.below(6) {
            0 => json!({ "running": self.chance.permille(600), "runStrategy": null }),
            _ => json!({ "running": null, "runStrategy": self.chance.one_of(&strategies) }),
        }
    }

    pub(super) async fn create_vm(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let mut spec = said(&self.strategy());
        let strategy = spec.to_string();
        let (guest, fate) = (self.guest(Some(volumes::data_volume_of(name))), said(&self.fate()));
        if guest["volumes"][0]["dataVolume"].is_object() {
            spec["dataVolumeTemplates"] = json!([volumes::template(name)]);
        }
        spec["template"] = json!({ "metadata": { "annotations": fate }, "spec": guest });
        let vm = json!({ "apiVersion": API, "kind": "VirtualMachine", "metadata": { "name": name }, "spec": spec });
        let vm = read(vm)?;
        let made = tolerate(self.vms(namespace).create(&PostParams::default(), &vm).await)?;
        Ok(format!("create VM {namespace}/{name} {strategy} {fate}: {}", told(&made)))
    }

    /// Where nothing has run yet: a VM that nothing keeps from running, and that nobody changes any more.
    pub(super) async fn make_one_that_runs(&self) -> Result<Option<String>, kube::Error> {
        let (namespace, name) = ("blue", "certain");
        super::super::make_namespace(&self.client, namespace).await?;
        let disk = json!({ "name": "disk", "containerDisk": { "image": "registry/disk:1" } });
        let guest = json!({ "domain": { "devices": {}, "memory": { "guest": "64Mi" } }, "volumes": [disk] });
        let spec = json!({ "runStrategy": "Always", "template": { "spec": guest } });
        let vm = json!({ "apiVersion": API, "kind": "VirtualMachine", "metadata": { "name": name }, "spec": spec });
        let made = tolerate(self.vms(namespace).create(&PostParams::default(), &read(vm)?).await)?;
        Ok(made.map(|_| format!("create VM {namespace}/{name}, which runs")))
    }

    pub(super) async fn change_strategy(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let patch = json!({ "spec": self.strategy() });
        self.change_vm(namespace, name, &patch).await
    }

    /// A change that needs a restart, or takes one back.
    pub(super) async fn resize(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let memory = self.chance.one_of(&["64Mi", "64Mi", "128Mi"]);
        let patch = json!({ "spec": { "template": { "spec": { "domain": { "memory": { "guest": memory } } } } } });
        self.change_vm(namespace, name, &patch).await
    }

    pub(super) async fn change_fate(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let patch = json!({ "spec": { "template": { "metadata": { "annotations": self.fate() } } } });
        self.change_vm(namespace, name, &patch).await
    }

    /// No guest of a later start ends by itself.
    pub(super) async fn forget_fates(&self, namespace: &str) -> Result<(), kube::Error> {
        let none = json!({ FATE: null, RUN_FOR: null });
        let patch = json!({ "spec": { "template": { "metadata": { "annotations": none } } } });
        for vm in self.vms(namespace).list(&ListParams::default()).await? {
            self.change_vm(namespace, &vm.name_any(), &patch).await?;
        }
        Ok(())
    }

    pub(super) async fn delete_vm(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let policy = policy(&mut self.chance);
        let what = format!("delete VM {namespace}/{name}, {policy:?}");
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        let deleted = tolerate(self.vms(namespace).delete(name, &parameters).await)?;
        Ok(format!("{what}: {}", told(&deleted)))
    }
}
