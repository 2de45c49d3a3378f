//! An API server, a machine that pretends, and an agent that can be killed.

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use manager::context::Now;
use node::agent::{Agent, MachineImage, Settings};
use serde_json::{Value, json};
use storage::pull::Registries;
use tempfile::TempDir;
use testkit::world::{self, World};
use tokio::task::JoinHandle;
use virt_server::Component;

use crate::fake::FakeHost;
pub(crate) use crate::pods::{condition, is_ready, phase, status, waiting};

pub(crate) const NODE: &str = "here";

pub(crate) struct Bench {
    pub(crate) client: Client,
    /// The agent's.
    own: Client,
    pub(crate) machine: FakeHost,
    pub(crate) folder: TempDir,
    pub(crate) now: Now,
    tasks: Vec<JoinHandle<()>>,
}

/// Whatever a failed test has left mounted goes with it.
impl Drop for Bench {
    fn drop(&mut self) {
        self.kill();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let root = self.folder.path().to_string_lossy().into_owned();
        let mounted = table.lines().filter_map(|line| line.split(' ').nth(4)).filter(|path| path.starts_with(&root));
        for path in mounted.collect::<Vec<_>>().into_iter().rev() {
            let _ = std::process::Command::new("umount").arg("-l").arg(path).status();
        }
    }
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let world = World::start().await;
        let (client, own) = (world.client(), world.client_of(&Component::Node(NODE.to_owned())));
        let now = world.now;
        let machine = FakeHost::new(now.clone());
        let mut bench = Self { client, own, machine, folder: tempfile::tempdir().unwrap(), now, tasks: Vec::new() };
        bench.start();
        bench
    }

    /// Starts an agent, the first or the next one.
    pub(crate) fn start(&mut self) -> Agent {
        let (context, writer) = world::context(self.own.clone(), self.now.clone(), "test");
        let agent = Agent::new(&context, self.settings());
        let running = agent.clone();
        let run = tokio::spawn(async move { running.run().await });
        self.tasks.extend([writer, run, world::watch(&context)]);
        agent
    }

    /// Ends the agent in the middle of whatever it does.
    pub(crate) fn kill(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    fn settings(&self) -> Settings {
        Settings {
            node: NODE.to_owned(),
            root: self.root().to_owned(),
            logs: self.root().join("logs"),
            runtime: Arc::new(self.machine.clone()),
            images: Arc::new(self.machine.clone()),
            registries: Registries::default(),
            network: Some(Arc::new(self.machine.clone())),
            identities: Some(Arc::new(self.machine.clone())),
            machine: MachineImage {
                name: "orlop.dev/machine".to_owned(),
                files: vec![("/proc/self/exe".into(), "/usr/bin/orlop".into())],
                users: 900_000..900_010,
                is_for: |pod| pod.labels().contains_key("kubevirt.io"),
            },
            resolv_conf: self.root().join("resolv.conf"),
            reserved_memory: 0,
            nodes: std::num::NonZeroU32::MIN,
            addresses: vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()],
            api_server: None,
            labels: [("orlop.dev/test".to_owned(), "true".to_owned())].into(),
        }
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) -> Pod {
        self.create_with(&json!({ "name": name }), spec).await
    }

    pub(crate) async fn create_with(&self, metadata: &Value, mut spec: Value) -> Pod {
        spec["nodeName"] = json!(NODE);
        let pod = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap()
    }

    pub(crate) async fn get(&self, name: &str) -> Pod {
        self.pods().get(name).await.unwrap()
    }

    /// Waits for something of a pod.
    pub(crate) async fn until(&self, name: &str, what: impl Fn(&Pod) -> bool) -> Pod {
        world::until(name, async || Some(self.get(name).await).filter(|pod| what(pod))).await
    }

    pub(crate) async fn gone(&self, name: &str) {
        world::until("its end", async || self.pods().get_opt(name).await.unwrap().is_none().then_some(())).await;
    }

    pub(crate) async fn events(&self) -> Vec<String> {
        let api: Api<Event> = Api::default_namespaced(self.client.clone());
        let events = api.list(&ListParams::default()).await.unwrap().items;
        events.into_iter().map(|event| event.reason.unwrap_or_default()).collect()
    }
}

pub(crate) fn simple() -> Value {
    json!({ "containers": [{ "name": "c", "image": "image:1" }] })
}
