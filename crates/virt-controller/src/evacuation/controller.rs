//! Observes, decides and acts: the part of the evacuation controller that speaks to the server.

use std::sync::Arc;

use api::migration::VirtualMachineInstanceMigration as Migration;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use kube::{Client, ResourceExt as _};
use manager::cache::{Cache, Changed, Key};
use manager::claim;
use manager::context::{Context, Started};
use manager::errors::chain;
use manager::events::{Kind, Recorder};
use manager::kit::{Expected, Kit, Reconciler, Remembered};
use manager::worker::Next;
use virt_rules::eviction::marked;

use super::{Instance, Observed, decide, is_under_way, node_of};
use crate::configuration::Configuration;
use crate::indexes;
use crate::migration::asking::ask_for;
use crate::migration::is_final;
use crate::vmi::pods;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "evacuation-controller";

/// The controller.
#[must_use]
pub(crate) fn start(context: &Context, workers: usize) -> Started {
    let (kit, caches) = (Kit::new(NAME, context), &context.caches);
    let controller = Evacuations {
        client: context.client.clone(),
        nodes: caches.of(&[]),
        vmis: indexes::vmis(caches),
        pods: indexes::pods(caches),
        migrations: caches.of(&indexes::MIGRATIONS),
        configuration: Configuration::new(context),
        expected: kit.expected(),
        failures: kit.remembers("failure"),
        recorder: context.recorder.of("evacuation-controller"),
    };
    feed(kit, &controller).run(workers, controller)
}

/// Declares all that a node has to be looked at for.
fn feed(kit: Kit, controller: &Evacuations) -> Kit {
    let Evacuations { nodes, vmis, pods, migrations, configuration, expected, .. } = controller;
    let (of_migration, of_pod, of_end, of_configuration) =
        (vmis.clone(), vmis.clone(), controller.leaving(), controller.leaving());
    let known = nodes.clone();
    let expected = expected.clone();
    kit.watch(nodes, |change: &Changed<Node>| {
        // Every node says every few seconds that it is well; that is no news here.
        let taints = |node: &Option<Arc<Node>>| node.as_ref().map(|node| taints(node).to_vec());
        (taints(&change.old) != taints(&change.new)).then(|| change.key.clone())
    })
    // What happens on a node that nobody has to leave is no news: to look at all of its instances each time would take more
    // than all else that is done for them.
    .watch(vmis, move |change: &Changed<VirtualMachineInstance>| {
        let is_marked = [&change.old, &change.new].into_iter().flatten().any(|vmi| marked(vmi).is_some());
        let [before, now] = [&change.old, &change.new].map(|vmi| node_key(vmi.as_deref()?));
        let is_left = |key: &Key| is_marked || known.get(key).is_some_and(|node| !taints(&node).is_empty());
        before.into_iter().chain(now).filter(is_left).collect::<Vec<_>>()
    })
    .watch(migrations, move |change: &Changed<Migration>| {
        let [before, now] = [&change.old, &change.new].map(|one| node_of(one.as_deref()?).map(Key::cluster));
        expected.saw(before.as_ref(), now.as_ref(), change);
        // Whoever ends, or goes, makes room for those of all nodes.
        match change.new.as_deref() {
            Some(one) if !is_final(one) => now.into_iter().chain(node_of_instance(&of_migration, one)).collect(),
            _ => of_end(),
        }
    })
    // The end of a launcher that the guest has left is what its next migration waits for.
    .watch(pods, move |change: &Changed<Pod>| {
        let pod = change.new.as_deref().or(change.old.as_deref())?;
        let has_ended = change.new.as_deref().is_none_or(pods::has_ended);
        let owner = claim::controller_of(&pod.metadata).filter(|_| has_ended)?;
        let key = Key { namespace: pod.namespace().unwrap_or_default(), name: owner.name.clone() };
        node_key(&*of_pod.get(&key)?)
    })
    .watch(configuration.objects(), move |_| of_configuration())
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn node_key(vmi: &VirtualMachineInstance) -> Option<Key> {
    indexes::node_of(vmi).pop().map(Key::cluster)
}

fn node_of_instance(vmis: &Cache<VirtualMachineInstance>, migration: &Migration) -> Option<Key> {
    let name = migration.spec.vmi_name.clone()?;
    let vmi = vmis.get(&Key { namespace: migration.namespace().unwrap_or_default(), name })?;
    node_key(&vmi)
}

struct Evacuations {
    client: Client,
    nodes: Cache<Node>,
    vmis: Cache<VirtualMachineInstance>,
    pods: Cache<Pod>,
    migrations: Cache<Migration>,
    configuration: Configuration,
    expected: Expected,
    /// Why the last migration was not made.
    failures: Remembered<String>,
    recorder: Recorder,
}

impl Reconciler for Evacuations {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(node) = self.nodes.get(key) else { return Ok(Next::Wait) };
        if let Some(left) = self.expected.remaining(key) {
            return Ok(Next::After(left));
        }
        let plan = self.decide(&node);
        if plan.is_empty() {
            self.failures.take(key);
            return Ok(Next::Wait);
        }
        self.expected.expect(key, plan.len(), None);
        let mut outcome = Ok(());
        for migration in &plan {
            let made = self.make(key, migration).await;
            outcome = outcome.and(made);
        }
        outcome?;
        Ok(self.expected.remaining(key).map_or(Next::Wait, Next::After))
    }
}

impl Evacuations {
    /// The nodes that guests may have to leave.
    fn leaving(&self) -> impl Fn() -> Vec<Key> + Send + use<> {
        let (vmis, nodes) = (self.vmis.clone(), self.nodes.clone());
        move || {
            let (vmis, nodes) = (vmis.all(), nodes.all());
            let marked = vmis.iter().filter(|vmi| marked(vmi).is_some()).filter_map(|vmi| node_key(vmi));
            let tainted = nodes.iter().filter(|node| !taints(node).is_empty()).map(|node| Key::of(&**node));
            marked.chain(tainted).collect()
        }
    }

    fn decide(&self, node: &Node) -> Vec<Migration> {
        let on_node = self.vmis.find("node", node.metadata.name.as_deref().unwrap_or_default());
        let found: Vec<_> = on_node
            .iter()
            .map(|vmi| {
                let pods = self.pods.find("controller", vmi.metadata.uid.as_deref().unwrap_or_default());
                let key = Key::of(&**vmi);
                let migrations = self.migrations.find("instance", &format!("{}/{}", key.namespace, key.name));
                (vmi, pods, migrations)
            })
            .collect();
        let instances = found.iter().map(|(vmi, pods, migrations)| Instance {
            vmi,
            pods: pods.iter().map(|pod| &**pod).collect(),
            migrations: migrations.iter().map(|one| &**one).collect(),
        });
        let config = self.configuration.current();
        let under_way = self.under_way();
        decide(&Observed { node, instances: instances.collect(), under_way, config: &config })
    }

    /// Instances that a migration of this controller is about to move.
    fn under_way(&self) -> usize {
        let all = self.migrations.all();
        let own = all.iter().filter(|one| !is_final(one) && node_of(one).is_some());
        let is_under_way = |own: &&Arc<Migration>| {
            let (namespace, name) =
                (own.namespace().unwrap_or_default(), own.spec.vmi_name.clone().unwrap_or_default());
            let siblings = self.migrations.find("instance", &format!("{namespace}/{name}"));
            is_under_way(&siblings.iter().map(|one| &**one).collect::<Vec<_>>())
        };
        own.filter(is_under_way).count()
    }

    async fn make(&self, key: &Key, migration: &Migration) -> Result<(), kube::Error> {
        let made = ask_for(&self.client, migration).await;
        let namespace = migration.namespace().unwrap_or_default();
        let vmi = self.vmis.get(&Key { namespace, name: migration.spec.vmi_name.clone().unwrap_or_default() });
        match &made {
            Ok(()) => {
                if let Some(vmi) = &vmi {
                    let message = format!("Created Migration {}", migration.name_any());
                    self.recorder.record(&**vmi, Kind::Normal, "SuccessfulCreate", message);
                }
            }
            Err(error) => {
                self.expected.created(key);
                let message = format!("Error creating a Migration: {}", chain(error));
                let is_news = self.failures.set(key, message.clone()).as_ref() != Some(&message);
                if let Some(vmi) = vmi.filter(|_| is_news) {
                    self.recorder.record(&*vmi, Kind::Warning, "FailedCreate", message);
                }
            }
        }
        made
    }
}
