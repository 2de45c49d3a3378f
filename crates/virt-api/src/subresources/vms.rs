//! What is done to a VM: its object is changed, and its controller acts on that.

use std::time::Duration;

use api::subresources::{MigrateOptions, RestartOptions, StartOptions, StopOptions};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde::Deserialize;
use serde_json::{Value, json};
use virt_rules::eviction;

use super::answer::{self, Problem, Subject};
use super::routes::Scope;
use super::{Call, Inner};
use crate::lifecycle::{self, Change, Fault, Plan, Refusal};

/// A change that met another one is decided anew so often; a VM's controllers write no more than that at once.
const ATTEMPTS: usize = 5;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

type Answer = Result<Response<Full<Bytes>>, Problem>;

/// `EvacuateCancelOptions` as Go reads it: what is missing is empty.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CancelOptions {
    /// Only an evacuation from this node; from any, if it is empty, which is all that virtctl sends.
    evacuation_node_name: String,
    dry_run: Option<Vec<String>>,
}

impl Inner {
    pub(super) async fn start(&self, call: &Call) -> Answer {
        let options: StartOptions = call.options()?;
        let paused = options.paused == Some(true);
        self.change(call, is_dry(options.dry_run.as_ref())?, |vm, vmi| lifecycle::start(vm, vmi, paused)).await
    }

    pub(super) async fn stop(&self, call: &Call) -> Answer {
        let options: StopOptions = call.options()?;
        let grace = options.grace_period;
        self.change(call, is_dry(options.dry_run.as_ref())?, |vm, vmi| lifecycle::stop(vm, vmi, grace)).await
    }

    pub(super) async fn restart(&self, call: &Call) -> Answer {
        let options: RestartOptions = call.options()?;
        let grace = options.grace_period_seconds;
        self.change(call, is_dry(options.dry_run.as_ref())?, |vm, vmi| lifecycle::restart(vm, vmi, grace)).await
    }

    /// Writes what is decided, on the objects as they are.
    async fn change<D>(&self, call: &Call, dry_run: bool, decide: D) -> Answer
    where
        D: Fn(&VirtualMachine, Option<&VirtualMachineInstance>) -> Result<Plan, Refusal>,
    {
        let name = &call.matched.name;
        let mut attempt = 1;
        loop {
            let vm = self.vm(call).await?;
            let vmi = self.instance_if_any(call).await?;
            let plan = decide(&vm, vmi.as_ref()).map_err(|refusal| refused(name, &refusal))?;
            match self.write(call, vmi.as_ref(), &plan, dry_run).await {
                Ok(()) => return Ok(answer::empty(StatusCode::ACCEPTED)),
                Err(kube::Error::Api(status)) if status.code == 409 && attempt < ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    return Err(Problem::conflict(Subject::Vm, name, "others change it all the time; try again"));
                }
                Err(error) => return Err(Problem::of_server(&error)),
            }
        }
    }

    /// Writes both or none, as far as two objects allow that: what was written of the instance is taken back when the VM could not be
    /// written. A second attempt would otherwise find its own grace period, and an instance that was not restarted would keep it.
    async fn write(
        &self,
        call: &Call,
        vmi: Option<&VirtualMachineInstance>,
        plan: &Plan,
        dry_run: bool,
    ) -> Result<(), kube::Error> {
        let name = &call.matched.name;
        let parameters = PatchParams { dry_run, ..PatchParams::default() };
        let instance = match &plan.instance {
            Some(patch) => Some(self.instances(call).patch(name, &parameters, &Patch::Merge(patch)).await?),
            None => None,
        };
        let vms = self.vms(call);
        let written = match &plan.vm {
            Change::Object(patch) => vms.patch(name, &parameters, &Patch::Merge(patch)).await,
            Change::Status(patch) => vms.patch_status(name, &parameters, &Patch::Merge(patch)).await,
        };
        if let (Err(_), Some(instance), false) = (&written, instance, dry_run) {
            let former = vmi.and_then(|vmi| vmi.spec.termination_grace_period_seconds);
            self.take_back(call, former, instance).await;
        }
        written.map(drop)
    }

    /// Gives an instance the grace period that it had, unless somebody else has changed it since.
    async fn take_back(&self, call: &Call, former: Option<i64>, mut instance: VirtualMachineInstance) {
        let (name, ours) = (&call.matched.name, instance.spec.termination_grace_period_seconds);
        for _ in 0..ATTEMPTS {
            let (uid, version) = (&instance.metadata.uid, &instance.metadata.resource_version);
            let patch = json!({
                "metadata": { "uid": uid, "resourceVersion": version },
                "spec": { "terminationGracePeriodSeconds": former },
            });
            let written = self.instances(call).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
            match written {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    tracing::warn!(%error, name, "an instance keeps a grace period that it should not");
                    return;
                }
                Ok(_) => return,
            }
            match self.instance_if_any(call).await {
                Ok(Some(now)) if now.spec.termination_grace_period_seconds == ours => instance = now,
                _ => return,
            }
        }
    }

    pub(super) async fn migrate(&self, call: &Call) -> Answer {
        let options: MigrateOptions = call.options()?;
        let dry_run = is_dry(options.dry_run.as_ref())?;
        self.vm(call).await?;
        let name = &call.matched.name;
        let vmi = self.instance(call).await?;
        if !vmi.is_running() {
            return Err(Problem::conflict(Subject::Vm, name, "VM is not running"));
        }
        let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstanceMigration");
        let resource = ApiResource::from_gvk_with_plural(&kind, "virtualmachineinstancemigrations");
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &call.matched.namespace, &resource);
        let mut spec = json!({ "vmiName": name });
        if let Some(selector) = options.added_node_selector.filter(|selector| !selector.is_empty()) {
            spec["addedNodeSelector"] = json!(selector);
        }
        let mut migration = DynamicObject::new("", &resource).data(json!({ "spec": spec }));
        migration.metadata.name = None;
        migration.metadata.generate_name = Some("kubevirt-migrate-vm-".to_owned());
        let parameters = PostParams { dry_run, ..PostParams::default() };
        api.create(&parameters, &migration).await.map_err(|error| Problem::of_server(&error))?;
        Ok(answer::empty(StatusCode::ACCEPTED))
    }

    pub(super) async fn cancel_evacuation(&self, call: &Call) -> Answer {
        let vmi = match call.matched.scope {
            Scope::Vm => self.instance_of_vm(call).await?,
            _ => self.instance(call).await?,
        };
        let evacuated = eviction::marked(&vmi).unwrap_or_default().to_owned();
        self.check_drain_taint(&vmi).await?;
        if evacuated.is_empty() {
            return Ok(answer::empty(StatusCode::OK));
        }
        if call.body.is_empty() {
            return Err(Problem::bad_request("No body"));
        }
        let options: CancelOptions = serde_json::from_slice(&call.body).map_err(|e| super::unreadable(&e))?;
        let name = &call.matched.name;
        if !options.evacuation_node_name.is_empty() && options.evacuation_node_name != evacuated {
            let why = format!("it is evacuated from {evacuated:?}, not from {:?}", options.evacuation_node_name);
            return Err(Problem::conflict(Subject::Instance, name, why));
        }
        let (uid, version) = (&vmi.metadata.uid, &vmi.metadata.resource_version);
        let patch = json!({
            "metadata": { "uid": uid, "resourceVersion": version }, "status": { "evacuationNodeName": null },
        });
        let parameters = PatchParams { dry_run: is_dry(options.dry_run.as_ref())?, ..PatchParams::default() };
        let written = self.instances(call).patch(name, &parameters, &Patch::Merge(&patch)).await;
        written.map_err(|error| Problem::of_server(&error))?;
        Ok(answer::empty(StatusCode::OK))
    }

    /// A taint empties the node as long as it is there; to take the mark from one instance would change nothing.
    async fn check_drain_taint(&self, vmi: &VirtualMachineInstance) -> Result<(), Problem> {
        let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref());
        let Some(node) = eviction::marked(vmi).or(node) else { return Ok(()) };
        let config = self.config().await?;
        let key = config.migrations().node_drain_taint_key;
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = nodes.get_opt(node).await.map_err(|error| Problem::of_server(&error))?;
        let mut taints = found.iter().flat_map(|node| node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()));
        if taints.any(|taint| taint.key == key && taint.effect == "NoSchedule") {
            let taint = format!("{key}:NoSchedule");
            return Err(Problem::bad_request(format!("Node {node:?} has NodeDrainTaintKey {taint:?}")));
        }
        Ok(())
    }

    pub(super) fn vms(&self, call: &Call) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), &call.matched.namespace)
    }

    pub(super) fn instances(&self, call: &Call) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.client.clone(), &call.matched.namespace)
    }

    pub(super) async fn vm(&self, call: &Call) -> Result<VirtualMachine, Problem> {
        let name = &call.matched.name;
        let found = self.vms(call).get_opt(name).await;
        let found = found.map_err(|error| Problem::internal(format!("unable to retrieve vm [{name}]: {error}")))?;
        found.ok_or_else(|| Problem::not_found(Subject::Vm, name))
    }

    pub(super) async fn instance_if_any(&self, call: &Call) -> Result<Option<VirtualMachineInstance>, Problem> {
        let name = &call.matched.name;
        let found = self.instances(call).get_opt(name).await;
        found.map_err(|error| Problem::internal(format!("unable to retrieve vmi [{name}]: {error}")))
    }

    pub(super) async fn instance(&self, call: &Call) -> Result<VirtualMachineInstance, Problem> {
        let found = self.instance_if_any(call).await?;
        found.ok_or_else(|| Problem::not_found(Subject::Instance, &call.matched.name))
    }

    /// The instance of a VM, and not one that only has its name.
    pub(super) async fn instance_of_vm(&self, call: &Call) -> Result<VirtualMachineInstance, Problem> {
        let name = &call.matched.name;
        let vm = self.vm(call).await?;
        if vm.status.as_ref().and_then(|status| status.created) != Some(true) {
            return Err(Problem::conflict(Subject::Vm, name, "VMI is not started"));
        }
        let vmi = self.instance(call).await?;
        let mut owners = vmi.metadata.owner_references.iter().flatten();
        if owners.any(|owner| Some(&owner.uid) == vm.metadata.uid.as_ref()) {
            return Ok(vmi);
        }
        Err(Problem::internal(format!("unable to retrieve vmi [{name}] for vm: it belongs to somebody else")))
    }
}

/// Whether nothing is to be stored. Only all or nothing can be asked for, as in Kubernetes.
pub(super) fn is_dry(asked: Option<&Vec<String>>) -> Result<bool, Problem> {
    let asked = asked.map(Vec::as_slice).unwrap_or_default();
    if let Some(other) = asked.iter().find(|one| *one != "All") {
        let message = format!("dryRun: Unsupported value: {other:?}: supported values: \"All\"");
        return Err(Problem::bad_request(message));
    }
    Ok(!asked.is_empty())
}

fn refused(name: &str, refusal: &Refusal) -> Problem {
    match refusal.fault() {
        Fault::Conflict => Problem::conflict(Subject::Vm, name, refusal),
        Fault::Request => Problem::bad_request(refusal.to_string()),
        Fault::Internal => Problem::internal(refusal),
    }
}

/// An object with its kind, as answers have it.
pub(super) fn whole(kind: &str, mut object: Value) -> Value {
    object["apiVersion"] = "kubevirt.io/v1".into();
    object["kind"] = kind.into();
    object
}
