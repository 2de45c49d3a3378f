//! Observes, decides and acts: the part of the node controller that speaks to the server.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod, Taint};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Changed, Key};
use manager::context::{Context, Now};
use manager::events::{Kind, Recorder};
use manager::kit::Page;
use manager::queue::Queue;
use manager::worker::{About, Next, ObjectName, work};
use manager::writing::unless_gone;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::health::Health;
use super::zones::{Member, Permission, Zones};
use super::{Options, Plan, decide, ready};
use crate::indexes;
use crate::pods::is_ready;
use crate::reading::find;
use crate::writing::{patch_pod_status, pod_condition};
use manager::writing::whole_second;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "node-lifecycle-controller";
/// As events name it.
const COMPONENT: &str = "node-controller";
const LEASES: &str = "kube-node-lease";
/// As in Kubernetes.
const WORKERS: usize = 8;

/// The controller. Clones share it.
#[derive(Clone)]
pub struct NodeLifecycleController {
    client: Client,
    options: Options,
    nodes: Cache<Node>,
    leases: Cache<Lease>,
    /// The same past the cache. Kubernetes gives this controller no right to read them itself.
    fresh_leases: Api<Lease>,
    pods: Cache<Pod>,
    queue: Queue<Work>,
    recorder: Recorder,
    history: Arc<Mutex<HealthHistory>>,
    /// There are nodes to be watched over.
    appeared: Arc<Notify>,
    now: Now,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    Node(String),
    Pod(Key),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => write!(f, "the node {name}"),
            Self::Pod(key) => write!(f, "the pod {key}"),
        }
    }
}

impl About for Work {
    fn about(&self) -> ObjectName<'_> {
        match self {
            Self::Node(name) => name.about(),
            Self::Pod(key) => key.about(),
        }
    }
}

/// What is remembered between two looks.
#[derive(Default)]
struct HealthHistory {
    health: BTreeMap<String, Health>,
    zones: Zones,
    /// The version on top of which something was written: until the cache shows another there is nothing to do.
    written: BTreeMap<Work, String>,
}

impl NodeLifecycleController {
    /// A controller; it reads from the context's caches.
    #[must_use]
    pub fn new(context: &Context, options: Options) -> Self {
        Self {
            client: context.client.clone(),
            options,
            nodes: context.caches.of(&[]),
            leases: context.caches.with_fields(&format!("metadata.namespace={LEASES}"), &[]),
            fresh_leases: Api::namespaced(context.caches.reader().clone(), LEASES),
            pods: indexes::pods(&context.caches),
            queue: context.queue(NAME),
            recorder: context.recorder.of(COMPONENT),
            history: Arc::default(),
            appeared: Arc::default(),
            now: context.now.clone(),
        }
    }

    fn history(&self) -> MutexGuard<'_, HealthHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it shows of itself.
    pub(crate) fn page(&self) -> Page<Work> {
        let history = self.history.clone();
        let remembered = move || {
            let history = history.lock().unwrap_or_else(PoisonError::into_inner);
            let written = history.written.iter();
            let healths = history.health.iter().map(|(node, health)| format!("the node {node}: {health:?}"));
            healths
                .chain(written.map(|(work, version)| format!("{work}: written on top of version {version}")))
                .collect()
        };
        let page = Page::new(&self.queue).cache(&self.nodes).cache(&self.leases).cache(&self.pods);
        page.remembers(remembered)
    }

    /// Runs until the queue is closed.
    pub async fn run(&self) {
        self.nodes.synced().await;
        self.leases.synced().await;
        self.pods.synced().await;
        let work = work(NAME, &self.queue, WORKERS, |key: Work| {
            let controller = self.clone();
            async move { controller.reconcile(&key).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.feed_leases() => {}
            () = self.feed_nodes() => {}
            () = self.feed_pods() => {}
            () = self.monitor() => {}
        }
    }

    async fn feed_leases(&self) {
        let mut changes = self.leases.subscribe();
        loop {
            let change = changes.next().await;
            if let Some(node) = self.node(&change.key.name) {
                self.see(&node);
            }
        }
    }

    async fn feed_nodes(&self) {
        let mut changes = self.nodes.subscribe();
        loop {
            let Changed { key, old, new } = changes.next().await;
            let name = &key.name;
            let uid = |node: &Option<Arc<Node>>| node.as_ref().and_then(|node| node.uid());
            let replaced = uid(&old) != uid(&new);
            if let Some(node) = old.filter(|_| replaced) {
                self.tell(&node, "RemovingNode", &format!("Node {name} event: Removing Node {name} from Controller"));
            }
            if let Some(node) = &new {
                if replaced {
                    self.tell(
                        node,
                        "RegisteredNode",
                        &format!("Node {name} event: Registered Node {name} in Controller"),
                    );
                    self.appeared.notify_one();
                }
                self.see(node);
                self.queue.add(Work::Node(key.name));
            } else {
                let mut history = self.history();
                history.health.remove(name);
                history.written.remove(&Work::Node(key.name));
            }
        }
    }

    /// A pod that seems ready on a node of which nothing is known.
    async fn feed_pods(&self) {
        let mut changes = self.pods.subscribe();
        loop {
            let change = changes.next().await;
            match change.new {
                None => drop(self.history().written.remove(&Work::Pod(change.key))),
                Some(pod) if is_ready(&pod) && self.is_lost(&pod) => self.queue.add(Work::Pod(change.key)),
                Some(_) => {}
            }
        }
    }

    /// Looks at all nodes, for as long as there are any.
    async fn monitor(&self) {
        loop {
            let appeared = self.appeared.notified();
            if self.history().health.is_empty() {
                appeared.await;
            }
            sleep(self.look()).await;
        }
    }

    /// Tells when to look again.
    fn look(&self) -> Duration {
        let now = Instant::now();
        let nodes = self.nodes.all();
        let mut history = self.history();
        let silent = |history: &HealthHistory, node: &Node| is_silent(history, &node.name_any(), now);
        let members: Vec<Member> = nodes.iter().map(|node| Member::of(node, silent(&history, node))).collect();
        let looked = history.zones.look(&members, &self.options, now);
        if looked.recovered {
            history.health.values_mut().for_each(|health| health.pardon(&self.options, now));
        }
        for node in &nodes {
            let (name, silent) = (node.name_any(), silent(&history, node));
            if silent || decide(node, silent, history.zones.permission(&name), (self.now)()) != Plan::Nothing {
                self.queue.add(Work::Node(name));
            }
        }
        looked.next.map_or(self.options.monitor_period, |next| next.min(self.options.monitor_period))
    }

    fn see(&self, node: &Node) {
        let name = node.name_any();
        let lease = self.leases.get(&Key { namespace: LEASES.to_owned(), name: name.clone() });
        let now = (Instant::now(), (self.now)());
        let mut history = self.history();
        let known = history.health.remove(&name);
        history.health.insert(name, Health::see(known, node, lease.as_deref(), &self.options, now));
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&Key { namespace: String::new(), name: name.to_owned() })
    }

    /// Whether a pod is on a node that fell silent, and the server knows.
    fn is_lost(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).and_then(|name| self.node(name));
        node.is_some_and(|node| {
            ready(&node) == Some("Unknown") && is_silent(&self.history(), &node.name_any(), Instant::now())
        })
    }

    fn tell(&self, node: &Node, reason: &str, message: &str) {
        self.recorder.record(node, Kind::Normal, reason, message);
    }

    async fn reconcile(&self, work: &Work) -> Result<Next, kube::Error> {
        match work {
            Work::Node(name) => {
                let Some(node) = self.node(name) else { return Ok(Next::Wait) };
                self.reconcile_node(work, &node).await?;
                for pod in self.pods.find("node", name).iter().filter(|pod| is_ready(pod) && self.is_lost(pod)) {
                    self.queue.add(Work::Pod(Key::of(&**pod)));
                }
            }
            Work::Pod(key) => {
                let Some(pod) = self.pods.get(key) else { return Ok(Next::Wait) };
                self.reconcile_pod(work, &pod).await?;
            }
        }
        Ok(Next::Wait)
    }

    async fn reconcile_node(&self, work: &Work, node: &Node) -> Result<(), kube::Error> {
        let name = node.name_any();
        let (silent, permission) = {
            let history = self.history();
            if history.is_written(work, node.resource_version().as_ref()) {
                return Ok(());
            }
            (is_silent(&history, &name, Instant::now()), history.zones.permission(&name))
        };
        match decide(node, silent, permission, (self.now)()) {
            Plan::Nothing => Ok(()),
            Plan::Conditions(conditions) => self.declare_silent(work, node, &conditions).await,
            Plan::Taints(taints) => self.taint(work, node, &taints, permission).await,
        }
    }

    async fn declare_silent(&self, work: &Work, node: &Node, conditions: &[NodeCondition]) -> Result<(), kube::Error> {
        let name = node.name_any();
        // If our watch is cut, it is us who hear nothing.
        let lease = find(&self.fresh_leases, &name).await?;
        if let Some(health) = self.history().health.get_mut(&name)
            && health.is_news(lease.as_ref())
        {
            health.pardon(&self.options, Instant::now());
            return Ok(());
        }
        let was_ready = ready(node) == Some("True");
        let patch = on_top_of(node, &json!({ "status": { "conditions": conditions } }));
        let api: Api<Node> = Api::all(self.client.clone());
        unless_gone(api.patch_status(&name, &PatchParams::default(), &Patch::Strategic(&patch)).await)?;
        self.history().wrote(work, node.resource_version());
        tracing::info!(node = name, "a node stopped responding");
        if was_ready {
            self.tell(node, "NodeNotReady", &format!("Node {name} status is now: NodeNotReady"));
        }
        Ok(())
    }

    async fn taint(
        &self,
        work: &Work,
        node: &Node,
        taints: &[Taint],
        permission: Permission,
    ) -> Result<(), kube::Error> {
        let name = node.name_any();
        let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
        let patch = on_top_of(node, &json!({ "spec": { "taints": taints } }));
        let api: Api<Node> = Api::all(self.client.clone());
        unless_gone(api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await)?;
        self.history().wrote(work, node.resource_version());
        tracing::info!(node = name, ?permission, "the taints of a node changed");
        Ok(())
    }

    /// Nobody knows how the pod is, so that nobody should be sent to it. Its own reason stays, as in Kubernetes.
    async fn reconcile_pod(&self, work: &Work, pod: &Pod) -> Result<(), kube::Error> {
        let Some(condition) = pod_condition(pod, "Ready").filter(|_| is_ready(pod) && self.is_lost(pod)) else {
            return Ok(());
        };
        if self.history().is_written(work, pod.resource_version().as_ref()) {
            return Ok(());
        }
        let mut condition = condition.clone();
        condition.status = "False".to_owned();
        condition.last_transition_time = Some(whole_second((self.now)()));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        patch_pod_status(&api, pod, &json!({ "conditions": [condition] })).await?;
        self.history().wrote(work, pod.resource_version());
        self.recorder.record(pod, Kind::Warning, "NodeNotReady", "Node is not ready");
        Ok(())
    }
}

impl HealthHistory {
    fn is_written(&self, work: &Work, version: Option<&String>) -> bool {
        version.is_some() && self.written.get(work) == version
    }

    fn wrote(&mut self, work: &Work, version: Option<String>) {
        if let Some(version) = version {
            self.written.insert(work.clone(), version);
        }
    }
}

fn is_silent(history: &HealthHistory, node: &str, now: Instant) -> bool {
    history.health.get(node).is_some_and(|health| health.is_silent(now))
}

/// A patch that holds only if nobody wrote meanwhile: neither a sign of life nor another's taint is lost.
fn on_top_of(node: &Node, patch: &Value) -> Value {
    let mut patch = patch.clone();
    patch["metadata"] = json!({ "uid": node.uid(), "resourceVersion": node.resource_version() });
    patch
}
