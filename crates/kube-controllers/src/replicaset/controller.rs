//! Observes, decides and acts: the part of the replica-set controller that speaks to the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::{Context, Now};
use manager::errors::chain;
use manager::events::{Kind, Recorder};
use manager::expectations::Expectations;
use manager::queue::Queue;
use manager::worker::{Next, found, work};
use manager::writing::{is_namespace_terminating, log_changed, log_created, log_deleted};
use tokio::time::Instant;

use super::{Creations, FailedVerb, Failure, Observed, OwnerPatch, Target, decide};
use crate::indexes::{self, controller_of};

/// As the flag `--controllers` knows it.
pub const NAME: &str = "replicaset-controller";

/// The controller. Clones share it.
#[derive(Clone)]
pub struct ReplicaSetController {
    client: Client,
    sets: Cache<ReplicaSet>,
    pods: Cache<Pod>,
    queue: Queue<Key>,
    memory: Arc<Mutex<Memory>>,
    recorder: Recorder,
    now: Now,
}

/// What is remembered between two looks at a set.
#[derive(Default)]
struct Memory {
    expectations: Expectations<Key>,
    taken_names: BTreeMap<Key, BTreeSet<String>>,
    failures: BTreeMap<Key, Failure>,
}

impl ReplicaSetController {
    /// A controller; it reads from the context's caches.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Self {
            client: context.client.clone(),
            sets: context.caches.of(&[]),
            pods: context.caches.of(&indexes::PODS),
            queue: context.queue(NAME),
            recorder: context.recorder.clone(),
            memory: Arc::default(),
            now: context.now.clone(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until the queue is closed.
    pub async fn run(&self, workers: usize) {
        // Nobody acts on half a picture.
        self.sets.synced().await;
        self.pods.synced().await;
        let work = work(NAME, &self.queue, workers, |key: Key| {
            let controller = self.clone();
            async move { controller.reconcile(&key).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.feed_sets() => {}
            () = self.feed_pods() => {}
        }
    }

    async fn feed_sets(&self) {
        let mut changes = self.sets.subscribe();
        loop {
            let change = changes.next().await;
            if change.new.is_none() {
                let mut memory = self.memory();
                memory.expectations.forget(&change.key);
                memory.taken_names.remove(&change.key);
                memory.failures.remove(&change.key);
            }
            self.queue.add(change.key);
        }
    }

    /// Every change of a pod is news for the set that controls it, or for all that might.
    async fn feed_pods(&self) {
        let mut changes = self.pods.subscribe();
        loop {
            let change = changes.next().await;
            let owners = [&change.old, &change.new].map(|pod| pod.as_ref().and_then(|pod| self.owner(pod)));
            if let (Some(owner), None) = (&owners[1], &change.old) {
                self.memory().expectations.created(owner);
            }
            let ending = change.new.as_ref().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
            if let (Some(owner), true) = (owners[0].as_ref().or(owners[1].as_ref()), ending) {
                let uid = change.old.as_ref().or(change.new.as_ref()).and_then(|pod| pod.uid()).unwrap_or_default();
                self.memory().expectations.deleted(owner, &uid);
            }
            let orphan = change.new.as_ref().is_some_and(|pod| controller_of(&**pod).is_empty());
            for owner in owners.into_iter().flatten() {
                self.queue.add(owner);
            }
            if orphan {
                let sets = self.sets.all();
                let near = sets.iter().filter(|set| set.namespace().unwrap_or_default() == change.key.namespace);
                near.for_each(|set| self.queue.add(Key::of(&**set)));
            }
        }
    }

    /// The set that controls a pod, if it is known.
    fn owner(&self, pod: &Pod) -> Option<Key> {
        let owners = pod.metadata.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|one| one.controller == Some(true) && one.kind == "ReplicaSet")?;
        let key = Key { namespace: pod.namespace().unwrap_or_default(), name: owner.name.clone() };
        self.sets.get(&key).filter(|set| set.uid().as_deref() == Some(owner.uid.as_str())).map(|_| key)
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(set) = self.sets.get(key) else { return Ok(Next::Wait) };
        found(&*set);
        if let Some(left) = self.memory().expectations.remaining(key, Instant::now()) {
            return Ok(Next::After(left));
        }
        let near = self.pods.find("namespace", &key.namespace);
        let siblings = self.siblings(&set);
        let (taken_names, failure) = {
            let memory = self.memory();
            (memory.taken_names.get(key).cloned().unwrap_or_default(), memory.failures.get(key).cloned())
        };
        let observed = Observed {
            replica_set: &set,
            pods: near.iter().map(|pod| &**pod).collect(),
            siblings: siblings.iter().map(|pod| &**pod).collect(),
            taken_names,
            failure,
        };
        let plan = match decide(&observed, (self.now)()) {
            Ok(plan) => plan,
            // Only an edit of the object helps.
            Err(error) => {
                tracing::warn!(%error, "a replica set cannot be acted on");
                return Ok(Next::Wait);
            }
        };
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        for patch in plan.adopt.iter().chain(&plan.release) {
            claim(&api, patch).await?;
        }
        if let Some(creations) = &plan.create {
            self.create(key, &set, &api, creations).await?;
        }
        if !plan.delete.is_empty() {
            self.delete(key, &set, &api, &plan.delete).await?;
        }
        if let Some(status) = &plan.status {
            let sets: Api<ReplicaSet> = Api::namespaced(self.client.clone(), &key.namespace);
            let written = ReplicaSet { status: Some(status.clone()), ..ReplicaSet::clone(&set) };
            // Kubernetes lets this controller update, not patch; and only over what was observed.
            sets.replace_status(&key.name, &PostParams::default(), &written).await?;
        }
        // What was asked for may come and go unseen, and then nobody else brings the set here again.
        let expects = self.memory().expectations.remaining(key, Instant::now());
        Ok(plan.recheck_after.into_iter().chain(expects).min().map_or(Next::Wait, Next::After))
    }

    /// Pods of other sets of the same owner.
    fn siblings(&self, set: &ReplicaSet) -> Vec<Arc<Pod>> {
        let Some(owner) = set.owner_references().iter().find(|one| one.controller == Some(true)) else {
            return Vec::new();
        };
        let sets = self.sets.all();
        let others = sets.iter().filter(|other| {
            other.uid() != set.uid() && other.owner_references().iter().any(|one| one.uid == owner.uid)
        });
        others.flat_map(|other| self.pods.find("controller", &other.uid().unwrap_or_default())).collect()
    }

    async fn create(
        &self,
        key: &Key,
        set: &ReplicaSet,
        api: &Api<Pod>,
        creations: &Creations,
    ) -> Result<(), kube::Error> {
        let pods: Vec<Pod> = creations.pods().collect();
        self.memory().expectations.expect(key.clone(), pods.len(), [], Instant::now());
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
                self.memory().expectations.created(key);
            }
            if let Some(error) = failed {
                self.recorder.record(set, Kind::Warning, "FailedCreate", format!("Error creating: {}", chain(&error)));
                let mut memory = self.memory();
                (0..left).for_each(|_| memory.expectations.created(key));
                memory.failures.insert(key.clone(), Failure { verb: FailedVerb::Create, message: chain(&error) });
                return Err(error);
            }
        }
        self.memory().failures.remove(key);
        Ok(())
    }

    /// A pod of that name is there. Ours, if an answer was lost or another leader was faster: then it was created, and
    /// the cache will show it. Only a stranger's makes the name unusable.
    async fn found_taken(&self, key: &Key, api: &Api<Pod>, pod: &Pod) -> Result<(), kube::Error> {
        let found = api.get_opt(&pod.name_any()).await?;
        if found.is_some_and(|found| controller_of(&found) == controller_of(pod)) {
            return Ok(());
        }
        let mut memory = self.memory();
        memory.expectations.created(key);
        memory.taken_names.entry(key.clone()).or_default().insert(pod.name_any());
        self.queue.add(key.clone());
        Ok(())
    }

    async fn delete(&self, key: &Key, set: &ReplicaSet, api: &Api<Pod>, targets: &[Target]) -> Result<(), kube::Error> {
        let uids = targets.iter().map(|target| target.uid.clone());
        self.memory().expectations.expect(key.clone(), 0, uids, Instant::now());
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
            self.memory().expectations.deleted(key, &target.uid);
            // A conflict says that another of that name is there, or that somebody wrote meanwhile: the next look tells.
            if !matches!(&error, kube::Error::Api(status) if status.code == 404) {
                failed = Some(error);
            }
        }
        match failed {
            None => {
                self.memory().failures.remove(key);
                Ok(())
            }
            Some(error) => {
                self.recorder.record(set, Kind::Warning, "FailedDelete", format!("Error deleting: {}", chain(&error)));
                let failure = Failure { verb: FailedVerb::Delete, message: chain(&error) };
                self.memory().failures.insert(key.clone(), failure);
                Err(error)
            }
        }
    }
}

async fn claim(api: &Api<Pod>, OwnerPatch { target, patch }: &OwnerPatch) -> Result<(), kube::Error> {
    match api.patch(&target.name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        // It went meanwhile.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 422) => Ok(()),
        patched => patched.map(|_| log_changed::<Pod>(&target.name)),
    }
}
