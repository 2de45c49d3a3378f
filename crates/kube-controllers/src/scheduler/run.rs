//! Observes, decides and acts: the part of the scheduler that speaks to the server.
//!
//! One task decides, one pod after the other, on a picture of the cluster that it alone changes; bindings are written
//! beside it, many at a time. A pod counts as placed from the decision on, and is taken back if its binding fails.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use k8s_openapi::api::core::v1::{Binding, Namespace, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Changed, Keeping, Key, controller_of};
use manager::context::{Context, Now};
use manager::errors::{chain, is_race};
use manager::events::{Kind, Recorder};
use serde_json::json;
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep_until};

use super::{Cluster, Outcome, PodInfo, Queue};

/// The scheduler that pods name unless they name another.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Bindings on their way at the same time; more decisions wait.
const MOST_BINDINGS: usize = 64;

/// The scheduler.
pub struct Scheduler {
    client: Client,
    name: String,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    namespaces: Cache<Namespace>,
    recorder: Recorder,
    now: Now,
    cluster: Cluster,
    queue: Queue,
    /// Pods that wait or are being placed, by UID.
    pending: BTreeMap<String, Arc<Pod>>,
    started: Instant,
}

/// What became of a binding.
struct Bound {
    uid: String,
    /// None if it was gone before it was bound.
    pod: Option<Arc<Pod>>,
    node: String,
    result: Result<(), kube::Error>,
}

impl Scheduler {
    /// A scheduler for pods that name it; it reads from the context's caches.
    #[must_use]
    pub fn new(context: &Context, name: &str) -> Self {
        Self {
            client: context.client.clone(),
            name: name.to_owned(),
            // Read once, when they come.
            pods: context.caches.kept("", Keeping::slim_and_packed(), &[]),
            nodes: context.caches.of(&[]),
            namespaces: context.caches.of(&[]),
            recorder: context.recorder.of(name),
            now: context.now.clone(),
            cluster: Cluster::default(),
            queue: Queue::default(),
            pending: BTreeMap::new(),
            started: Instant::now(),
        }
    }

    /// Runs for ever.
    pub async fn run(mut self) {
        self.nodes.synced().await;
        self.namespaces.synced().await;
        self.pods.synced().await;
        let (mut pods, mut nodes, mut namespaces) =
            (self.pods.subscribe(), self.nodes.subscribe(), self.namespaces.subscribe());
        let mut bindings = FuturesUnordered::new();
        loop {
            // A backlog is worked off without a wait; others must have their turn all the same.
            consume_budget().await;
            let (started, now) = (self.started, self.started.elapsed());
            let wake = self.queue.next_wakeup(now);
            let free = bindings.len() < MOST_BINDINGS;
            tokio::select! {
                biased;
                // What is known first, then what was done, then what to do next.
                change = nodes.next() => self.node_changed(change),
                change = namespaces.next() => self.namespace_changed(change),
                change = pods.next() => self.pod_changed(change),
                Some(bound) = bindings.next(), if !bindings.is_empty() => self.bound(bound),
                () = due(wake, started, now), if free => {
                    if let Some(pod) = self.queue.pop(self.started.elapsed())
                        && let Some((uid, node)) = self.place(&pod).await
                    {
                        bindings.push(bind(self.client.clone(), self.pending.get(&uid).cloned(), uid, node));
                    }
                }
            }
        }
    }

    fn node_changed(&mut self, change: Changed<Node>) {
        let event = match change.new {
            Some(node) => self.cluster.set_node(&node),
            None => self.cluster.remove_node(&change.key.name),
        };
        self.tell(event);
    }

    fn namespace_changed(&mut self, change: Changed<Namespace>) {
        let event = match change.new {
            Some(namespace) => self.cluster.set_namespace(&namespace),
            None => self.cluster.remove_namespace(&change.key.name),
        };
        self.tell(event);
    }

    fn pod_changed(&mut self, change: Changed<Pod>) {
        let old = change.old.and_then(|pod| pod.uid());
        let new = change.new.as_ref().and_then(|pod| pod.uid());
        if let Some(gone) = old.filter(|old| new.as_ref() != Some(old)) {
            self.pending.remove(&gone);
            self.queue.remove(&gone);
            let event = self.cluster.remove_pod(&gone);
            self.tell(event);
        }
        let (Some(pod), Some(uid)) = (change.new, new) else { return };
        if is_placed(&pod) {
            self.pending.remove(&uid);
            self.queue.remove(&uid);
            let event = self.cluster.set_pod(&pod);
            self.tell(event);
        } else if self.is_ours(&pod) {
            self.queue.push(Arc::new(PodInfo::new(&pod)));
            self.pending.insert(uid, pod);
        }
    }

    fn tell(&mut self, event: Option<super::Event>) {
        if let Some(event) = event {
            self.queue.event(event);
        }
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let spec = pod.spec.as_ref();
        let named = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(DEFAULT_SCHEDULER);
        named == self.name && pod.metadata.deletion_timestamp.is_none()
    }

    /// Decides about a pod. Gives the node that it is to be bound to.
    async fn place(&mut self, info: &Arc<PodInfo>) -> Option<(String, String)> {
        let uid = info.uid.clone();
        match self.cluster.schedule(info) {
            Outcome::Bind { node } => {
                let event = self.cluster.assume(info, &node);
                self.tell(event);
                Some((uid, node))
            }
            Outcome::Unschedulable { message, cured_by } => {
                self.queue.failed(&uid, self.started.elapsed(), cured_by);
                if let Some(pod) = self.pending.get(&uid).cloned() {
                    self.recorder.record(&*pod, Kind::Warning, "FailedScheduling", message.clone());
                    self.explain(&pod, &message).await;
                }
                None
            }
        }
    }

    /// Writes why a pod is not placed, if it does not say so already.
    async fn explain(&self, pod: &Pod, message: &str) {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let told = conditions.iter().any(|one| one.type_ == "PodScheduled" && one.message.as_deref() == Some(message));
        if told {
            return;
        }
        let mut condition = json!({
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": Time((self.now)()),
        });
        if let Some(generation) = pod.metadata.generation {
            condition["observedGeneration"] = generation.into();
        }
        let patch = json!({ "metadata": { "uid": pod.uid() }, "status": { "conditions": [condition] } });
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        // Conditions are merged by their type.
        if let Err(error) = api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(&patch)).await
        {
            tracing::debug!(pod = pod.name_any(), error = chain(&error), "cannot write a condition");
        }
    }

    fn bound(&mut self, Bound { uid, pod, node, result }: Bound) {
        match result {
            Ok(()) => {
                // Not asked of those that wait: the cache may have shown it as placed before the answer came.
                if let Some(pod) = pod {
                    let key = Key::of(&*pod);
                    let owner = controller_of(&*pod).pop().unwrap_or_default();
                    tracing::info!(namespace = key.namespace, name = key.name, uid, owner, node, "bound the pod");
                    let message = format!("Successfully assigned {}/{} to {node}", key.namespace, key.name);
                    self.recorder.record(&*pod, Kind::Normal, "Scheduled", message);
                }
            }
            Err(error) => {
                let name = pod.map(|pod| pod.name_any()).unwrap_or_default();
                // Somebody was faster, or it went meanwhile: the cache tells.
                if is_race(&error) {
                    tracing::debug!(name, uid, node, error = chain(&error), "cannot bind the pod");
                } else {
                    tracing::warn!(name, uid, node, error = chain(&error), "cannot bind the pod");
                }
                let event = self.cluster.forget(&uid);
                self.tell(event);
                self.queue.retry(&uid, self.started.elapsed());
            }
        }
    }
}

/// Resolves when a pod is due: at once if one is, because a timer takes up to a millisecond even for what is over.
async fn due(wake: Option<Duration>, started: Instant, now: Duration) {
    match wake {
        Some(at) if at <= now => {}
        Some(at) => sleep_until(started + at).await,
        None => pending().await,
    }
}

fn is_placed(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|node| !node.is_empty())
}

async fn bind(client: Client, pod: Option<Arc<Pod>>, uid: String, node: String) -> Bound {
    let Some(pod) = pod else { return Bound { uid, pod, node, result: Ok(()) } };
    let metadata = ObjectMeta { name: Some(pod.name_any()), uid: Some(uid.clone()), ..ObjectMeta::default() };
    let target =
        ObjectReference { kind: Some("Node".to_owned()), name: Some(node.clone()), ..ObjectReference::default() };
    let binding = Binding { metadata, target };
    let api: Api<Pod> = Api::namespaced(client, &pod.namespace().unwrap_or_default());
    let answer: Result<serde_json::Value, _> =
        api.create_subresource("binding", &pod.name_any(), &PostParams::default(), &binding).await;
    Bound { uid, pod: Some(pod), node, result: answer.map(drop) }
}
