//! Observes, decides and acts: the part of the node controller that speaks to the server.

use std::sync::Arc;

use api::names::label;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use manager::cache::{Cache, Key, controller_of};
use manager::context::{Context, Now};
use manager::events::Recorder;
use manager::queue::Queue;
use manager::worker::{Next, work};
use manager::writing::{log_changed, unless_gone};

use super::{Observed, Plan, decide};
use crate::indexes;
use crate::vmi::controller::ask;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "node-controller";

/// The controller. Clones share it.
#[derive(Clone)]
pub struct NodeController {
    client: Client,
    nodes: Cache<Node>,
    vmis: Cache<VirtualMachineInstance>,
    pods: Cache<Pod>,
    /// Names of nodes; one may be gone.
    queue: Queue<String>,
    recorder: Recorder,
    now: Now,
}

type Instances = Vec<(Arc<VirtualMachineInstance>, Vec<Arc<Pod>>)>;

impl NodeController {
    /// A controller; it reads from the context's caches.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Self {
            client: context.client.clone(),
            nodes: context.caches.of(&[]),
            vmis: context.caches.of(&indexes::VMIS),
            pods: context.caches.selected(indexes::OUR_PODS, &[("controller", controller_of)]),
            queue: context.queue(NAME),
            recorder: context.recorder.of("node-controller"),
            now: context.now.clone(),
        }
    }

    /// Runs until the queue is closed.
    pub async fn run(&self, workers: usize) {
        // Nobody acts on half a picture.
        self.nodes.synced().await;
        self.vmis.synced().await;
        self.pods.synced().await;
        let work = work(NAME, &self.queue, workers, |name: String| {
            let controller = self.clone();
            async move { controller.reconcile(&name).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.feed_nodes() => {}
            () = self.feed_vmis() => {}
            () = self.feed_pods() => {}
        }
    }

    async fn feed_nodes(&self) {
        let mut changes = self.nodes.subscribe();
        loop {
            let change = changes.next().await;
            // Every node says every few seconds that it is well; that is no news here.
            let matters = |node: &Option<Arc<Node>>| {
                node.as_ref().map(|node| (node.metadata.labels.clone(), node.metadata.annotations.clone()))
            };
            if change.old.is_none() || matters(&change.old) != matters(&change.new) {
                self.queue.add(change.key.name);
            }
        }
    }

    /// An instance is news for its node when it comes there.
    async fn feed_vmis(&self) {
        let mut changes = self.vmis.subscribe();
        loop {
            let change = changes.next().await;
            let node = |vmi: &Option<Arc<VirtualMachineInstance>>| vmi.as_ref().and_then(|vmi| node_of(vmi));
            let (old, new) = (node(&change.old), node(&change.new));
            if let Some(name) = new.filter(|new| old.as_ref() != Some(new)) {
                self.queue.add(name);
            }
        }
    }

    /// The end of a pod may be what a lost instance was waiting for.
    async fn feed_pods(&self) {
        let mut changes = self.pods.subscribe();
        loop {
            let change = changes.next().await;
            let Some(pod) = change.new.as_ref().or(change.old.as_ref()) else { continue };
            let ended = change.new.as_ref().is_none_or(|pod| super::is_dead(pod));
            let node = crate::vmi::pods::node(pod);
            if ended && !node.is_empty() {
                self.queue.add(node.to_owned());
            }
        }
    }

    async fn reconcile(&self, name: &str) -> Result<Next, kube::Error> {
        let node = self.nodes.get(&Key { namespace: String::new(), name: name.to_owned() });
        let mut instances: Instances = Vec::new();
        for vmi in self.vmis.find("node", name).into_iter().filter(|vmi| !vmi.is_final()) {
            let pods = self.pods.find("controller", vmi.metadata.uid.as_deref().unwrap_or_default());
            instances.push((vmi, pods));
        }
        let mut plan = self.decide(node.as_deref(), &instances, false);
        if plan.ask {
            for (vmi, pods) in &mut instances {
                *pods = ask(&self.client, vmi).await?;
            }
            plan = self.decide(node.as_deref(), &instances, true);
        }
        self.act(name, node.as_deref(), plan).await
    }

    fn decide(&self, node: Option<&Node>, instances: &Instances, asked: bool) -> Plan {
        let instances = instances.iter().map(|(vmi, pods)| (&**vmi, pods.iter().map(|pod| &**pod).collect())).collect();
        decide(&Observed { node, instances, asked }, (self.now)())
    }

    async fn act(&self, name: &str, node: Option<&Node>, plan: Plan) -> Result<Next, kube::Error> {
        let Plan { ask: _, node: change, lost, event, recheck_after } = plan;
        if let Some(change) = &change {
            let api: Api<Node> = Api::all(self.client.clone());
            let written = api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await;
            unless_gone(written.inspect(|_| log_changed::<Node>(name)))?;
        }
        if let (Some(event), Some(node)) = (event, node) {
            self.recorder.record(node, event.kind, event.reason, event.message);
        }
        for (namespace, name, patch) in &lost {
            let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), namespace);
            let written = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
            unless_gone(written.inspect(|_| log_changed::<VirtualMachineInstance>(name)))?;
        }
        Ok(recheck_after.map_or(Next::Wait, Next::After))
    }
}

fn node_of(vmi: &VirtualMachineInstance) -> Option<String> {
    vmi.metadata.labels.as_ref()?.get(label::NODE_NAME).cloned()
}
