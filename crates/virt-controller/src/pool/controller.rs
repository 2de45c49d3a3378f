//! Observes, decides and acts: the part of the pool controller that speaks to the server.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use api::data_volume::DataVolume;
use api::pool::VirtualMachinePool;
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use futures_util::future::join_all;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use manager::cache::{Cache, Changed, Key, controller_of};
use manager::claim::Target;
use manager::context::{Context, Now, Started};
use manager::errors::{chain, is_race};
use manager::events::{Kind, Recorder};
use manager::kit::{Expected, Kit, Orphans, Reconciler, Remembered, Written};
use manager::worker::Next;
use manager::writing::{
    create, delete, delete_with_children, guarded, is_namespace_terminating, log_changed, log_created, unless_gone,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Deletion, Failure, Observed, PoolPlan, Why, decide};
use crate::data_volumes::DataVolumes;
use crate::indexes;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "pool-controller";

/// The controller.
#[must_use]
pub(crate) fn start(context: &Context, data_volumes: DataVolumes, workers: usize) -> Started {
    let (kit, caches) = (Kit::new(NAME, context), &context.caches);
    let controller = Pools {
        client: context.client.clone(),
        pools: caches.of(&[]),
        vms: indexes::vms(caches),
        instances: indexes::vmis(caches),
        revisions: indexes::revisions(caches),
        nodes: caches.of(&[]),
        data_volumes,
        expected: kit.expected(),
        written: kit.written(),
        vm_written: Written::default(),
        instance_written: Written::default(),
        failures: kit.remembers("failure"),
        recorder: context.recorder.of("virtualmachinepool-controller"),
        now: context.now.clone(),
    };
    let Pools { pools, vms, instances, revisions, nodes, expected, vm_written, instance_written, .. } = &controller;
    let (pools, vms, instances) = (pools.clone(), vms.clone(), instances.clone());
    let (revisions, nodes) = (revisions.clone(), nodes.clone());
    let (expected, written, relabelled) = (expected.clone(), vm_written.clone(), instance_written.clone());
    let (of_instances, of_revisions, machines) = (pools.clone(), pools.clone(), vms.clone());
    kit.reconciles(&pools)
        .owns_many(&vms, &pools, Orphans::Ignored)
        .watch(&vms, move |change| {
            if change.new.is_none() {
                written.forget(&change.key);
            }
            None
        })
        .watch_many(&instances, move |change| {
            if change.new.is_none() {
                relabelled.forget(&change.key);
            }
            let pool = pool_of(&of_instances, &machines, change);
            let ended = change.new.as_ref().is_none_or(|instance| instance.is_marked_for_deletion());
            if let (Some(pool), true) = (&pool, ended) {
                let uids = [&change.old, &change.new].into_iter().flatten().filter_map(|instance| instance.uid());
                uids.for_each(|uid| expected.deleted(pool, &uid));
            }
            pool
        })
        .watch(&revisions, move |change| {
            let of = |revision: &Option<Arc<ControllerRevision>>| owner(&of_revisions, &**revision.as_ref()?);
            of(&change.new).or(of(&change.old))
        })
        .needs(&nodes)
        .run(workers, controller)
}

/// The pool of an instance's VM.
fn pool_of(
    pools: &Cache<VirtualMachinePool>,
    vms: &Cache<VirtualMachine>,
    change: &Changed<VirtualMachineInstance>,
) -> Option<Key> {
    owner(pools, &*vms.get(&change.key)?)
}

/// The pool that controls an object.
fn owner<T: kube::ResourceExt>(pools: &Cache<VirtualMachinePool>, object: &T) -> Option<Key> {
    let reference = object.owner_references().iter().find(|one| one.controller == Some(true))?;
    let key = Key { namespace: object.namespace().unwrap_or_default(), name: reference.name.clone() };
    pools.get(&key).filter(|pool| pool.uid().as_ref() == Some(&reference.uid)).map(|_| key)
}

struct Pools {
    client: Client,
    pools: Cache<VirtualMachinePool>,
    vms: Cache<VirtualMachine>,
    instances: Cache<VirtualMachineInstance>,
    revisions: Cache<ControllerRevision>,
    nodes: Cache<Node>,
    data_volumes: DataVolumes,
    expected: Expected,
    written: Written,
    /// The same of VMs, by their own keys.
    vm_written: Written,
    /// The same of instances.
    instance_written: Written,
    failures: Remembered<Failure>,
    recorder: Recorder,
    now: Now,
}

impl Reconciler for Pools {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(pool) = self.pools.get(key) else { return Ok(Next::Wait) };
        if self.written.is_behind(key, &*pool) {
            return Ok(Next::Wait);
        }
        if let Some(left) = self.expected.remaining(key) {
            return Ok(Next::After(left));
        }
        let uid = pool.uid().unwrap_or_default();
        let vms = self.vms.find("controller", &uid);
        // What the cache does not show yet comes, and is news then.
        if vms.iter().any(|vm| self.vm_written.is_behind(&Key::of(&**vm), &**vm)) {
            return Ok(Next::Wait);
        }
        let instances: Vec<Arc<VirtualMachineInstance>> =
            vms.iter().filter_map(|vm| self.instances.get(&Key::of(&**vm))).collect();
        if instances.iter().any(|one| self.instance_written.is_behind(&Key::of(&**one), &**one)) {
            return Ok(Next::Wait);
        }
        let in_use = self.vms.keys("namespace", &key.namespace);
        let node = |instance: &VirtualMachineInstance| instance.status.as_ref()?.node_name.clone();
        let nodes: BTreeMap<String, Arc<Node>> = instances
            .iter()
            .filter_map(|instance| node(instance))
            .filter_map(|name| Some((name.clone(), self.nodes.get(&Key::cluster(name))?)))
            .collect();
        let revisions = self.revisions.find("controller", &uid);
        let observed = Observed {
            pool: &pool,
            vms: vms.iter().map(|vm| &**vm).collect(),
            in_use: in_use.iter().map(|key| key.name.as_str()).collect(),
            instances: instances
                .iter()
                .map(|instance| (instance.metadata.name.as_deref().unwrap_or_default(), &**instance))
                .collect(),
            nodes: nodes.iter().map(|(name, node)| (name.as_str(), node.labels())).collect(),
            revisions: revisions.iter().map(|revision| &**revision).collect(),
            failure: self.failures.get(key),
        };
        match decide(&observed, (self.now)()) {
            Ok(plan) => self.act(key, &pool, plan).await,
            // Only an edit of the object helps.
            Err(error) => {
                tracing::warn!(%error, "cannot keep the VMs of a pool; correct the pool");
                Ok(Next::Wait)
            }
        }
    }
}

impl Pools {
    async fn act(&self, key: &Key, pool: &VirtualMachinePool, plan: PoolPlan) -> Result<Next, kube::Error> {
        let PoolPlan { release, status, events, keep, forget, create, delete, update, restart, relabel, recheck_after } =
            plan;
        let vms: Api<VirtualMachine> = Api::namespaced(self.client.clone(), &key.namespace);
        for patch in &release {
            patch.send(&vms).await?;
        }
        // What stands in the way is shown even if the next attempt fails as well.
        if let Some(status) = &status {
            let pools: Api<VirtualMachinePool> = Api::namespaced(self.client.clone(), &key.namespace);
            self.written.patch_status(&pools, key, status).await?;
        }
        for event in events {
            self.recorder.record(pool, event.kind, event.reason, event.message);
        }
        self.keep(key, keep.as_deref(), &forget).await?;
        if !create.is_empty() || !delete.is_empty() || !restart.is_empty() {
            let uids = delete.iter().map(|deletion| &deletion.target).chain(&restart).map(|target| target.uid.clone());
            self.expected.expect(key, create.len(), uids);
        }
        let done = match self.create(key, pool, &vms, &create).await {
            Ok(()) => self.shrink(key, pool, &vms, &delete, &restart).await,
            Err(failed) => {
                let never = delete.iter().map(|deletion| &deletion.target).chain(&restart);
                never.for_each(|target| self.expected.deleted(key, &target.uid));
                Err(failed)
            }
        };
        let done = match done {
            Ok(()) => self.update(key, pool, &vms, &update, &relabel).await,
            failed => failed,
        };
        if let Err((error, reason)) = done {
            // Somebody was faster: that is no failure, and the next look tells.
            if is_race(&error) {
                return Err(error);
            }
            let message = chain(&error);
            self.recorder.record(pool, Kind::Warning, reason, message.clone());
            self.failures.set(key, Failure { reason, message });
            return Err(error);
        }
        self.failures.take(key);
        // What was asked for may come and go unseen, and then nobody else brings the pool here again.
        let expects = self.expected.remaining(key);
        Ok(recheck_after.into_iter().chain(expects).min().map_or(Next::Wait, Next::After))
    }

    /// Keeps the template as it is, before the first VM is made from it, and forgets what nothing is left of.
    async fn keep(&self, key: &Key, new: Option<&ControllerRevision>, old: &[Target]) -> Result<(), kube::Error> {
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.namespace);
        if let Some(new) = new {
            create(&revisions, new).await?;
        }
        for Target { name, uid } in old {
            delete(&revisions, name, Some(uid), None).await?;
        }
        Ok(())
    }

    /// Twice as many at a time as before, from one on: a quota, or admission that refuses the template, is asked once and not
    /// hundreds of times.
    async fn create(
        &self,
        key: &Key,
        pool: &VirtualMachinePool,
        api: &Api<VirtualMachine>,
        all: &[VirtualMachine],
    ) -> Result<(), (kube::Error, &'static str)> {
        let (mut rest, mut size) = (all, 1_usize);
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(size.min(rest.len()));
            (rest, size) = (after, size.saturating_mul(2));
            let parameters = PostParams::default();
            let made = join_all(batch.iter().map(|vm| api.create(&parameters, vm))).await;
            let mut failed = None;
            for (vm, made) in batch.iter().zip(made) {
                match made {
                    Ok(made) => {
                        log_created(&made);
                        let message = format!("Created VM {}/{}", key.namespace, made.name_any());
                        self.recorder.record(pool, Kind::Normal, "SuccessfulCreate", message);
                    }
                    Err(kube::Error::Api(status)) if status.is_already_exists() => {
                        // Ours, if an answer was lost or another leader was faster: the cache will show it. A stranger's shows
                        // as well, and then its number is taken.
                        let found = api.get_opt(&vm.name_any()).await;
                        if !matches!(&found, Ok(Some(found)) if controller_of(found) == controller_of(vm)) {
                            self.expected.created(key);
                        }
                    }
                    // The namespace goes, and the pool with it: there is nothing to try again.
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
                return Err((error, "FailedScaleOut"));
            }
        }
        Ok(())
    }

    /// Deletes VMs, and instances that their VMs start again.
    async fn shrink(
        &self,
        key: &Key,
        pool: &VirtualMachinePool,
        api: &Api<VirtualMachine>,
        all: &[Deletion],
        restart: &[Target],
    ) -> Result<(), (kube::Error, &'static str)> {
        let mut failed = None;
        for Deletion { target, why, keeps } in all {
            let done = match self.leave(key, &target.uid, keeps).await {
                Ok(()) if *why == Why::TooMany => delete(api, &target.name, Some(&target.uid), None).await,
                // Its number is free once it is gone: what it made must not be taken for its successor's.
                Ok(()) => delete_with_children(api, &target.name, &target.uid).await,
                error => error,
            };
            if let Err(error) = done {
                self.expected.deleted(key, &target.uid);
                failed = Some((error, "FailedScaleIn"));
                continue;
            }
            let why = match why {
                Why::TooMany => "there are more than asked for",
                Why::Failing => "it cannot start",
                Why::OtherDisks => "the template has other data volumes",
            };
            let message = format!("Deleted VM {}/{} with uid {}: {why}", key.namespace, target.name, target.uid);
            self.recorder.record(pool, Kind::Normal, "SuccessfulDelete", message);
        }
        let instances: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &key.namespace);
        for target in restart {
            if let Err(error) = delete(&instances, &target.name, Some(&target.uid), None).await {
                self.expected.deleted(key, &target.uid);
                failed = Some((error, "FailedUpdate"));
                continue;
            }
            let message = format!("Restarted VM {}/{} with the new template", key.namespace, target.name);
            self.recorder.record(pool, Kind::Normal, "SuccessfulUpdate", message);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Lets go of data volumes and claims, so that they stay when their VM goes.
    async fn leave(&self, key: &Key, vm: &str, names: &[String]) -> Result<(), kube::Error> {
        if names.is_empty() {
            return Ok(());
        }
        self.data_volumes.known().await;
        let api: Api<DataVolume> = Api::namespaced(self.client.clone(), &key.namespace);
        for found in self.data_volumes.of(&key.namespace).unwrap_or_default() {
            if names.contains(&found.name_any()) {
                disown(&api, &*found, vm).await?;
            }
        }
        // CDI may remove a data volume that is filled, and gives its claim to the VM before it does: what a cache says of the
        // claim may be older than that.
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        for name in names {
            for found in api.list(&ListParams::default().fields(&format!("metadata.name={name}"))).await? {
                disown(&api, &found, vm).await?;
            }
        }
        Ok(())
    }

    async fn update(
        &self,
        key: &Key,
        pool: &VirtualMachinePool,
        api: &Api<VirtualMachine>,
        all: &[(Target, Value)],
        relabel: &[(Target, Value)],
    ) -> Result<(), (kube::Error, &'static str)> {
        for (target, patch) in all {
            let vm = Key { namespace: key.namespace.clone(), name: target.name.clone() };
            self.vm_written.patch(api, &vm, patch).await.map_err(|error| (error, "FailedUpdate"))?;
            let message = format!("Updated VM {}/{} to the new template", key.namespace, target.name);
            self.recorder.record(pool, Kind::Normal, "SuccessfulUpdate", message);
        }
        let instances: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &key.namespace);
        for (target, patch) in relabel {
            let instance = Key { namespace: key.namespace.clone(), name: target.name.clone() };
            let told = self.instance_written.patch(&instances, &instance, patch).await;
            told.map_err(|error| (error, "FailedUpdate"))?;
        }
        Ok(())
    }
}

/// Takes an owner off an object, if it is one; all others stay.
async fn disown<T>(api: &Api<T>, object: &T, uid: &str) -> Result<(), kube::Error>
where
    T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let owners = object.owner_references();
    if !owners.iter().any(|owner| owner.uid == uid) {
        return Ok(());
    }
    let others: Vec<_> = owners.iter().filter(|owner| owner.uid != uid).collect();
    let patch = guarded(object.meta(), json!({ "metadata": { "ownerReferences": others } }));
    let written = api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await;
    unless_gone(written.inspect(|_| log_changed::<T>(&object.name_any())))
}
