//! Observes, decides and acts: the part of the controllers of replica sets and of replication controllers that speaks to the
//! server.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::{Context, Now, Started};
use manager::errors::chain;
use manager::events::{Kind, Recorder};
use manager::kit::{Expected, Kit, Orphans, Reconciler, Remembered};
use manager::queue::Queue;
use manager::worker::Next;
use manager::writing::{is_namespace_terminating, log_created, log_deleted};

use super::kind::Replicated;
use super::{Creations, FailedVerb, Failure, Observed, Target, decide};
use crate::indexes::{self, controller_of};
use crate::reading::find;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "replicaset-controller";

/// The controller of replica sets.
#[must_use]
pub fn start(context: &Context, workers: usize) -> Started {
    start_for::<ReplicaSet>(Kit::new(NAME, context), context, workers)
}

/// The controller of one kind.
pub(crate) fn start_for<K: Replicated>(kit: Kit, context: &Context, workers: usize) -> Started {
    let controller = Controller::<K> {
        client: context.client.clone(),
        sets: context.caches.of(&[]),
        pods: indexes::pods(&context.caches),
        queue: kit.queue(),
        expected: kit.expected(),
        taken_names: kit.remembers("names of others' pods"),
        failures: kit.remembers("failure"),
        recorder: context.recorder.of(K::COMPONENT),
        now: context.now.clone(),
    };
    let (sets, pods) = (controller.sets.clone(), controller.pods.clone());
    kit.reconciles(&sets).owns(&pods, &sets, Orphans::Offered(|_, _| true)).run(workers, controller)
}

struct Controller<K: Replicated> {
    client: Client,
    sets: Cache<K>,
    pods: Cache<Pod>,
    queue: Queue<Key>,
    expected: Expected,
    taken_names: Remembered<BTreeSet<String>>,
    failures: Remembered<Failure>,
    recorder: Recorder,
    now: Now,
}

impl<K: Replicated> Reconciler for Controller<K> {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(set) = self.sets.get(key) else { return Ok(Next::Wait) };
        if let Some(left) = self.expected.remaining(key) {
            return Ok(Next::After(left));
        }
        let near = self.pods.find("namespace", &key.namespace);
        let siblings = self.siblings(&*set);
        let observed = Observed {
            replica_set: &*set,
            pods: near.iter().map(|pod| &**pod).collect(),
            siblings: siblings.iter().map(|pod| &**pod).collect(),
            taken_names: self.taken_names.get(key).unwrap_or_default(),
            failure: self.failures.get(key),
        };
        let plan = match decide(&observed, (self.now)()) {
            Ok(plan) => plan,
            // Only an edit of the object helps.
            Err(error) => {
                tracing::warn!(%error, kind = %K::kind(&()), "cannot keep the pods of an object; correct the object");
                return Ok(Next::Wait);
            }
        };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        for patch in plan.adopt.iter().chain(&plan.release) {
            patch.send(&api).await?;
        }
        if let Some(creations) = &plan.create {
            self.create(key, &*set, &api, creations).await?;
        }
        if !plan.delete.is_empty() {
            self.delete(key, &*set, &api, &plan.delete).await?;
        }
        if let Some(status) = &plan.status {
            let sets: Api<K> = Api::namespaced(self.client.clone(), &key.namespace);
            // Kubernetes lets this controller update, not patch; and only over what was observed.
            sets.replace_status(&key.name, &PostParams::default(), &set.with_status(status)).await?;
        }
        // What was asked for may come and go unseen, and then nobody else brings the set here again.
        let expects = self.expected.remaining(key);
        Ok(plan.recheck_after.into_iter().chain(expects).min().map_or(Next::Wait, Next::After))
    }
}

impl<K: Replicated> Controller<K> {
    /// Pods of other sets of the same owner.
    fn siblings(&self, set: &K) -> Vec<Arc<Pod>> {
        let Some(owner) = set.owner_references().iter().find(|one| one.controller == Some(true)) else {
            return Vec::new();
        };
        let sets = self.sets.all();
        let others = sets.iter().filter(|other| {
            other.uid() != set.uid() && other.owner_references().iter().any(|one| one.uid == owner.uid)
        });
        others.flat_map(|other| self.pods.find("controller", &other.uid().unwrap_or_default())).collect()
    }

    async fn create(&self, key: &Key, set: &K, api: &Api<Pod>, creations: &Creations) -> Result<(), kube::Error> {
        let pods: Vec<Pod> = creations.pods().collect();
        self.expected.expect(key, pods.len(), []);
        let mut rest = pods.as_slice();
        let mut left = pods.len();
        for size in &creations.batches {
            let (batch, after) = rest.split_at((*size).min(rest.len()));
            rest = after;
            let parameters = PostParams::default();
            let made = join_all(batch.iter().map(|pod| api.create(&parameters, pod))).await;
            let mut failed = None;
            for (pod, made) in batch.iter().zip(made) {
                left -= 1;
                let error = match made {
                    Ok(made) => {
                        log_created(&made);
                        let message = format!("Created pod: {}", pod.name_any());
                        self.recorder.record(set, Kind::Normal, "SuccessfulCreate", message);
                        continue;
                    }
                    Err(error) => error,
                };
                match error {
                    kube::Error::Api(status) if status.code == 409 => {
                        self.found_taken(key, api, pod).await?;
                        continue;
                    }
                    // The namespace goes, and the set with it: there is nothing to try again.
                    kube::Error::Api(status) if is_namespace_terminating(&status) => {}
                    error => failed = Some(error),
                }
                self.expected.created(key);
            }
            if let Some(error) = failed {
                self.recorder.record(set, Kind::Warning, "FailedCreate", format!("Error creating: {}", chain(&error)));
                (0..left).for_each(|_| self.expected.created(key));
                self.failures.set(key, Failure { verb: FailedVerb::Create, message: chain(&error) });
                return Err(error);
            }
        }
        self.failures.take(key);
        Ok(())
    }

    /// A pod of that name is there. Ours, if an answer was lost or another leader was faster: then it was created, and
    /// the cache will show it. Only a stranger's makes the name unusable.
    async fn found_taken(&self, key: &Key, api: &Api<Pod>, pod: &Pod) -> Result<(), kube::Error> {
        let found = find(api, &pod.name_any()).await?;
        if found.is_some_and(|found| controller_of(&found) == controller_of(pod)) {
            return Ok(());
        }
        self.expected.created(key);
        self.taken_names.change(key, |names| {
            names.insert(pod.name_any());
        });
        self.queue.add(key.clone());
        Ok(())
    }

    async fn delete(&self, key: &Key, set: &K, api: &Api<Pod>, targets: &[Target]) -> Result<(), kube::Error> {
        let uids = targets.iter().map(|target| target.uid.clone());
        self.expected.expect(key, 0, uids);
        let deletions = targets.iter().map(|Target { name, uid }| async move {
            let preconditions = Some(Preconditions { uid: Some(uid.clone()), ..Preconditions::default() });
            api.delete(name, &DeleteParams { preconditions, ..DeleteParams::default() }).await
        });
        let mut failed = None;
        for (target, done) in targets.iter().zip(join_all(deletions).await) {
            let Err(error) = done else {
                log_deleted::<Pod>(&target.name, Some(&target.uid));
                let message = format!("Deleted pod: {}", target.name);
                self.recorder.record(set, Kind::Normal, "SuccessfulDelete", message);
                continue;
            };
            self.expected.deleted(key, &target.uid);
            // A conflict says that another of that name is there, or that somebody wrote meanwhile: the next look tells.
            if !matches!(&error, kube::Error::Api(status) if status.code == 404) {
                failed = Some(error);
            }
        }
        match failed {
            None => {
                self.failures.take(key);
                Ok(())
            }
            Some(error) => {
                self.recorder.record(set, Kind::Warning, "FailedDelete", format!("Error deleting: {}", chain(&error)));
                let failure = Failure { verb: FailedVerb::Delete, message: chain(&error) };
                self.failures.set(key, failure);
                Err(error)
            }
        }
    }
}
