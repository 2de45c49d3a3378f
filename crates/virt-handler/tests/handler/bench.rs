//! A server with the kinds of virtual machines, a kubelet's folder, and one node's handler, under a paused clock.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use json_patch::merge;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use manager::stopping::Stopping;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::waiting::within;
pub(crate) use testkit::world::seconds;
use testkit::world::{self, Notes, World};
use tokio::task::JoinHandle;
use virt_handler::networks::{self, Connecting, Link, NetworkError, Networks};
use virt_handler::{Handler, Settings};
use virt_server::Component;

use crate::launcher::FakeLauncher;

pub(crate) const NODE: &str = "node";

pub(crate) struct Bench {
    pub(crate) client: Client,
    world: World,
    /// The handlers' client, and what they have asked for.
    noted: Client,
    notes: Notes,
    folder: TempDir,
    pub(crate) network: Arc<FakeNetwork>,
}

/// A handler that runs until it is dropped.
pub(crate) struct Running {
    stopping: Stopping,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    /// Asks it to end, and waits for that.
    pub(crate) async fn stop(mut self) {
        self.stopping.ask();
        self.tasks.remove(0).await.unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Networks that only say that they were made.
#[derive(Default)]
pub(crate) struct FakeNetwork {
    /// Whose instances' networks are.
    pub(crate) made: Mutex<BTreeMap<String, String>>,
    pub(crate) refusal: Mutex<Option<NetworkError>>,
}

impl Networks for FakeNetwork {
    fn connect<'a>(&'a self, place: networks::Place, vmi: &'a VirtualMachineInstance) -> Connecting<'a> {
        Box::pin(async move {
            assert!(place.socket.exists() && place.state.parent().unwrap().exists());
            if let Some(refusal) = self.refusal.lock().unwrap().take() {
                return Err(refusal);
            }
            self.made.lock().unwrap().insert(vmi.metadata.name.clone().unwrap(), place.identity);
            let addresses = ["10.88.0.5", "fd88::5"].map(str::to_owned).to_vec();
            let (name, mac) = ("default".to_owned(), "02:00:00:00:00:05".to_owned());
            Ok(vec![Link { name, mac, addresses, pod_link: "eth0".to_owned() }])
        })
    }
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let world = World::start().await;
        world.define(&["VirtualMachine", "VirtualMachineInstance", "KubeVirt"]).await;
        let client = world.client();
        seconds(1).await;
        let node: Node = serde_json::from_value(json!({ "metadata": { "name": NODE } })).unwrap();
        Api::<Node>::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("pods")).unwrap();
        let (noted, notes) = world.noted(&Component::VirtHandler);
        Self { client, world, noted, notes, folder, network: Arc::default() }
    }

    pub(crate) fn settings(&self) -> Settings {
        let (kubelet, state) = (self.folder.path().to_owned(), self.folder.path().join("state"));
        let settings = Settings::of(NODE, kubelet, state, PathBuf::from("/nowhere"));
        Settings { devices: false, labels: false, guard: None, ..settings }
    }

    /// Starts a handler and waits until it has settled.
    pub(crate) async fn handler(&self) -> Running {
        self.handler_with(self.settings()).await
    }

    pub(crate) async fn handler_with(&self, settings: Settings) -> Running {
        let (context, writer) = world::context(self.noted.clone(), self.world.now.clone(), "virt-handler");
        let handler = Handler::with_networks(&context, settings, self.network.clone());
        let run = tokio::spawn(async move { handler.run().await });
        let tasks = vec![run, world::watch(&context), writer];
        let running = Running { stopping: context.stopping, tasks };
        seconds(1).await;
        running
    }

    /// What the handlers have written since the last time, events and their node apart.
    pub(crate) fn writes(&self) -> Vec<String> {
        let is_other = |write: &String| !["/nodes/", "/events"].iter().any(|part| write.contains(part));
        self.notes.writes().into_iter().filter(is_other).collect()
    }

    /// A client of virt-controller.
    pub(crate) fn of_controller(&self) -> Client {
        self.world.client_of(&Component::VirtController)
    }

    pub(crate) fn vmis(&self) -> Api<VirtualMachineInstance> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn vmi(&self, name: &str) -> VirtualMachineInstance {
        self.vmis().get(name).await.unwrap()
    }

    pub(crate) async fn phase(&self, name: &str) -> String {
        self.vmi(name).await.phase().to_string()
    }

    /// The reasons of events about an instance, in their order.
    pub(crate) async fn events(&self, name: &str) -> Vec<String> {
        let api: Api<Event> = Api::default_namespaced(self.client.clone());
        let mut all = api.list(&ListParams::default()).await.unwrap().items;
        all.retain(|event| event.involved_object.name.as_deref() == Some(name));
        all.sort_by_key(|event| event.metadata.resource_version.as_ref().unwrap().parse::<u64>().unwrap());
        all.into_iter().filter_map(|event| event.reason).collect()
    }

    pub(crate) async fn node(&self) -> Node {
        Api::<Node>::all(self.client.clone()).get(NODE).await.unwrap()
    }

    /// Waits until the node has a label.
    pub(crate) async fn node_has(&self, label: &str) {
        let api: Api<Node> = Api::all(self.client.clone());
        let has = |node: Option<&Node>| node.is_some_and(|node| node.labels().contains_key(label));
        let wait = kube::runtime::wait::await_condition(api, NODE, has);
        within("the label", wait).await.unwrap();
    }

    /// The folder of all pods.
    pub(crate) fn pods(&self) -> PathBuf {
        self.folder.path().join("pods")
    }

    /// The folder of a pod's sockets.
    pub(crate) fn sockets(&self, pod: &str) -> PathBuf {
        self.pods().join(pod).join("volumes/kubernetes.io~empty-dir/sockets")
    }

    pub(crate) fn launcher(&self, pod: &str) -> FakeLauncher {
        FakeLauncher::start(&self.sockets(pod))
    }

    /// What is on record.
    pub(crate) fn records(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("state/instances")).map_or(0, Iterator::count)
    }

    /// Makes a VM; its UID.
    pub(crate) async fn vm(&self, name: &str) -> String {
        let template = json!({ "spec": { "domain": { "devices": {}, "memory": { "guest": "64Mi" } } } });
        let vm = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": { "name": name },
            "spec": { "runStrategy": "Manual", "template": template },
        });
        let vm: VirtualMachine = serde_json::from_value(vm).unwrap();
        let vms: Api<VirtualMachine> = Api::default_namespaced(self.client.clone());
        vms.create(&PostParams::default(), &vm).await.unwrap().uid().unwrap()
    }

    /// Makes an instance and hands it over to a node, as virt-controller does. Its pod is `pod-NAME`.
    pub(crate) async fn instance(&self, name: &str, node: &str, change: &Value) {
        let mut vmi = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {
                "name": name,
                "labels": { "kubevirt.io/nodeName": node },
                "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"],
            },
            "spec": {
                "domain": {
                    "memory": { "guest": "64Mi" },
                    "devices": {
                        "interfaces": [{ "name": "default", "masquerade": {} }],
                        "disks": [{ "name": "root", "disk": { "bus": "virtio" } }],
                    },
                },
                "networks": [{ "name": "default", "pod": {} }],
                "volumes": [{ "name": "root", "containerDisk": { "image": "i" } }],
            },
        });
        merge(&mut vmi, change);
        let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
        self.vmis().create(&PostParams::default(), &vmi).await.unwrap();
        let conditions = json!([{ "type": "Ready", "status": "False", "reason": "GuestNotRunning" }]);
        let pods = json!({ format!("pod-{name}"): node });
        let status = json!({
            "status": { "phase": "Scheduled", "nodeName": node, "conditions": conditions, "activePods": pods },
        });
        self.vmis().patch(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// Takes the finalizers of an instance away.
    pub(crate) async fn release(&self, name: &str) {
        let patch = json!({ "metadata": { "finalizers": null } });
        self.vmis().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
}
