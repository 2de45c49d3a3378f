//! Instances of the user's own, and what happens to any instance and its pod.

use api::conditions::{self, ConditionStatus};
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams, PropagationPolicy};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::super::{read, told, tolerate};
use super::{API, User, said};

const PAUSED: &str = "Paused";

impl User {
    /// An instance without a VM; now and then of a name that a VM has or will have.
    pub(super) async fn create_instance(&mut self, namespace: &str, name: &str) -> Result<String, kube::Error> {
        let name = if self.chance.permille(300) { name } else { "loner" };
        let (guest, fate) = (self.guest(None), said(&self.fate()));
        let metadata = json!({ "name": name, "annotations": fate });
        let kind = "VirtualMachineInstance";
        let vmi = read(json!({ "apiVersion": API, "kind": kind, "metadata": metadata, "spec": guest }))?;
        let made = tolerate(self.vmis(namespace).create(&PostParams::default(), &vmi).await)?;
        Ok(format!("create VMI {namespace}/{name} {fate}: {}", told(&made)))
    }

    async fn instances(&self) -> Result<Vec<VirtualMachineInstance>, kube::Error> {
        Ok(Api::all(self.client.clone()).list(&ListParams::default()).await?.items)
    }

    pub(super) async fn delete_instance(&mut self) -> Result<String, kube::Error> {
        let all = self.instances().await?;
        let Some(vmi) = self.chance.one_of(&all).cloned() else { return Ok("delete no VMI".to_owned()) };
        let policies = [PropagationPolicy::Background, PropagationPolicy::Background, PropagationPolicy::Foreground];
        let propagation_policy = self.chance.one_of(&policies).cloned();
        let namespace = vmi.namespace().unwrap_or_default();
        let what = format!("delete VMI {namespace}/{}, {propagation_policy:?}", vmi.name_any());
        let parameters = DeleteParams { propagation_policy, ..DeleteParams::default() };
        self.witness.release(vmi.uid().unwrap_or_default());
        tolerate(self.vmis(&namespace).delete(&vmi.name_any(), &parameters).await)?;
        Ok(what)
    }

    pub(super) async fn delete_pod(&mut self) -> Result<String, kube::Error> {
        let pods = Api::<Pod>::all(self.client.clone()).list(&ListParams::default()).await?.items;
        let Some(pod) = self.chance.one_of(&pods) else { return Ok("delete no pod".to_owned()) };
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let grace_period_seconds = (self.by_force && self.chance.permille(500)).then_some(0);
        tolerate(api.delete(&name, &DeleteParams { grace_period_seconds, ..DeleteParams::default() }).await)?;
        Ok(format!("delete pod {namespace}/{name}, grace period {grace_period_seconds:?}"))
    }

    /// Pauses a guest that runs, or lets one go on: virt-api would ask its launcher.
    pub(super) async fn pause(&mut self) -> Result<String, kube::Error> {
        let all = self.instances().await?;
        let running: Vec<_> = all.iter().filter(|vmi| vmi.is_running() && !vmi.is_marked_for_deletion()).collect();
        let Some(vmi) = self.chance.one_of(&running) else { return Ok("pause nobody".to_owned()) };
        let paused = !is_paused(vmi);
        self.machines.pause(&vmi.uid().unwrap_or_default(), paused);
        Ok(format!("pause {}/{}: {paused}", vmi.namespace().unwrap_or_default(), vmi.name_any()))
    }

    /// Lets all guests go on.
    pub(super) async fn resume_all(&self, namespace: &str) -> Result<Option<String>, kube::Error> {
        let mut done = None;
        for vmi in self.vmis(namespace).list(&ListParams::default()).await?.iter().filter(|vmi| is_paused(vmi)) {
            if self.machines.pause(&vmi.uid().unwrap_or_default(), false) {
                done = Some(format!("let {namespace}/{} go on", vmi.name_any()));
            }
        }
        Ok(done)
    }
}

fn is_paused(vmi: &VirtualMachineInstance) -> bool {
    let listed = vmi.status.as_ref().and_then(|status| status.conditions.as_deref());
    conditions::has(listed, PAUSED, &ConditionStatus::True)
}
