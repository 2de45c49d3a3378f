//! Observes, decides and acts: the part of the deployment controller that speaks to the server.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::claim::Target;
use manager::context::{Context, Now, Started};
use manager::errors::chain;
use manager::events::{Kind, Recorder};
use manager::kit::{Kit, Orphans, Reconciler, Remembered};
use manager::queue::Queue;
use manager::worker::Next;
use manager::writing::{is_namespace_terminating, log_changed, log_created, log_deleted};

use super::{Observed, Plan, Resize, decide, progress, status};
use crate::indexes::{self, controller_of};

/// As the flag `--controllers` knows it.
pub const NAME: &str = "deployment-controller";

/// The controller.
#[must_use]
pub fn start(context: &Context, workers: usize) -> Started {
    let kit = Kit::new(NAME, context);
    let controller = Deployments {
        client: context.client.clone(),
        deployments: context.caches.of(&[]),
        sets: context.caches.of(&[]),
        pods: indexes::pods(&context.caches),
        queue: kit.queue(),
        taken_names: kit.remembers("names of others' replica sets"),
        recorder: context.recorder.clone(),
        now: context.now.clone(),
    };
    let (deployments, sets, pods) = (controller.deployments.clone(), controller.sets.clone(), controller.pods.clone());
    let of_pods = sets.clone();
    kit.reconciles(&deployments)
        .owns(&sets, &deployments, Orphans::Offered(|_, _| true))
        // A pod's set tells which deployment it is about.
        .watch(&pods, move |change| {
            let of_pod = |pod: &Pod| owner(pod, "ReplicaSet").and_then(|key| of_pods.get(&key));
            let sets = [&change.old, &change.new].map(|pod| of_pod(pod.as_deref()?));
            sets.map(|set| owner(&*set?, "Deployment")).into_iter().flatten()
        })
        .run(workers, controller)
}

struct Deployments {
    client: Client,
    deployments: Cache<Deployment>,
    sets: Cache<ReplicaSet>,
    pods: Cache<Pod>,
    queue: Queue<Key>,
    /// Names of replica sets that were taken when one was to be made.
    taken_names: Remembered<BTreeSet<String>>,
    recorder: Recorder,
    now: Now,
}

impl Reconciler for Deployments {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(deployment) = self.deployments.get(key) else { return Ok(Next::Wait) };
        let sets: Vec<_> =
            self.sets.all().into_iter().filter(|set| set.namespace().unwrap_or_default() == key.namespace).collect();
        let pods: Vec<_> =
            sets.iter().flat_map(|set| self.pods.find("controller", &set.uid().unwrap_or_default())).collect();
        let observed = Observed {
            deployment: &deployment,
            replica_sets: sets.iter().map(|set| &**set).collect(),
            pods: pods.iter().map(|pod| &**pod).collect(),
            taken_names: self.taken_names.get(key).unwrap_or_default(),
        };
        let plan = match decide(&observed, (self.now)()) {
            Ok(plan) => plan,
            // Only an edit of the object helps.
            Err(error) => {
                tracing::warn!(%error, "cannot process a deployment");
                return Ok(Next::Wait);
            }
        };
        self.act(key, &deployment, &plan).await?;
        Ok(plan.recheck_after.map_or(Next::Wait, Next::After))
    }
}

impl Deployments {
    async fn act(&self, key: &Key, deployment: &Deployment, plan: &Plan) -> Result<(), kube::Error> {
        let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &key.namespace);
        for patch in plan.adopt.iter().chain(&plan.release) {
            patch.send(&sets).await?;
        }
        if let Some(set) = &plan.create
            && self.is_wanted(key, deployment).await?
            && self.knows_all(deployment, &sets).await?
        {
            self.create(key, deployment, &sets, set).await?;
        }
        for update in &plan.update {
            sets.patch(&update.target.name, &PatchParams::default(), &Patch::Merge(&update.patch())).await?;
            log_changed::<ReplicaSet>(&update.target.name);
            if let Some(resize) = update.resize {
                self.scaled(deployment, &update.target.name, resize);
            }
        }
        for Target { name, uid } in &plan.delete {
            let preconditions = Some(Preconditions { uid: Some(uid.clone()), ..Preconditions::default() });
            let propagation_policy = Some(PropagationPolicy::Background);
            sets.delete(name, &DeleteParams { preconditions, propagation_policy, ..DeleteParams::default() }).await?;
            log_deleted::<ReplicaSet>(name, Some(uid));
        }
        if plan.status.is_none() && plan.revision.is_none() {
            return Ok(());
        }
        self.write_status(key, deployment, plan.status.as_ref(), plan.revision.as_deref()).await
    }

    /// Whether the server itself has the deployment. Its sets go with it, and the cache may have heard of that first: a set
    /// that is made anew then has all its pods once more.
    async fn is_wanted(&self, key: &Key, deployment: &Deployment) -> Result<bool, kube::Error> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &key.namespace);
        let current = api.get_metadata_opt(&key.name).await?.map(|current| current.metadata);
        Ok(current.is_some_and(|now| now.uid == deployment.metadata.uid && now.deletion_timestamp.is_none()))
    }

    /// Whether the cache shows every set that the server has of a deployment. One that it does not show yet, because it was made
    /// a moment ago or its answer was lost, has pods that the size of the next one must leave room for. When the cache has it, the
    /// deployment is looked at again.
    async fn knows_all(&self, deployment: &Deployment, sets: &Api<ReplicaSet>) -> Result<bool, kube::Error> {
        let selector = deployment.spec.as_ref().map(|spec| spec.selector.clone()).unwrap_or_default();
        // A selector that cannot be used was refused before anything was planned.
        let Ok(selector) = kube::core::Selector::try_from(selector) else { return Ok(true) };
        let found = sets.list_metadata(&ListParams::default().labels_from(&selector)).await?;
        let uid = deployment.uid().unwrap_or_default();
        let is_known = |key: &Key, uid: &Option<String>| self.sets.get(key).is_some_and(|set| set.uid() == *uid);
        let mut own = found.items.iter().filter(|set| controller_of(*set).contains(&uid));
        Ok(own.all(|set| is_known(&Key::of(set), &set.uid())))
    }

    async fn create(
        &self,
        key: &Key,
        deployment: &Deployment,
        sets: &Api<ReplicaSet>,
        set: &ReplicaSet,
    ) -> Result<(), kube::Error> {
        let name = set.name_any();
        match sets.create(&PostParams::default(), set).await {
            Ok(made) => {
                log_created(&made);
                let to = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
                if to > 0 {
                    self.scaled(deployment, &name, Resize { from: 0, to });
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {
                // Ours, if an answer was lost or another leader was faster: the cache will show it. Only a stranger's
                // makes the name unusable.
                let found = sets.get_opt(&name).await?;
                let ours = found.is_some_and(|found| controller_of(&found) == controller_of(set));
                if !ours {
                    self.taken_names.change(key, |names| {
                        names.insert(name);
                    });
                    self.queue.add(key.clone());
                }
                Ok(())
            }
            // The namespace goes, and the deployment with it: there is nothing to try again.
            Err(kube::Error::Api(status)) if is_namespace_terminating(&status) => Ok(()),
            Err(error) => {
                let message = format!("Failed to create new replica set {name:?}: {}", chain(&error));
                self.recorder.record(deployment, Kind::Warning, progress::NOT_CREATED, &message);
                if let Some(status) = status::not_created(deployment, &message, (self.now)()) {
                    self.write_status(key, deployment, Some(&status), None).await?;
                }
                Err(error)
            }
        }
    }

    fn scaled(&self, deployment: &Deployment, set: &str, Resize { from, to }: Resize) {
        let direction = if to > from { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {set} from {from} to {to}");
        self.recorder.record(deployment, Kind::Normal, "ScalingReplicaSet", message);
    }

    /// Writes the status and, with it, the revision: an annotation that is written by itself counts as a new generation.
    ///
    /// Only over the status that was observed: conditions go on from those before, so that a write from a cache that
    /// lags behind would bring old ones back.
    async fn write_status(
        &self,
        key: &Key,
        deployment: &Deployment,
        status: Option<&DeploymentStatus>,
        revision: Option<&str>,
    ) -> Result<(), kube::Error> {
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &key.namespace);
        let mut written = deployment.clone();
        if let Some(revision) = revision {
            written.annotations_mut().insert("deployment.kubernetes.io/revision".to_owned(), revision.to_owned());
        }
        if let Some(status) = status {
            written.status = Some(status.clone());
        }
        // Kubernetes lets this controller update, not patch.
        api.replace_status(&key.name, &PostParams::default(), &written).await.map(drop)
    }
}

/// The controller of an object, if it is of the kind.
fn owner<T: kube::ResourceExt>(object: &T, kind: &str) -> Option<Key> {
    let owners = object.owner_references();
    let owner = owners.iter().find(|one| one.controller == Some(true) && one.kind == kind)?;
    Some(Key { namespace: object.namespace().unwrap_or_default(), name: owner.name.clone() })
}
