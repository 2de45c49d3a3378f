//! Pods leave nodes with taints of the effect `NoExecute` that they do not tolerate, or no longer.
//!
//! Watches: Node, Pod. Owns: nothing; it says in a pod's condition `DisruptionTarget` why it goes. Emits: one status patch
//! and one deletion per pod; events.
//! Absent on purpose: who taints nodes, and how fast, see [`crate::node_lifecycle`]. How long a pod has tolerated a taint is
//! remembered here alone: after a restart its time begins anew, as in Kubernetes. But where tolerations or taints change
//! meanwhile, the time counts from when the first taint was seen, where Kubernetes sticks to the first reckoning.

mod decide;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::{Context, Now};
use manager::events::{Kind, Recorder};
use manager::kit::Page;
use manager::queue::Queue;
use manager::worker::{Next, found, work};
use manager::writing::delete;
use serde_json::json;
use tokio::time::Instant;

use crate::indexes;
use crate::writing::{disruption_target, patch_pod_status};
use decide::{Plan, decide, evicting};

/// As the flag `--controllers` knows it.
pub const NAME: &str = "taint-eviction-controller";
const EVENT: &str = "TaintManagerEviction";
/// As in Kubernetes.
const WORKERS: usize = 8;

/// The controller. Clones share it.
#[derive(Clone)]
pub struct TaintEvictionController {
    client: Client,
    nodes: Cache<Node>,
    pods: Cache<Pod>,
    queue: Queue<Key>,
    recorder: Recorder,
    doomed: Arc<Mutex<BTreeMap<Key, Doomed>>>,
    now: Now,
}

/// A pod that will have to go.
#[derive(Clone, Debug)]
struct Doomed {
    uid: Option<String>,
    since: Instant,
    /// Its deletion was told of.
    told: bool,
}

impl TaintEvictionController {
    /// A controller; it reads from the context's caches.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Self {
            client: context.client.clone(),
            nodes: context.caches.of(&[]),
            pods: indexes::pods(&context.caches),
            queue: context.queue(NAME),
            recorder: context.recorder.of(NAME),
            doomed: Arc::default(),
            now: context.now.clone(),
        }
    }

    fn doomed(&self) -> MutexGuard<'_, BTreeMap<Key, Doomed>> {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it shows of itself.
    pub fn page(&self) -> Page<Key> {
        let doomed = self.doomed.clone();
        let remembered = move || {
            let all = doomed.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().map(|(key, one)| format!("{key}: has to go since {} s", one.since.elapsed().as_secs())).collect()
        };
        Page::new(&self.queue).cache(&self.nodes).cache(&self.pods).remembers(remembered)
    }

    /// Runs until the queue is closed.
    pub async fn run(&self) {
        self.nodes.synced().await;
        self.pods.synced().await;
        let work = work(NAME, &self.queue, WORKERS, |key: Key| {
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
            let taints = |node: &Option<Arc<Node>>| evicting(node.as_deref());
            if taints(&change.old) != taints(&change.new) {
                let pods = self.pods.find("node", &change.key.name);
                pods.iter().for_each(|pod| self.queue.add(Key::of(&**pod)));
            }
        }
    }

    async fn feed_pods(&self) {
        let mut changes = self.pods.subscribe();
        loop {
            let change = changes.next().await;
            let placed = change.new.as_ref().and_then(|pod| self.node_of(pod));
            if !evicting(placed.as_deref()).is_empty() || self.doomed().contains_key(&change.key) {
                self.queue.add(change.key);
            }
        }
    }

    fn node_of(&self, pod: &Pod) -> Option<Arc<Node>> {
        let name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone())?;
        self.nodes.get(&Key { namespace: String::new(), name })
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(pod) = self.pods.get(key) else {
            self.doomed().remove(key);
            return Ok(Next::Wait);
        };
        found(&*pod);
        let now = Instant::now();
        let taints = evicting(self.node_of(&pod).as_deref());
        let known = self.doomed().get(key).filter(|known| known.uid == pod.uid()).cloned();
        match decide(&pod, &taints, known.as_ref().map(|known| known.since), now) {
            Plan::Nothing => {
                self.doomed().remove(key);
            }
            Plan::Spare => {
                self.doomed().remove(key);
                let message = format!("Cancelling deletion of Pod {}/{}", key.namespace, key.name);
                self.recorder.record(&*pod, Kind::Normal, EVENT, message);
            }
            Plan::EvictAt { since, at } => {
                self.doomed().insert(key.clone(), Doomed { uid: pod.uid(), since, told: false });
                return Ok(Next::After(at.saturating_duration_since(now)));
            }
            Plan::Evict => self.evict(key, &pod, known).await?,
        }
        Ok(Next::Wait)
    }

    async fn evict(&self, key: &Key, pod: &Pod, known: Option<Doomed>) -> Result<(), kube::Error> {
        let known = known.unwrap_or(Doomed { uid: pod.uid(), since: Instant::now(), told: false });
        if !known.told {
            let message = format!("Marking for deletion Pod {}/{}", key.namespace, key.name);
            self.recorder.record(pod, Kind::Normal, EVENT, message);
        }
        self.doomed().insert(key.clone(), Doomed { told: true, ..known });
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let message = "Taint manager: deleting due to NoExecute taint";
        if let Some(condition) = disruption_target(pod, "DeletionByTaintManager", message, (self.now)()) {
            patch_pod_status(&api, pod, &json!({ "conditions": [condition] })).await?;
        }
        delete(&api, &key.name, pod.metadata.uid.as_deref(), None).await
    }
}
