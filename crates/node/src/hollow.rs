//! Hollow nodes: real objects, simulated pods.
//!
//! Watches: Pod, Node. Owns: Nodes of the given names, their leases in `kube-node-lease`, and the status of pods that are bound to
//! them. Emits: one status write per start of a pod, one deletion per end.

mod decide;
mod register;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Keeping, Key};
use manager::context::{Context, Now};
use manager::errors::chain;
use manager::queue::Queue;
use manager::worker::{Next, work};
use tokio::time::sleep;

use crate::lease;
use decide::{Plan, decide};

/// How the nodes behave.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// From the binding of a pod to its containers running.
    pub start_delay: Duration,
    /// From its deletion to its end; the grace period, if that is shorter.
    pub stop_delay: Duration,
    /// Labels of pods whose containers fail instead of running.
    pub failing: BTreeSet<(String, String)>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self { start_delay: Duration::ZERO, stop_delay: Duration::ZERO, failing: BTreeSet::new() }
    }
}

/// A set of hollow nodes.
#[derive(Clone)]
pub struct HollowNodes {
    client: Client,
    names: Arc<BTreeSet<String>>,
    behaviour: Arc<Behaviour>,
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    queue: Queue<Key>,
    now: Now,
}

/// Pods that are started or ended at the same time.
const WORKERS: usize = 16;
/// Between a conflict and the next look: what another has written is on its way to the cache.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Between two attempts to register a node.
const PAUSE: Duration = Duration::from_secs(1);

impl HollowNodes {
    /// Nodes of these names; they read from the context's caches.
    #[must_use]
    pub fn new(context: &Context, names: impl IntoIterator<Item = String>, behaviour: Behaviour) -> Self {
        Self {
            client: context.client.clone(),
            names: Arc::new(names.into_iter().collect()),
            behaviour: Arc::new(behaviour),
            pods: context.caches.kept("", Keeping::slim_and_packed(), &[]),
            nodes: context.caches.selected(register::SELECTOR, &[]),
            queue: context.queue("hollow-nodes"),
            now: context.now.clone(),
        }
    }

    /// Registers the nodes, then runs until the queue is closed.
    pub async fn run(&self) {
        for name in self.names.iter() {
            // As a kubelet does: without its node it is of no use, so it tries until it has it.
            while let Err(error) = register::node(&self.client, name, (self.now)()).await {
                tracing::warn!(node = name, error = chain(&error), "cannot register a node");
                sleep(PAUSE).await;
            }
        }
        let feed = async {
            let mut changes = self.pods.subscribe();
            loop {
                let change = changes.next().await;
                if change.new.is_some_and(|pod| self.is_ours(&pod)) {
                    self.queue.add(change.key);
                }
            }
        };
        let ready = self.stay_ready();
        let leases = join_all(self.names.iter().map(|name| lease::keep(&self.client, name, &self.now)));
        let work = work("hollow-nodes", &self.queue, WORKERS, |key: Key| {
            let nodes = self.clone();
            async move { nodes.reconcile(&key).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = feed => {}
            () = ready => {}
            _ = leases => {}
        }
    }

    /// A node that was given up for lost says that it is there again.
    async fn stay_ready(&self) {
        let mut changes = self.nodes.subscribe();
        loop {
            let change = changes.next().await;
            let lost = change.new.as_ref().is_some_and(|node| !is_ready(node));
            if !lost || !self.names.contains(&change.key.name) {
                continue;
            }
            while let Err(error) = register::report(&self.client, &change.key.name, (self.now)()).await {
                tracing::warn!(node = change.key.name, error = chain(&error), "cannot write the status of a node");
                sleep(PAUSE).await;
            }
        }
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_some_and(|node| self.names.contains(node))
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| self.is_ours(pod)) else { return Ok(Next::Wait) };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        match decide(&pod, &self.behaviour, (self.now)()) {
            Plan::Nothing => Ok(Next::Wait),
            Plan::Later(after) => Ok(Next::After(after)),
            Plan::Status(status) => {
                // Only the version that was seen: it may have ended meanwhile, and what has ended never runs again.
                let metadata = serde_json::json!({ "uid": pod.uid(), "resourceVersion": pod.resource_version() });
                let patch = serde_json::json!({ "metadata": metadata, "status": status });
                let written = api.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(&patch)).await;
                match written {
                    Err(kube::Error::Api(status)) if status.code == 409 => Ok(Next::After(LOOK_AGAIN)),
                    written => unless_gone(written.map(drop)),
                }
            }
            Plan::Remove => {
                // Only this pod: another of the same name may be there already.
                let preconditions = Some(Preconditions { uid: pod.uid(), ..Preconditions::default() });
                let now = DeleteParams { grace_period_seconds: Some(0), preconditions, ..DeleteParams::default() };
                unless_gone(api.delete(&key.name, &now).await.map(drop))
            }
        }
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

/// A pod that went meanwhile needs nothing more.
fn unless_gone(result: Result<(), kube::Error>) -> Result<Next, kube::Error> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Next::Wait),
        result => result.map(|()| Next::Wait),
    }
}
