//! What the tests of the controllers start from: the embedded API server with the kinds of virtual machines, under a paused
//! clock, and a client that counts what the controllers write.

use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use manager::rate::{Limit, RateLimiter};
use serde_json::{Value, json};
use testkit::world::{Notes, seconds, until};
use tokio::sync::watch;
use virt_controller::{DESCRIPTORS, Launcher, Settings};
use virt_server::Component;

/// A server with controllers of virtual machines, and a user beside them.
pub(crate) struct World {
    /// The server, for other programs.
    pub(crate) server: testkit::world::World,
    /// The user's client.
    pub(crate) client: Client,
    /// What the KubeVirt object limits.
    pub(crate) limiter: RateLimiter,
    /// What the controllers have asked for.
    notes: Notes,
    /// How launchers are run.
    launcher: watch::Sender<Launcher>,
}

impl World {
    /// Starts all.
    pub(crate) async fn start() -> Self {
        Self::begin(async |_| {}, |client| client).await
    }

    /// The same after something has happened: what admission lets in now may be another matter when the controllers see it.
    pub(crate) async fn start_after(events: impl AsyncFnOnce(&Self)) -> Self {
        let prepare = async |world: &Self| {
            // Until the kinds are served.
            seconds(1).await;
            events(world).await;
            seconds(1).await;
        };
        Self::begin(prepare, |client| client).await
    }

    /// The same, with controllers whose client the test changes: to lose a request, or to forge an answer.
    pub(crate) async fn start_with(change: impl FnOnce(Client) -> Client) -> Self {
        Self::begin(async |_| {}, change).await
    }

    async fn begin(prepare: impl AsyncFnOnce(&Self), change: impl FnOnce(Client) -> Client) -> Self {
        let world = testkit::world::World::start().await;
        world.define(&[]).await;
        let (own, notes) = world.noted(&Component::VirtController);
        let limiter = RateLimiter::new(Limit { qps: 1.0, burst: 1 });
        let (launcher, following) = watch::channel(Launcher::new("launcher:v1"));
        let this = Self { server: world.clone(), client: world.client(), limiter: limiter.clone(), notes, launcher };
        prepare(&this).await;
        let context = world.context(change(own));
        let mut settings = Settings::following(following);
        settings.limiter = Some(limiter);
        for descriptor in DESCRIPTORS {
            tokio::spawn((descriptor.start)(&context, &settings).unwrap().run);
        }
        testkit::world::watch(&context);
        this
    }

    /// From now on launchers are made of this image.
    pub(crate) fn run_launchers_as(&self, image: &str) {
        self.launcher.send_replace(Launcher::new(image));
    }

    pub(crate) fn vms(&self) -> Api<VirtualMachine> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn vmis(&self) -> Api<VirtualMachineInstance> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Writes of the controllers so far, reads apart, and forgets them.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.notes.writes()
    }

    /// Waits until an instance satisfies something.
    pub(crate) async fn vmi(
        &self,
        name: &str,
        wanted: impl Fn(&VirtualMachineInstance) -> bool,
    ) -> VirtualMachineInstance {
        until(&format!("the wanted VMI {name}"), async || {
            self.vmis().get_opt(name).await.unwrap().filter(|vmi| wanted(vmi))
        })
        .await
    }

    /// Waits until a VM satisfies something.
    pub(crate) async fn vm(&self, name: &str, wanted: impl Fn(&VirtualMachine) -> bool) -> VirtualMachine {
        until(&format!("the wanted VM {name}"), async || {
            self.vms().get_opt(name).await.unwrap().filter(|vm| wanted(vm))
        })
        .await
    }

    /// Waits for the word of a VM.
    pub(crate) async fn word(&self, name: &str, word: &str) -> VirtualMachine {
        self.vm(name, |vm| printable(vm) == word).await
    }

    /// Waits for the launcher pod of an instance that lives.
    pub(crate) async fn pod(&self, name: &str) -> Pod {
        let vmi = self.vmi(name, |vmi| !vmi.is_marked_for_deletion()).await;
        until(&format!("a pod of {name}"), async || {
            let pods = self.pods().list(&Default::default()).await.unwrap().items;
            pods.into_iter()
                .find(|pod| pod.owner_references().iter().any(|owner| Some(&owner.uid) == vmi.metadata.uid.as_ref()))
        })
        .await
    }

    /// Plays the scheduler and the node: the pod is bound and runs.
    pub(crate) async fn run_pod(&self, pod: &Pod) {
        self.run_pod_on(pod, "one").await;
    }

    /// The same, on this node.
    pub(crate) async fn run_pod_on(&self, pod: &Pod, node: &str) {
        let name = pod.name_any();
        let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
            "target": { "kind": "Node", "name": node } });
        let request = http::Request::post(format!("/api/v1/namespaces/default/pods/{name}/binding"))
            .header("content-type", "application/json")
            .body(binding.to_string().into_bytes())
            .unwrap();
        self.client.request_text(request).await.unwrap();
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let statuses: Vec<Value> = containers
            .map(|one| {
                json!({ "name": one.name, "ready": true, "image": one.image, "imageID": "", "restartCount": 0,
                "state": { "running": {} } })
            })
            .collect();
        self.patch_pod(&name, &json!({ "phase": "Running", "containerStatuses": statuses, "qosClass": "Burstable" }))
            .await;
    }

    pub(crate) async fn patch_pod(&self, name: &str, status: &Value) {
        let patch = json!({ "status": status });
        self.pods().patch_status(name, &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    }

    /// Plays the node's handler.
    pub(crate) async fn phase(&self, name: &str, phase: &str) {
        let vmi = self.vmis().get(name).await.unwrap();
        let mut status = json!(vmi.status.unwrap_or_default());
        status["phase"] = json!(phase);
        let entered = json!({ "phase": phase, "phaseTransitionTimestamp": "1970-01-01T00:01:00Z" });
        status["phaseTransitionTimestamps"].as_array_mut().unwrap().push(entered);
        if phase == "Running" {
            for condition in status["conditions"].as_array_mut().unwrap() {
                if condition["type"] == "Ready" {
                    *condition =
                        json!({ "type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z" });
                }
            }
        }
        self.patch_vmi(name, &json!({ "status": status })).await;
    }

    pub(crate) async fn patch_vmi(&self, name: &str, patch: &Value) {
        self.vmis().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn patch_vm(&self, name: &str, patch: &Value) {
        self.vms().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Takes an instance to Running, playing everybody else.
    pub(crate) async fn boot(&self, name: &str) -> VirtualMachineInstance {
        let pod = self.pod(name).await;
        self.run_pod(&pod).await;
        self.vmi(name, |vmi| phase(vmi) == "Scheduled").await;
        self.phase(name, "Running").await;
        self.vmi(name, |vmi| phase(vmi) == "Running").await
    }

    /// The node ends a pod that was deleted.
    pub(crate) async fn end_pod(&self, pod: &Pod) {
        let name = pod.name_any();
        let goes = |pod: &Option<Pod>| pod.as_ref().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
        let found =
            until("the deletion of the pod", async || Some(self.pods().get_opt(&name).await.unwrap()).filter(goes))
                .await;
        // One that never ran is gone at once.
        if found.is_some() {
            let now = kube::api::DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
            self.pods().delete(&name, &now).await.unwrap();
        }
    }

    /// Data volumes are served from now on.
    pub(crate) async fn define_data_volumes(&self) {
        let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        let definition = json!({
            "metadata": { "name": "datavolumes.cdi.kubevirt.io" },
            "spec": {
                "group": "cdi.kubevirt.io",
                "scope": "Namespaced",
                "names": { "plural": "datavolumes", "kind": "DataVolume" },
                "versions": [{ "name": "v1beta1", "served": true, "storage": true, "schema": schema }],
            },
        });
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    }

    /// Nobody fills data volumes any more.
    pub(crate) async fn forget_data_volumes(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        definitions.delete("datavolumes.cdi.kubevirt.io", &Default::default()).await.unwrap();
    }

    /// A VM with a container disk.
    pub(crate) async fn create_vm(&self, name: &str, strategy: &str) -> VirtualMachine {
        self.create_vm_with(name, &json!({ "runStrategy": strategy, "template": { "spec": spec() } })).await
    }

    pub(crate) async fn create_vm_with(&self, name: &str, spec: &Value) -> VirtualMachine {
        let vm = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": { "name": name }, "spec": spec });
        self.vms().create(&PostParams::default(), &serde_json::from_value(vm).unwrap()).await.unwrap()
    }
}

/// The smallest sensible guest.
pub(crate) fn spec() -> Value {
    json!({
        "domain": { "devices": {}, "memory": { "guest": "64Mi" } },
        "volumes": [{ "name": "disk", "containerDisk": { "image": "registry/disk:1" } }],
    })
}

pub(crate) fn phase(vmi: &VirtualMachineInstance) -> &str {
    vmi.phase().as_str()
}

pub(crate) fn printable(vm: &VirtualMachine) -> String {
    let word = vm.status.as_ref().and_then(|status| status.printable_status.clone());
    word.map(|word| word.to_string()).unwrap_or_default()
}

pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}
