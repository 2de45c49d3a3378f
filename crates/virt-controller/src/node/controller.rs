//! Observes, decides and acts: the part of the node controller that speaks to the server.

use std::sync::Arc;

use api::names::label;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use manager::cache::{Cache, Changed, Key};
use manager::context::{Context, Now, Started};
use manager::events::Recorder;
use manager::kit::{Kit, Reconciler};
use manager::worker::Next;
use manager::writing::{log_changed, unless_gone};

use super::{Observed, Plan, decide};
use crate::indexes;
use crate::vmi::controller::ask;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "node-controller";

/// The controller.
#[must_use]
pub fn start(context: &Context, workers: usize) -> Started {
    let controller = Nodes {
        client: context.client.clone(),
        nodes: context.caches.of(&[]),
        vmis: indexes::vmis(&context.caches),
        pods: indexes::pods(&context.caches),
        recorder: context.recorder.of("node-controller"),
        now: context.now.clone(),
    };
    let Nodes { nodes, vmis, pods, .. } = &controller;
    Kit::new(NAME, context)
        .watch(nodes, |change: &Changed<Node>| {
            // Every node says every few seconds that it is well; that is no news here.
            let matters = |node: &Option<Arc<Node>>| {
                node.as_ref().map(|node| (node.metadata.labels.clone(), node.metadata.annotations.clone()))
            };
            let news = change.old.is_none() || matters(&change.old) != matters(&change.new);
            news.then(|| change.key.clone())
        })
        // An instance is news for its node when it comes there.
        .watch(vmis, |change| {
            let [old, new] = [&change.old, &change.new].map(|vmi| node_of(vmi.as_ref()?));
            new.filter(|new| old.as_ref() != Some(new)).map(Key::cluster)
        })
        // The end of a pod may be what a lost instance was waiting for.
        .watch(pods, |change| {
            let pod = change.new.as_ref().or(change.old.as_ref())?;
            let ended = change.new.as_ref().is_none_or(|pod| super::is_dead(pod));
            let node = crate::vmi::pods::node(pod);
            (ended && !node.is_empty()).then(|| Key::cluster(node))
        })
        .run(workers, controller.clone())
}

#[derive(Clone)]
struct Nodes {
    client: Client,
    nodes: Cache<Node>,
    vmis: Cache<VirtualMachineInstance>,
    pods: Cache<Pod>,
    recorder: Recorder,
    now: Now,
}

type Instances = Vec<(Arc<VirtualMachineInstance>, Vec<Arc<Pod>>)>;

impl Reconciler for Nodes {
    /// The key is a node's; it may be gone.
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let (node, name) = (self.nodes.get(key), key.name.as_str());
        // The usual case, at each start of an instance: its neighbours need not be looked at.
        if let Some(left) = super::heard_for(node.as_deref(), (self.now)()) {
            return Ok(Next::After(left));
        }
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
}

impl Nodes {
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
