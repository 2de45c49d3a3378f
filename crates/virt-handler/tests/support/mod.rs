//! A server with the kinds of virtual machines, two hollow nodes and their handlers, under a paused clock.

use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use json_patch::merge;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use node::hollow::HollowNodes;
use serde_json::{Value, json};
pub(crate) use testkit::world::seconds;
use testkit::world::{Notes, World, watch};
use tokio::time::sleep;
use virt_handler::hollow::{Behaviour, HollowHandlers};
use virt_server::Component;

/// Nodes that have a handler, and one that has none.
pub(crate) const NODES: [&str; 2] = ["one", "two"];
pub(crate) const OTHER: &str = "other";

pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// What the handlers have asked for.
    notes: Notes,
}

impl Cluster {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        Self::start_with(behaviour, node::hollow::Behaviour::default()).await
    }

    pub(crate) async fn start_with(behaviour: Behaviour, of_nodes: node::hollow::Behaviour) -> Self {
        let world = World::start().await;
        world.define(&["VirtualMachineInstance"]).await;
        seconds(1).await;
        let nodes = world.nodes();
        let all = NODES.into_iter().chain([OTHER]).map(str::to_owned);
        let hollow = HollowNodes::new(&nodes, all, of_nodes);
        tokio::spawn(async move { hollow.run().await });
        watch(&nodes);
        let (noted, notes) = world.noted(&Component::HollowHandlers);
        let handlers = world.context(noted);
        let hollow = HollowHandlers::new(&handlers, NODES.map(str::to_owned), behaviour);
        tokio::spawn(async move { hollow.run().await });
        watch(&handlers);
        seconds(1).await;
        Self { client: world.client(), notes }
    }

    /// What the handlers have written since the last time.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.notes.writes()
    }

    pub(crate) fn vmis(&self) -> Api<VirtualMachineInstance> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// Makes an instance in some phase, with a launcher that runs, as virt-controller hands it over.
    pub(crate) async fn instance(&self, name: &str, phase: &str, node: &str, change: &Value) {
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
                    "devices": { "interfaces": [{ "name": "default", "masquerade": {} }] },
                    "memory": { "guest": "64Mi" },
                },
                "networks": [{ "name": "default", "pod": {} }],
            },
        });
        merge(&mut vmi, change);
        let vmi: VirtualMachineInstance = serde_json::from_value(vmi).unwrap();
        let made = self.vmis().create(&PostParams::default(), &vmi).await.unwrap();
        let owner = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "controller": true,
            "name": name, "uid": made.metadata.uid,
        });
        let pod = json!({
            "metadata": { "name": format!("launcher-{name}"), "labels": { "kubevirt.io": "virt-launcher" }, "ownerReferences": [owner] },
            "spec": { "nodeName": node, "containers": [{ "name": "compute", "image": "i" }] },
        });
        let pod = self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        let conditions = json!([{ "type": "Ready", "status": "False", "reason": "GuestNotRunning" }]);
        let pods = json!({ pod.metadata.uid.unwrap(): node });
        let status = json!({
            "status": { "phase": phase, "nodeName": node, "conditions": conditions, "activePods": pods },
        });
        self.vmis().patch(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    pub(crate) async fn vmi(&self, name: &str) -> VirtualMachineInstance {
        self.vmis().get(name).await.unwrap()
    }

    pub(crate) async fn phase(&self, name: &str) -> String {
        self.vmi(name).await.phase().to_string()
    }

    pub(crate) async fn pod_phase(&self, name: &str) -> String {
        let pod = self.pods().get(&format!("launcher-{name}")).await.unwrap();
        pod.status.and_then(|status| status.phase).unwrap_or_default()
    }
}
