//! Replica sets of instances come, grow, shrink, pause and go; and now and then an instance is left that one of them adopts.

use std::time::Duration;

use api::owner::controller_reference;
use api::replicaset::VirtualMachineInstanceReplicaSet;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase as Phase;
use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::super::{policy, read, told, tolerate};
use super::{API, FATE, RUN_FOR, User, said};

const NAMES: [&str; 2] = ["farm", "herd"];
/// No replacement waits longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

impl User {
    fn sets(&self, namespace: &str) -> Api<VirtualMachineInstanceReplicaSet> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) async fn tend_sets(&mut self, namespace: &str) -> Result<String, kube::Error> {
        let name = self.chance.one_of(&NAMES).copied().unwrap_or("farm");
        let change = match self.chance.below(10) {
            0..=3 => return self.create_set(namespace, name).await,
            4 => return self.delete_set(namespace, name).await,
            5 | 6 => return self.scale(namespace, name).await,
            7 => json!({ "paused": self.chance.permille(500) }),
            8 if self.chance.permille(400) => return self.leave_a_budget().await,
            8 => json!({ "template": { "metadata": { "annotations": self.fate() } } }),
            _ => return self.leave_an_orphan(namespace, name).await,
        };
        self.change_set(namespace, name, &json!({ "spec": change })).await
    }

    async fn create_set(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let (guest, fate, replicas) = (self.disposable(), said(&self.fate()), self.chance.below(4));
        let template = json!({ "metadata": { "labels": { "app": name }, "annotations": fate }, "spec": guest });
        let set = json!({
            "apiVersion": API, "kind": "VirtualMachineInstanceReplicaSet", "metadata": { "name": name },
            "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } }, "template": template },
        });
        let made = tolerate(self.sets(namespace).create(&PostParams::default(), &read(set)?).await)?;
        Ok(format!("create set {namespace}/{name} of {replicas} {fate}: {}", told(&made)))
    }

    /// A guest without state.
    fn disposable(&mut self) -> Value {
        json!({
            "domain": { "devices": {}, "memory": { "guest": "64Mi" } },
            "terminationGracePeriodSeconds": self.chance.below(15),
            "volumes": [{ "name": "disk", "containerDisk": { "image": "registry/disk:1" } }],
        })
    }

    async fn change_set(&self, namespace: &str, name: &str, patch: &Value) -> Result<String, kube::Error> {
        let changed = self.sets(namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        Ok(format!("change set {namespace}/{name} {patch}: {}", told(&tolerate(changed)?)))
    }

    /// As `kubectl scale` does.
    async fn scale(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let patch = json!({ "spec": { "replicas": self.chance.below(5) } });
        let scaled = self.sets(namespace).patch_scale(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        Ok(format!("scale set {namespace}/{name} {patch}: {}", told(&tolerate(scaled)?)))
    }

    async fn delete_set(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let policy = policy(&mut self.chance);
        let what = format!("delete set {namespace}/{name}, {policy:?}");
        let parameters = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        let deleted = tolerate(self.sets(namespace).delete(name, &parameters).await)?;
        Ok(format!("{what}: {}", told(&deleted)))
    }

    async fn leave_an_orphan(&mut self, namespace: &str, set: &str) -> Result<String, kube::Error> {
        let metadata = json!({ "name": "stray", "labels": { "app": set } });
        let guest = self.disposable();
        let vmi =
            read(json!({ "apiVersion": API, "kind": "VirtualMachineInstance", "metadata": metadata, "spec": guest }))?;
        let made = tolerate(self.vmis(namespace).create(&PostParams::default(), &vmi).await)?;
        Ok(format!("leave an orphan for set {namespace}/{set}: {}", told(&made)))
    }

    /// As earlier releases of KubeVirt made them.
    async fn leave_a_budget(&mut self) -> Result<String, kube::Error> {
        let all = Api::<VirtualMachineInstance>::all(self.client.clone()).list(&ListParams::default()).await?.items;
        let Some(vmi) = self.chance.one_of(&all) else { return Ok("leave no budget".to_owned()) };
        let (namespace, name) = (vmi.namespace().unwrap_or_default(), vmi.name_any());
        let budget = json!({
            "metadata": {
                "name": format!("kubevirt-disruption-budget-{name}"), "ownerReferences": [controller_reference(vmi)],
            },
            "spec": { "minAvailable": 1, "selector": { "matchLabels": { "kubevirt.io/created-by": vmi.metadata.uid } } },
        });
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &namespace);
        let made = tolerate(api.create(&PostParams::default(), &read(budget)?).await)?;
        Ok(format!("leave a budget of {namespace}/{name}: {}", told(&made)))
    }

    /// No set is paused, and no guest of a later start ends by itself.
    pub(super) async fn let_sets_go(&self, namespace: &str) -> Result<(), kube::Error> {
        let none = json!({ FATE: null, RUN_FOR: null });
        let patch = json!({ "spec": { "paused": false, "template": { "metadata": { "annotations": none } } } });
        for set in self.sets(namespace).list(&ListParams::default()).await? {
            self.change_set(namespace, &set.name_any(), &patch).await?;
        }
        Ok(())
    }

    /// Whether a set waits with the replacement of an instance that failed.
    pub(super) async fn sees_patient_sets(&self, now: Timestamp) -> Result<bool, kube::Error> {
        let all = Api::<VirtualMachineInstance>::all(self.client.clone()).list(&ListParams::default()).await?;
        let of_a_set = |vmi: &&VirtualMachineInstance| {
            vmi.owner_references().iter().any(|owner| owner.kind == "VirtualMachineInstanceReplicaSet")
        };
        let failed_at = |vmi: &VirtualMachineInstance| {
            let entered = vmi.status.as_ref()?.phase_transition_timestamps.as_ref()?;
            let failed = entered.iter().find(|one| one.phase == Some(Phase::Failed))?;
            failed.phase_transition_timestamp.as_ref().map(|at| at.0)
        };
        let live = all.iter().filter(of_a_set).filter(|vmi| !vmi.is_marked_for_deletion());
        Ok(live.filter_map(failed_at).any(|at| at + LONGEST_WAIT > now))
    }
}
