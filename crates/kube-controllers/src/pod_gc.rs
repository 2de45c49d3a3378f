//! Pods that nobody else will clear away: those of nodes that are gone, those that ended and are too many, those that were
//! deleted and whom no node will ever let go.
//!
//! ```text
//! Pod ──> decide ──> collect: say that it failed, then delete it without grace
//! Node that pods name and nobody knows ──40 s──> ask the server ──404──> collect its pods
//! pods that ended ──20 s──> count ──> collect the oldest
//! ```
//! Watches: Pod, Node. Owns: nothing. Emits: at most one status patch and one deletion per pod.
//! Absent on purpose: a look at everything every 20 seconds; only what changed is looked at, and what time changes.
//! A pod that has no grace left and is still there is held by a finalizer: it is not asked for again.

mod decide;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::{Context, Now};
use manager::kit::Page;
use manager::queue::Queue;
use manager::worker::{About, Next, ObjectName, work};
use manager::writing::delete;
use serde_json::json;
use tokio::time::Instant;

use crate::indexes;
use crate::pods::is_finished;
use crate::writing::{disruption_target, patch_pod_status};
use decide::{Cause, Steps, cause, is_out_of_service, steps, surplus};

/// As the flag `--controllers` knows it.
pub const NAME: &str = "pod-garbage-collector-controller";
/// How long pods that ended may gather before they are counted again.
const COUNTING: Duration = Duration::from_secs(20);
/// How long a node may be missing from the cache before the server is asked.
const QUARANTINE: Duration = Duration::from_secs(40);
/// Pods that are cleared away at the same time.
const WORKERS: usize = 8;

/// The controller. Clones share it.
#[derive(Clone)]
pub struct PodGcController {
    client: Client,
    /// More pods that ended are too many; none is no limit.
    threshold: usize,
    nodes: Cache<Node>,
    pods: Cache<Pod>,
    queue: Queue<Work>,
    /// Nodes that pods name and the cache does not know, and since when.
    missing: Arc<Mutex<BTreeMap<String, Instant>>>,
    now: Now,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    Pod(Key),
    Missing(String),
    Ended,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "the pod {key}"),
            Self::Missing(node) => write!(f, "the pods of the node {node}, which is missing"),
            Self::Ended => write!(f, "the pods that have ended"),
        }
    }
}

impl About for Work {
    fn about(&self) -> ObjectName<'_> {
        match self {
            Self::Pod(key) => key.about(),
            Self::Missing(node) => node.about(),
            Self::Ended => ObjectName::default(),
        }
    }
}

impl PodGcController {
    /// A controller that lets so many pods be that ended, all if it is zero; it reads from the context's caches.
    #[must_use]
    pub fn new(context: &Context, threshold: usize) -> Self {
        Self {
            client: context.client.clone(),
            threshold,
            nodes: context.caches.of(&[]),
            pods: indexes::pods(&context.caches),
            queue: context.queue(NAME),
            missing: Arc::default(),
            now: context.now.clone(),
        }
    }

    fn missing(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it shows of itself.
    pub(crate) fn page(&self) -> Page<Work> {
        let missing = self.missing.clone();
        let remembered = move || {
            let all = missing.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().map(|(node, since)| format!("{node}: missing for {} s", since.elapsed().as_secs())).collect()
        };
        Page::new(&self.queue).cache(&self.nodes).cache(&self.pods).remembers(remembered)
    }

    /// Runs until the queue is closed.
    pub async fn run(&self) {
        self.nodes.synced().await;
        self.pods.synced().await;
        let work = work(NAME, &self.queue, WORKERS, |key: Work| {
            let controller = self.clone();
            async move { controller.reconcile(&key).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.feed_nodes() => {}
            () = self.feed_pods() => {}
        }
    }

    async fn feed_nodes(&self) {
        let mut changes = self.nodes.subscribe();
        loop {
            let change = changes.next().await;
            match change.new {
                None => self.queue.add(Work::Missing(change.key.name)),
                Some(node) if is_out_of_service(&node) => {
                    let pods = self.pods.find("node", &change.key.name);
                    pods.iter().for_each(|pod| self.queue.add(Work::Pod(Key::of(&**pod))));
                }
                Some(_) => {
                    self.missing().remove(&change.key.name);
                }
            }
        }
    }

    async fn feed_pods(&self) {
        let mut changes = self.pods.subscribe();
        loop {
            let change = changes.next().await;
            let Some(pod) = change.new else { continue };
            let has_ended = |pod: &Arc<Pod>| is_finished(pod);
            if self.threshold > 0 && has_ended(&pod) && !change.old.as_ref().is_some_and(has_ended) {
                self.queue.add_after(Work::Ended, COUNTING);
            }
            if let Some(node) = node_name(&pod).filter(|node| self.node(node).is_none()) {
                self.queue.add(Work::Missing(node.to_owned()));
            }
            if pod.metadata.deletion_timestamp.is_some() {
                self.queue.add(Work::Pod(change.key));
            }
        }
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&Key { namespace: String::new(), name: name.to_owned() })
    }

    async fn reconcile(&self, work: &Work) -> Result<Next, kube::Error> {
        match work {
            Work::Pod(key) => {
                let Some(pod) = self.pods.get(key) else { return Ok(Next::Wait) };
                let node = node_name(&pod).and_then(|name| self.node(name));
                if let Some(cause) = cause(&pod, node.as_deref()) {
                    self.collect(&pod, cause).await?;
                }
                Ok(Next::Wait)
            }
            Work::Missing(name) => self.reconcile_missing(name).await,
            Work::Ended => {
                let pods = self.pods.all();
                for pod in surplus(pods.iter().map(|pod| &**pod), self.threshold) {
                    self.collect(pod, Cause::Surplus).await?;
                }
                Ok(Next::Wait)
            }
        }
    }

    /// A node that is missing may only be late to the cache: before its pods are cleared away the server is asked.
    async fn reconcile_missing(&self, name: &str) -> Result<Next, kube::Error> {
        let pods = self.pods.find("node", name);
        let orphans: Vec<_> = pods.iter().filter(|pod| steps(pod, Cause::Orphaned) != Steps::default()).collect();
        if orphans.is_empty() || self.node(name).is_some() {
            self.missing().remove(name);
            return Ok(Next::Wait);
        }
        let now = Instant::now();
        let since = *self.missing().entry(name.to_owned()).or_insert(now);
        let left = QUARANTINE.saturating_sub(now.saturating_duration_since(since));
        if !left.is_zero() {
            return Ok(Next::After(left));
        }
        if Api::<Node>::all(self.client.clone()).get_opt(name).await?.is_some() {
            self.missing().insert(name.to_owned(), Instant::now());
            return Ok(Next::After(QUARANTINE));
        }
        for pod in orphans {
            self.collect(pod, Cause::Orphaned).await?;
        }
        self.missing().remove(name);
        Ok(Next::Wait)
    }

    async fn collect(&self, pod: &Pod, cause: Cause) -> Result<(), kube::Error> {
        let Steps { fail, delete: go } = steps(pod, cause);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        if fail {
            let mut status = json!({ "phase": "Failed", "observedGeneration": pod.metadata.generation });
            if let Some((reason, message)) = cause.disruption() {
                let condition = disruption_target(pod, reason, message, (self.now)());
                status["conditions"] = json!(condition.as_slice());
            }
            patch_pod_status(&api, pod, &status).await?;
        }
        if go {
            tracing::info!(pod = pod.name_any(), ?cause, "deleted a pod");
            delete(&api, &pod.name_any(), pod.metadata.uid.as_deref(), Some(0)).await?;
        }
        Ok(())
    }
}

fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|name| !name.is_empty())
}
