//! Observes, decides and acts: the part of the replica-set controller that speaks to the server.

use std::collections::BTreeSet;

use api::replicaset::VirtualMachineInstanceReplicaSet;
use api::vmi::VirtualMachineInstance;
use futures_util::future::join_all;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key, controller_of};
use manager::context::{Context, Now, Started};
use manager::errors::chain;
use manager::events::{Kind, Recorder};
use manager::kit::{Expected, Kit, Orphans, Reconciler, Remembered, Written};
use manager::queue::Queue;
use manager::selector::Selector;
use manager::worker::Next;
use manager::writing::{delete, is_namespace_terminating, log_created};

use super::{Deletion, Failure, Observed, ReplicaSetPlan, decide};
use crate::indexes;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "vmi-replicaset-controller";

/// The controller.
#[must_use]
pub fn start(context: &Context, workers: usize) -> Started {
    let kit = Kit::new(NAME, context);
    let controller = ReplicaSets {
        client: context.client.clone(),
        sets: context.caches.of(&[]),
        instances: indexes::vmis(&context.caches),
        queue: kit.queue(),
        expected: kit.expected(),
        written: kit.written(),
        taken_names: kit.remembers("names of others' instances"),
        failures: kit.remembers("failure"),
        recorder: context.recorder.of("virtualmachinereplicaset-controller"),
        now: context.now.clone(),
    };
    let (sets, instances) = (controller.sets.clone(), controller.instances.clone());
    kit.reconciles(&sets).owns_many(&instances, &sets, Orphans::Offered(may_adopt)).run(workers, controller)
}

fn may_adopt(set: &VirtualMachineInstanceReplicaSet, orphan: &VirtualMachineInstance) -> bool {
    Selector::read(&set.spec.selector).is_ok_and(|selector| selector.matches(orphan.metadata.labels.as_ref()))
}

struct ReplicaSets {
    client: Client,
    sets: Cache<VirtualMachineInstanceReplicaSet>,
    instances: Cache<VirtualMachineInstance>,
    queue: Queue<Key>,
    expected: Expected,
    written: Written,
    taken_names: Remembered<BTreeSet<String>>,
    failures: Remembered<Failure>,
    recorder: Recorder,
    now: Now,
}

impl Reconciler for ReplicaSets {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(set) = self.sets.get(key) else { return Ok(Next::Wait) };
        if self.written.is_behind(key, &*set) {
            return Ok(Next::Wait);
        }
        if let Some(left) = self.expected.remaining(key) {
            return Ok(Next::After(left));
        }
        // Its own, and those that nothing controls and that it may adopt; of all others, their names.
        let mut near = self.instances.find("controller", set.metadata.uid.as_deref().unwrap_or_default());
        near.extend(self.instances.find("orphans", &key.namespace));
        let mut taken_names = self.taken_names.get(key).unwrap_or_default();
        taken_names.extend(self.instances.keys("namespace", &key.namespace).into_iter().map(|key| key.name));
        let observed = Observed {
            set: &set,
            instances: near.iter().map(|instance| &**instance).collect(),
            taken_names,
            failure: self.failures.get(key),
        };
        match decide(&observed, (self.now)()) {
            Ok(plan) => self.act(key, &set, plan).await,
            // Only an edit of the object helps.
            Err(error) => {
                tracing::warn!(%error, "a replica set cannot be acted on");
                Ok(Next::Wait)
            }
        }
    }
}

impl ReplicaSets {
    async fn act(
        &self,
        key: &Key,
        set: &VirtualMachineInstanceReplicaSet,
        plan: ReplicaSetPlan,
    ) -> Result<Next, kube::Error> {
        let ReplicaSetPlan { adopt, release, status, events, create, delete, recheck_after } = plan;
        let sets: Api<VirtualMachineInstanceReplicaSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &key.namespace);
        if !adopt.is_empty() && !self.is_wanted(&sets, set).await? {
            return Ok(Next::Wait);
        }
        for patch in adopt.iter().chain(&release) {
            patch.send(&api).await?;
        }
        // What stands in the way is shown even if the next attempt fails as well.
        if let Some(status) = &status {
            self.written.patch_status(&sets, key, status).await?;
        }
        for event in events {
            self.recorder.record(set, event.kind, event.reason, event.message);
        }
        if !create.is_empty() || !delete.is_empty() {
            let uids = delete.iter().map(|deletion| deletion.target.uid.clone());
            self.expected.expect(key, create.len(), uids);
            let done = self.scale(key, set, &api, &create, &delete).await;
            if let Err((error, failure)) = done {
                self.failures.set(key, failure);
                return Err(error);
            }
            self.failures.take(key);
        }
        // What was asked for may come and go unseen, and then nobody else brings the set here again.
        let expects = self.expected.remaining(key);
        Ok(recheck_after.into_iter().chain(expects).min().map_or(Next::Wait, Next::After))
    }

    /// Whether the server itself has the set, and nobody has deleted it: what is adopted by one that goes, goes with it.
    async fn is_wanted(
        &self,
        sets: &Api<VirtualMachineInstanceReplicaSet>,
        set: &VirtualMachineInstanceReplicaSet,
    ) -> Result<bool, kube::Error> {
        let current = sets.get_opt(&set.name_any()).await?;
        Ok(current.is_some_and(|one| one.uid() == set.uid() && one.metadata.deletion_timestamp.is_none()))
    }

    /// Creates, then deletes. What is not attempted after a failure is expected no longer.
    async fn scale(
        &self,
        key: &Key,
        set: &VirtualMachineInstanceReplicaSet,
        api: &Api<VirtualMachineInstance>,
        create: &[VirtualMachineInstance],
        delete: &[Deletion],
    ) -> Result<(), (kube::Error, Failure)> {
        if let Err(error) = self.create(key, set, api, create).await {
            delete.iter().for_each(|deletion| self.expected.deleted(key, &deletion.target.uid));
            let message = format!("Error creating virtual machine instance: {}", chain(&error));
            self.recorder.record(set, Kind::Warning, "FailedCreate", message);
            let failure = Failure { reason: "FailedCreate", message: chain(&error) };
            return Err((error, failure));
        }
        self.delete(key, set, api, delete).await.map_err(|error| {
            let failure = Failure { reason: "FailedDelete", message: chain(&error) };
            (error, failure)
        })
    }

    /// Twice as many at a time as before, from one on: a quota, or admission that refuses the template, is asked once and not
    /// hundreds of times.
    async fn create(
        &self,
        key: &Key,
        set: &VirtualMachineInstanceReplicaSet,
        api: &Api<VirtualMachineInstance>,
        all: &[VirtualMachineInstance],
    ) -> Result<(), kube::Error> {
        let (mut rest, mut size) = (all, 1_usize);
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(size.min(rest.len()));
            (rest, size) = (after, size.saturating_mul(2));
            let parameters = PostParams::default();
            let made = join_all(batch.iter().map(|instance| api.create(&parameters, instance))).await;
            let mut failed = None;
            for (instance, made) in batch.iter().zip(made) {
                match made {
                    Ok(made) => {
                        log_created(&made);
                        let message = format!(
                            "Started the virtual machine by creating the new virtual machine instance {}",
                            made.name_any()
                        );
                        self.recorder.record(set, Kind::Normal, "SuccessfulCreate", message);
                    }
                    Err(kube::Error::Api(status)) if status.is_already_exists() => {
                        failed = self.found_taken(key, api, instance).await.err().or(failed);
                    }
                    // The namespace goes, and the set with it: there is nothing to try again.
                    Err(kube::Error::Api(status)) if status.code == 404 || is_namespace_terminating(&status) => {
                        self.expected.created(key);
                    }
                    Err(error) => {
                        self.expected.created(key);
                        failed = Some(error);
                    }
                }
            }
            if let Some(error) = failed {
                rest.iter().for_each(|_| self.expected.created(key));
                return Err(error);
            }
        }
        Ok(())
    }

    /// An instance of that name is there. Ours, if an answer was lost or another leader was faster: then it was created, and the
    /// cache will show it. Only a stranger's makes the name unusable.
    async fn found_taken(
        &self,
        key: &Key,
        api: &Api<VirtualMachineInstance>,
        instance: &VirtualMachineInstance,
    ) -> Result<(), kube::Error> {
        let found = api.get_opt(&instance.name_any()).await.inspect_err(|_| self.expected.created(key))?;
        if found.is_some_and(|found| controller_of(&found) == controller_of(instance)) {
            return Ok(());
        }
        self.expected.created(key);
        self.taken_names.change(key, |names| {
            names.insert(instance.name_any());
        });
        self.queue.add(key.clone());
        Ok(())
    }

    async fn delete(
        &self,
        key: &Key,
        set: &VirtualMachineInstanceReplicaSet,
        api: &Api<VirtualMachineInstance>,
        all: &[Deletion],
    ) -> Result<(), kube::Error> {
        let deletions = all.iter().map(|one| delete(api, &one.target.name, Some(&one.target.uid), None));
        let mut failed = None;
        for (Deletion { target, over }, done) in all.iter().zip(join_all(deletions).await) {
            match done {
                Ok(()) => {
                    let message = match over {
                        true => format!("Deleted finished virtual machine: {}", target.uid),
                        false => format!(
                            "Stopped the virtual machine by deleting the virtual machine instance {}",
                            target.uid
                        ),
                    };
                    self.recorder.record(set, Kind::Normal, "SuccessfulDelete", message);
                }
                Err(error) => {
                    self.expected.deleted(key, &target.uid);
                    let message = format!("Error deleting virtual machine instance {}: {}", target.name, chain(&error));
                    self.recorder.record(set, Kind::Warning, "FailedDelete", message);
                    failed = Some(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
