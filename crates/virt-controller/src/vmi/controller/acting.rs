//! Carries out what was decided about an instance.

use api::names::label;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::{Api, ResourceExt as _};
use manager::cache::{Key, controller_of};
use manager::errors::chain;
use manager::events::Kind;
use manager::worker::Next;
use manager::writing::{delete, delete_as_seen, is_namespace_terminating, log_changed, log_created, unless_gone};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ASK_AFTER, Vmis};
use crate::vmi::{Deletion, Plan, Target};

impl Vmis {
    pub(super) async fn act(&self, key: &Key, vmi: &VirtualMachineInstance, plan: Plan) -> Result<Next, kube::Error> {
        let Plan { ask: _, create, delete, gate, marks, change, events } = plan;
        for event in events {
            self.recorder.record(vmi, event.kind, event.reason, event.message);
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        for deletion in &delete {
            self.delete(key, vmi, &pods, deletion).await?;
        }
        // What is in the way is told even if the next attempt fails as well.
        if let Some(change) = &change {
            self.write(key, change).await?;
        }
        if let Some(pod) = &create {
            self.create(key, vmi, &pods, pod).await?;
        }
        if let Some((target, condition)) = &gate {
            tell_gate(&pods, target, condition).await?;
        }
        if let Some((Target { name, uid: _ }, patch)) = &marks {
            let written = pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
            unless_gone(written.inspect(|_| log_changed::<Pod>(name)))?;
        }
        // What was asked for may come and go unseen, and then nobody else brings the instance here again.
        let expects = self.expected.remaining(key);
        Ok(expects.map_or(Next::Wait, |left| Next::After(left.min(ASK_AFTER))))
    }

    async fn write(&self, key: &Key, change: &Value) -> Result<(), kube::Error> {
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &key.namespace);
        let written = api.patch(&key.name, &PatchParams::default(), &Patch::Merge(change)).await;
        if let Ok(written) = &written {
            if change["status"]["phase"].is_string() {
                let node = written.metadata.labels.as_ref().and_then(|labels| labels.get(label::NODE_NAME));
                let phase = written.phase().to_string();
                tracing::info!(phase, node = node.map_or("", String::as_str), "the phase of the instance changed");
            }
            self.written.note(key, written);
        }
        unless_gone(written)
    }

    async fn create(
        &self,
        key: &Key,
        vmi: &VirtualMachineInstance,
        api: &Api<Pod>,
        pod: &Pod,
    ) -> Result<(), kube::Error> {
        self.expect(key, 1, None);
        let made = match api.create(&PostParams::default(), pod).await {
            Ok(made) => {
                log_created(&made);
                Ok(())
            }
            // An answer was lost, or another leader was faster: the cache will show it. A stranger's is another matter.
            Err(kube::Error::Api(status)) if status.is_already_exists() => match api.get_opt(&pod.name_any()).await? {
                Some(found) if controller_of(&found) == controller_of(pod) => return Ok(()),
                _ => Err(kube::Error::Api(status)),
            },
            // The namespace goes, and the instance with it.
            Err(kube::Error::Api(status)) if is_gone(&status) => {
                self.expected.created(key);
                return Ok(());
            }
            Err(error) => Err(error),
        };
        match made {
            Ok(()) => {
                self.failures.take(key);
                let message = format!("Created virtual machine pod {}", pod.name_any());
                self.recorder.record(vmi, Kind::Normal, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) => {
                self.expected.created(key);
                let message = format!("Error creating pod: {}", chain(&error));
                if self.failures.set(key, message.clone()).as_ref() != Some(&message) {
                    self.recorder.record(vmi, Kind::Warning, "FailedCreate", message);
                }
                Err(error)
            }
        }
    }

    async fn delete(
        &self,
        key: &Key,
        vmi: &VirtualMachineInstance,
        api: &Api<Pod>,
        Deletion { target: Target { name, uid }, grace, version }: &Deletion,
    ) -> Result<(), kube::Error> {
        self.expect(key, 0, Some(uid));
        let done = match version {
            Some(version) => delete_as_seen(api, name, uid, version).await,
            None => delete(api, name, Some(uid), *grace).await,
        };
        match &done {
            Ok(()) => {
                let message = format!("Deleted virtual machine pod {name}");
                self.recorder.record(vmi, Kind::Normal, "SuccessfulDelete", message);
            }
            // A node has taken it meanwhile, or it has changed otherwise: the cache will tell.
            Err(kube::Error::Api(status)) if version.is_some() && status.code == 409 => {
                self.expected.deleted(key, uid);
                return Ok(());
            }
            Err(error) => {
                self.expected.deleted(key, uid);
                let message = format!("Error deleting pod {name}: {}", chain(error));
                self.recorder.record(vmi, Kind::Warning, "FailedDelete", message);
            }
        }
        done
    }

    /// Notes what is asked for now.
    fn expect(&self, key: &Key, creations: usize, deletion: Option<&String>) {
        self.expected.expect(key, creations, deletion.cloned());
        self.asked_for.set(key, Instant::now());
    }
}

fn is_gone(status: &Status) -> bool {
    status.code == 404 || is_namespace_terminating(status)
}

/// Says how the readiness gate is, and leaves the other conditions to those who own them.
async fn tell_gate(api: &Api<Pod>, target: &Target, condition: &PodCondition) -> Result<(), kube::Error> {
    let patch = json!({ "metadata": { "uid": target.uid }, "status": { "conditions": [condition] } });
    unless_gone(api.patch_status(&target.name, &PatchParams::default(), &Patch::Strategic(&patch)).await)
}
