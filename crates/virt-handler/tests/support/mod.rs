//! A server with the kinds of virtual machines, two hollow nodes and their handlers, under a paused clock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::vmi::VirtualMachineInstance;
use apiserver::{ApiServer, Clock, Identity, Place};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use manager::caches::Caches;
use manager::context::{Chance, Context, Now};
use manager::events::Recorder;
use manager::queue::QueueMetrics;
use manager::stopping::Stopping;
use node::hollow::HollowNodes;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::util::MapRequest;
use virt_handler::hollow::{Behaviour, HollowHandlers};

/// Nodes that have a handler, and one that has none.
pub(crate) const NODES: [&str; 2] = ["one", "two"];
pub(crate) const OTHER: &str = "other";

pub(crate) struct Cluster {
    pub(crate) client: Client,
    /// What the handlers have written, as method and path.
    writes: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        Self::start_with(behaviour, node::hollow::Behaviour::default()).await
    }

    pub(crate) async fn start_with(behaviour: Behaviour, of_nodes: node::hollow::Behaviour) -> Self {
        let started = Instant::now();
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let server = ApiServer::builder(Place::Memory).clock(clock).seed(1).start().await.unwrap();
        let now: Now = Arc::new(move || Timestamp::UNIX_EPOCH + started.elapsed());
        let client = Client::new(server.for_identity(Identity::admin()), "default");
        for definition in api::crd::all().unwrap() {
            if definition.spec.names.kind == "VirtualMachineInstance" {
                let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
                definitions.create(&PostParams::default(), &definition).await.unwrap();
            }
        }
        sleep(Duration::from_secs(1)).await;
        let nodes = context(client.clone(), now.clone());
        let all = NODES.into_iter().chain([OTHER]).map(str::to_owned);
        let hollow = HollowNodes::new(&nodes, all, of_nodes);
        tokio::spawn(async move { hollow.run().await });
        watch(&nodes);
        let writes = Arc::<Mutex<Vec<String>>>::default();
        let heard = writes.clone();
        let tapped = MapRequest::new(server.for_identity(Identity::admin()), move |request: http::Request<_>| {
            if request.method() != http::Method::GET {
                heard.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
            }
            request
        });
        let handlers = context(Client::new(tapped, "default"), now);
        let hollow = HollowHandlers::new(&handlers, NODES.map(str::to_owned), behaviour);
        tokio::spawn(async move { hollow.run().await });
        watch(&handlers);
        sleep(Duration::from_secs(1)).await;
        Self { client, writes }
    }

    /// What the handlers have written since the last time.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut *self.writes.lock().unwrap())
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
            "metadata": { "name": name, "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"] },
            "spec": {
                "domain": { "devices": { "interfaces": [{ "name": "default", "masquerade": {} }] } },
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
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        let conditions = json!([{ "type": "Ready", "status": "False", "reason": "GuestNotRunning" }]);
        let status = json!({ "status": { "phase": phase, "nodeName": node, "conditions": conditions } });
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

fn context(client: Client, now: Now) -> Context {
    let (recorder, writer) = Recorder::new(client.clone(), "test", now.clone());
    tokio::spawn(writer);
    let chance = Chance::seeded(1);
    let caches = Caches::new(client.clone(), chance.clone());
    Context { client, caches, recorder, now, queues: QueueMetrics::default(), chance, stopping: Stopping::default() }
}

fn watch(context: &Context) {
    let caches = context.caches.clone();
    tokio::spawn(async move { caches.run().await });
}

fn merge(target: &mut Value, change: &Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (key, value) in change {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, change) => *target = change.clone(),
    }
}

pub(crate) async fn seconds(count: u64) {
    sleep(Duration::from_secs(count)).await;
}
