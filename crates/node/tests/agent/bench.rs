//! An API server, a machine that pretends, and an agent that can be killed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apiserver::{ApiServer, Clock, Identity, Place};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use manager::caches::Caches;
use manager::context::{Chance, Context, Now};
use manager::events::Recorder;
use manager::queue::QueueMetrics;
use manager::stopping::Stopping;
use node::agent::{Agent, MachineImage, Settings};
use serde_json::{Value, json};
use storage::pull::Registries;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::fake::Machine;

pub(crate) const NODE: &str = "here";

pub(crate) struct Bench {
    pub(crate) client: Client,
    pub(crate) machine: Machine,
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
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let started = Instant::now();
        let server = ApiServer::builder(Place::Memory).clock(clock).seed(1).start().await.unwrap();
        let client = Client::new(server.for_identity(Identity::admin()), "default");
        let now: Now = Arc::new(move || Timestamp::UNIX_EPOCH + started.elapsed());
        let machine = Machine::new(now.clone());
        let mut bench = Self { client, machine, folder: tempfile::tempdir().unwrap(), now, tasks: Vec::new() };
        bench.start();
        bench
    }

    /// Starts an agent, the first or the next one.
    pub(crate) fn start(&mut self) -> Agent {
        let (recorder, writer) = Recorder::new(self.client.clone(), "test", self.now.clone());
        let chance = Chance::seeded(1);
        let caches = Caches::new(self.client.clone(), chance.clone());
        let context = Context {
            client: self.client.clone(),
            caches: caches.clone(),
            recorder,
            now: self.now.clone(),
            queues: QueueMetrics::default(),
            chance,
            stopping: Stopping::default(),
        };
        let agent = Agent::new(&context, self.settings());
        let running = agent.clone();
        self.tasks.push(tokio::spawn(writer));
        self.tasks.push(tokio::spawn(async move { running.run().await }));
        self.tasks.push(tokio::spawn(async move { caches.run().await }));
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
            machine: MachineImage {
                name: "orlop.dev/machine".to_owned(),
                files: vec![("/proc/self/exe".into(), "/usr/bin/orlop".into())],
                users: 900_000..900_010,
            },
            resolv_conf: "/etc/resolv.conf".into(),
            reserved_memory: 0,
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

    /// Waits for something of a pod, at most so long.
    pub(crate) async fn until(&self, name: &str, what: impl Fn(&Pod) -> bool) -> Pod {
        let mut last = None;
        for _ in 0..400 {
            let pod = self.get(name).await;
            if what(&pod) {
                return pod;
            }
            last = pod.status;
            sleep(Duration::from_millis(50)).await;
        }
        panic!("it never came to that: {}", serde_json::to_string_pretty(&last).unwrap());
    }

    pub(crate) async fn gone(&self, name: &str) {
        for _ in 0..2000 {
            if self.pods().get_opt(name).await.unwrap().is_none() {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        let pod = serde_json::to_string_pretty(&self.get(name).await).unwrap();
        panic!("{name} is still there: {:?} {pod}", self.machine.log());
    }

    pub(crate) async fn events(&self) -> Vec<String> {
        let api: Api<Event> = Api::default_namespaced(self.client.clone());
        let events = api.list(&ListParams::default()).await.unwrap().items;
        events.into_iter().map(|event| event.reason.unwrap_or_default()).collect()
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn condition(pod: &Pod, kind: &str) -> String {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut of_kind = conditions.into_iter().filter(|one| one.type_ == kind);
    of_kind.next().map(|one| one.status.clone()).unwrap_or_default()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == "True"
}

pub(crate) fn status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists = [status.container_statuses.as_ref(), status.init_container_statuses.as_ref()];
    lists.into_iter().flatten().flatten().find(|one| one.name == container)
}

pub(crate) fn waiting(pod: &Pod, container: &str) -> String {
    let state = status(pod, container).and_then(|status| status.state.as_ref());
    state.and_then(|state| state.waiting.as_ref()).and_then(|waiting| waiting.reason.clone()).unwrap_or_default()
}

pub(crate) fn simple() -> Value {
    json!({ "containers": [{ "name": "c", "image": "image:1" }] })
}
