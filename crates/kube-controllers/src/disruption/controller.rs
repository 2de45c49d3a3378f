//! Observes, decides and acts: the part of the disruption controller that speaks to the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Changed, Index, Key, namespace_of};
use manager::context::{Context, Now, Started};
use manager::events::{Kind, Recorder};
use manager::kit::{Kit, Reconciler, Written};
use manager::worker::Next;
use serde_json::json;

use super::scales::{Owner, Workload, cached};
use super::stale::StalePods;
use super::subresource::Scales;
use super::{Notice, Observed, Plan, Scale, counts_owners, decide, failed, owners, selected};
use crate::indexes;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "disruption-controller";
/// As in Kubernetes.
const WORKERS: usize = 1;
/// What the queue of pods is called whose condition is stale.
const STALE_PODS: &str = "disruption-controller-stale-pods";
const BUDGETS: [(&str, Index<PodDisruptionBudget>); 1] = [("namespace", namespace_of)];

/// The controller.
#[must_use]
pub fn start(context: &Context) -> Started {
    let (kit, caches) = (Kit::new(NAME, context), &context.caches);
    let (budgets, pods) = (caches.of(&BUDGETS), indexes::pods(caches));
    let workloads = Workloads {
        deployments: caches.of(&[]),
        replica_sets: caches.of(&[]),
        replication_controllers: caches.of(&[]),
        stateful_sets: caches.of(&[]),
    };
    let stale_pods = StalePods {
        client: context.client.clone(),
        pods: pods.clone(),
        queue: context.queue(STALE_PODS),
        now: context.now.clone(),
    };
    let recorder = context.recorder.of("controllermanager");
    let controller = Budgets {
        client: context.client.clone(),
        budgets: budgets.clone(),
        pods: pods.clone(),
        workloads: workloads.clone(),
        scales: Scales::new(context.client.clone()),
        written: kit.written(),
        recorder: recorder.clone(),
        now: context.now.clone(),
    };
    let (near, refreshed) = (budgets.clone(), stale_pods.clone());
    let kit = kit.reconciles(&budgets).watch(&pods, move |change| {
        refreshed.saw(change);
        heard(&near, &recorder, change)
    });
    let Workloads { deployments, replica_sets, replication_controllers, stateful_sets } = &workloads;
    kit.watch(deployments, counting(&budgets, |one: &Deployment| one.spec.as_ref()?.replicas))
        .watch(replica_sets, counting(&budgets, |one: &ReplicaSet| one.spec.as_ref()?.replicas))
        .watch(replication_controllers, counting(&budgets, |one: &ReplicationController| one.spec.as_ref()?.replicas))
        .watch(stateful_sets, counting(&budgets, |one: &StatefulSet| one.spec.as_ref()?.replicas))
        .also(async move { stale_pods.run().await })
        .run(WORKERS, controller)
}

/// The budgets that a change of a pod is news for. A pod that several select is told of once: none of them can be kept.
fn heard(budgets: &Cache<PodDisruptionBudget>, recorder: &Recorder, change: &Changed<Pod>) -> BTreeSet<Key> {
    let pods = [&change.old, &change.new].into_iter().flatten();
    let about: BTreeSet<Key> = pods.flat_map(|pod| budgets_of(budgets, pod)).collect();
    if let (None, Some(pod)) = (&change.old, &change.new)
        && let (Some(first), true) = (about.first(), about.len() > 1)
    {
        let message = format!(
            "Pod \"{}\"/\"{}\" matches multiple PodDisruptionBudgets.  Chose \"{}\" arbitrarily.",
            change.key.namespace, change.key.name, first.name
        );
        recorder.record(&**pod, Kind::Warning, "MultiplePodDisruptionBudgets", message);
    }
    about
}

/// A scale that changes is news for all budgets of its namespace that count owners. Kubernetes waits for a pod to change.
fn counting<T: kube::ResourceExt + 'static>(
    budgets: &Cache<PodDisruptionBudget>,
    replicas: fn(&T) -> Option<i32>,
) -> impl Fn(&Changed<T>) -> Vec<Key> + Send + 'static {
    let budgets = budgets.clone();
    move |change| {
        let scale = |one: &Option<Arc<T>>| one.as_ref().map(|one| (one.uid(), replicas(one)));
        if scale(&change.old) == scale(&change.new) {
            return Vec::new();
        }
        let near = budgets.find("namespace", &change.key.namespace);
        near.iter().filter(|budget| counts_owners(budget)).map(|budget| Key::of(&**budget)).collect()
    }
}

struct Budgets {
    client: Client,
    budgets: Cache<PodDisruptionBudget>,
    pods: Cache<Pod>,
    workloads: Workloads,
    scales: Scales,
    written: Written,
    recorder: Recorder,
    now: Now,
}

impl Reconciler for Budgets {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(budget) = self.budgets.get(key) else { return Ok(Next::Wait) };
        // What its cache does not show yet comes, and is news then.
        if self.written.is_behind(key, &*budget) {
            return Ok(Next::Wait);
        }
        let near = self.pods.find("namespace", &key.namespace);
        let plan = match selected(&budget, near.iter().map(|pod| &**pod)) {
            Ok(pods) => {
                let scales = match counts_owners(&budget) {
                    true => self.scales_of(key, &pods).await?,
                    false => BTreeMap::new(),
                };
                decide(&Observed { budget: &budget, pods, scales }, (self.now)())
            }
            Err(error) => failed(&budget, &error, (self.now)()),
        };
        self.act(key, &budget, &plan).await?;
        Ok(plan.recheck_after.map_or(Next::Wait, Next::After))
    }
}

impl Budgets {
    async fn scales_of(&self, key: &Key, pods: &[&Pod]) -> Result<BTreeMap<String, Scale>, kube::Error> {
        let mut scales = BTreeMap::new();
        for (uid, reference) in owners(pods) {
            let scale = match self.cached(key, reference) {
                Some(scale) => scale,
                None => self.scales.ask(&key.namespace, reference).await?,
            };
            scales.insert(uid.to_owned(), scale);
        }
        Ok(scales)
    }

    fn cached(&self, key: &Key, reference: &OwnerReference) -> Option<Scale> {
        let named = |name: &str| Key { namespace: key.namespace.clone(), name: name.to_owned() };
        cached(reference, |kind, name| self.workloads.find(kind, &named(name)))
    }

    async fn act(&self, key: &Key, budget: &PodDisruptionBudget, plan: &Plan) -> Result<(), kube::Error> {
        if let Some(status) = &plan.status {
            self.write(key, budget, status).await?;
        }
        for notice in &plan.notices {
            let (kind, reason, message) = told(notice, budget);
            self.recorder.record(budget, kind, reason, message);
        }
        for name in &plan.not_deleted {
            let pod = self.pods.get(&Key { namespace: key.namespace.clone(), name: name.clone() });
            if let Some(pod) = pod {
                let message =
                    format!("Pod was expected by PDB {}/{} to be deleted but it wasn't", key.namespace, key.name);
                self.recorder.record(&*pod, Kind::Warning, "NotDeleted", message);
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        key: &Key,
        budget: &PodDisruptionBudget,
        status: &PodDisruptionBudgetStatus,
    ) -> Result<(), kube::Error> {
        let api: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), &key.namespace);
        let new = PodDisruptionBudget { status: Some(status.clone()), ..budget.clone() };
        // Only over what was observed: an eviction that was granted meanwhile must not be lost.
        let written = api.replace_status(&key.name, &PostParams::default(), &new).await?;
        self.written.note(key, &written);
        Ok(())
    }
}

/// The budgets that select a pod.
fn budgets_of(budgets: &Cache<PodDisruptionBudget>, pod: &Pod) -> Vec<Key> {
    let near = budgets.find("namespace", &pod.namespace().unwrap_or_default());
    let covering = near.iter().filter(|budget| selected(budget, [pod]).is_ok_and(|found| !found.is_empty()));
    covering.map(|budget| Key::of(&**budget)).collect()
}

#[derive(Clone)]
struct Workloads {
    deployments: Cache<Deployment>,
    replica_sets: Cache<ReplicaSet>,
    replication_controllers: Cache<ReplicationController>,
    stateful_sets: Cache<StatefulSet>,
}

impl Workloads {
    fn find(&self, kind: Workload, key: &Key) -> Option<Owner> {
        match kind {
            Workload::Deployment => {
                let found = self.deployments.get(key)?;
                Some(Owner::new(&found.metadata, found.spec.as_ref().and_then(|spec| spec.replicas)))
            }
            Workload::ReplicaSet => {
                let found = self.replica_sets.get(key)?;
                Some(Owner::new(&found.metadata, found.spec.as_ref().and_then(|spec| spec.replicas)))
            }
            Workload::ReplicationController => {
                let found = self.replication_controllers.get(key)?;
                Some(Owner::new(&found.metadata, found.spec.as_ref().and_then(|spec| spec.replicas)))
            }
            Workload::StatefulSet => {
                let found = self.stateful_sets.get(key)?;
                Some(Owner::new(&found.metadata, found.spec.as_ref().and_then(|spec| spec.replicas)))
            }
        }
    }
}

fn told(notice: &Notice, budget: &PodDisruptionBudget) -> (Kind, &'static str, String) {
    match notice {
        Notice::NoPods => (Kind::Normal, "NoPods", "No matching pods found".to_owned()),
        Notice::UnmanagedPods => {
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status \
                 of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods \
                 please set \".spec.minAvailable\" field of the PDB to an integer value.",
                json!(selector)
            );
            (Kind::Warning, "UnmanagedPods", message)
        }
        Notice::Uncountable(error) => {
            let message = format!("Failed to calculate the number of expected pods: {error}");
            (Kind::Warning, "CalculateExpectedPodCountFailed", message)
        }
    }
}
