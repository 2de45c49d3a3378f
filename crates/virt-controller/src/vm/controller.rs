//! Observes, decides and acts: the part of the VM controller that speaks to the server.

mod feeding;
mod kinds;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::data_volume::DataVolume;
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key, controller_of};
use manager::context::{Chance, Context, Now};
use manager::errors::chain;
use manager::events::{Kind, Recorder};
use manager::expectations::Expectations;
use manager::queue::Queue;
use manager::worker::{Next, found, work};
use manager::writing::{
    OwnWrites, create, delete, delete_as_seen, is_namespace_terminating, log_changed, log_created, unless_gone,
};
use serde_json::Value;
use tokio::time::Instant;

use super::instancetypes::choose;
use super::{Observed, Plan, Start, Stop, decide};
use crate::configuration::Configuration;
use crate::data_volumes::DataVolumes;
use crate::indexes;
use crate::vmi::Target;
use crate::vmi::volumes::Known;
use kinds::Kinds;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "vm-controller";

/// The controller. Clones share it.
#[derive(Clone)]
pub struct VmController {
    client: Client,
    vms: Cache<VirtualMachine>,
    vmis: Cache<VirtualMachineInstance>,
    claims: Cache<PersistentVolumeClaim>,
    revisions: Cache<ControllerRevision>,
    kinds: Kinds,
    data_volumes: DataVolumes,
    configuration: Configuration,
    queue: Queue<Key>,
    memory: Arc<Mutex<Memory>>,
    recorder: Recorder,
    now: Now,
    chance: Chance,
}

/// What is remembered between two looks at a VM.
#[derive(Default)]
struct Memory {
    expectations: Expectations<Key>,
    writes: OwnWrites<Key>,
    instance_writes: OwnWrites<Key>,
    failures: BTreeMap<Key, String>,
}

impl VmController {
    /// A controller; it reads from the context's caches.
    #[must_use]
    pub(crate) fn new(context: &Context, data_volumes: DataVolumes) -> Self {
        let caches = &context.caches;
        let revisions = caches.of(&[("controller", controller_of)]);
        Self {
            client: context.client.clone(),
            vms: caches.of(&[("claim", indexes::claims_of_vm)]),
            vmis: caches.of(&indexes::VMIS),
            claims: caches.of(&[]),
            kinds: Kinds::new(caches, revisions.clone()),
            revisions,
            data_volumes,
            configuration: Configuration::new(context),
            queue: context.queue(NAME),
            memory: Arc::default(),
            recorder: context.recorder.of("virtualmachine-controller"),
            now: context.now.clone(),
            chance: context.chance.clone(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs until the queue is closed.
    pub async fn run(&self, workers: usize) {
        // Nobody acts on half a picture.
        self.vms.synced().await;
        self.vmis.synced().await;
        self.claims.synced().await;
        self.revisions.synced().await;
        self.configuration.synced().await;
        self.kinds.synced().await;
        let work = work(NAME, &self.queue, workers, |key: Key| {
            let controller = self.clone();
            async move { controller.reconcile(&key).await }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.data_volumes.run() => {}
            () = self.feed_vms() => {}
            () = self.feed_vmis() => {}
            () = self.feed_revisions() => {}
            () = self.feed_claims() => {}
            () = self.feed_data_volumes() => {}
            () = self.feed_kinds() => {}
        }
    }

    async fn feed_vms(&self) {
        let mut changes = self.vms.subscribe();
        loop {
            let change = changes.next().await;
            let uid = |vm: &Option<Arc<VirtualMachine>>| vm.as_ref().and_then(|vm| vm.uid());
            if uid(&change.old) != uid(&change.new) {
                let mut memory = self.memory();
                memory.expectations.forget(&change.key);
                memory.failures.remove(&change.key);
                if change.new.is_none() {
                    memory.writes.forget(&change.key);
                }
            }
            self.queue.add(change.key);
        }
    }

    /// An instance is news for the VM of its name, and for the one that controls it.
    async fn feed_vmis(&self) {
        let mut changes = self.vmis.subscribe();
        loop {
            let change = changes.next().await;
            if change.old.is_none() {
                self.memory().expectations.created(&change.key);
            }
            if change.new.as_ref().is_none_or(|vmi| vmi.is_marked_for_deletion()) {
                let uid = change.old.as_ref().or(change.new.as_ref()).and_then(|vmi| vmi.uid()).unwrap_or_default();
                self.memory().expectations.deleted(&change.key, &uid);
            }
            if change.new.is_none() {
                self.memory().instance_writes.forget(&change.key);
            }
            let owner = change.new.as_ref().and_then(|vmi| api::owner::controller_of(&vmi.metadata));
            if let Some(owner) = owner.filter(|owner| owner.kind == "VirtualMachine" && owner.name != change.key.name) {
                let namespace = change.key.namespace.clone();
                self.queue.add(Key { namespace, name: owner.name.clone() });
            }
            self.queue.add(change.key);
        }
    }

    /// What an instance was started from may be known later than the instance: only then can be told what it lacks.
    async fn feed_revisions(&self) {
        let mut changes = self.revisions.subscribe();
        loop {
            let change = changes.next().await;
            let new = change.new.as_ref().filter(|_| change.old.is_none());
            let owner = new.and_then(|revision| api::owner::controller_of(&revision.metadata));
            if let Some(owner) = owner.filter(|owner| owner.kind == "VirtualMachine") {
                self.queue.add(Key { namespace: change.key.namespace, name: owner.name.clone() });
            }
        }
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(vm) = self.vms.get(key) else { return Ok(Next::Wait) };
        found(&*vm);
        let instance = self.vmis.get(key);
        {
            let memory = self.memory();
            let version = |metadata: &kube::core::ObjectMeta| metadata.resource_version.clone();
            let seen = instance.as_ref().and_then(|instance| version(&instance.metadata));
            if memory.writes.is_behind(key, version(&vm.metadata).as_deref())
                || memory.instance_writes.is_behind(key, seen.as_deref())
            {
                return Ok(Next::Wait);
            }
            if let Some(left) = memory.expectations.remaining(key, Instant::now()) {
                return Ok(Next::After(left));
            }
        }
        let uses = vm.spec.template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        if uses.into_iter().any(|volume| volume.data_volume.is_some()) || vm.spec.data_volume_templates.is_some() {
            self.data_volumes.known().await;
        }
        let mut plan = self.decide(key, &vm, instance.as_deref(), false);
        if plan.ask {
            let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &key.namespace);
            let found = api.get_opt(&key.name).await?;
            plan = self.decide(key, &vm, found.as_ref(), true);
        }
        self.act(key, &vm, plan).await
    }

    fn decide(&self, key: &Key, vm: &VirtualMachine, instance: Option<&VirtualMachineInstance>, asked: bool) -> Plan {
        let uid = vm.metadata.uid.as_deref().unwrap_or_default();
        let config = self.configuration.current();
        let strays = self.vmis.find("controller", uid);
        let revisions = self.revisions.find("controller", uid);
        let of_cache = |name: &String| self.claims.get(&Key { namespace: key.namespace.clone(), name: name.clone() });
        let named = indexes::claim_names_of_vm(vm);
        let volumes = self.data_volumes.of(&key.namespace);
        let volumes: Option<Vec<Arc<DataVolume>>> =
            volumes.map(|all| all.into_iter().filter(|one| named.contains(&one.name_any())).collect());
        let claims: Vec<_> = named.iter().filter_map(of_cache).collect();
        let known = Known {
            claims: claims.iter().map(|claim| (claim.metadata.name.as_deref().unwrap_or_default(), &**claim)).collect(),
            data_volumes: volumes.as_ref().map(|volumes| {
                volumes.iter().map(|one| (one.metadata.name.as_deref().unwrap_or_default(), &**one)).collect()
            }),
            ..Known::default()
        };
        let failure = self.memory().failures.get(key).cloned();
        let observed = Observed {
            vm,
            instance,
            asked,
            strays: strays.iter().map(|vmi| &**vmi).filter(|vmi| vmi.metadata.name != vm.metadata.name).collect(),
            revisions: revisions.iter().map(|revision| &**revision).collect(),
            chosen: choose(vm, &config, &self.kinds),
            volumes: known,
            config: &config,
            failure: failure.as_deref(),
            chance: self.chance.share(),
        };
        decide(&observed, (self.now)())
    }

    async fn act(&self, key: &Key, vm: &VirtualMachine, plan: Plan) -> Result<Next, kube::Error> {
        let Plan { ask: _, vm: change, instances, volumes, keep, status, start, stop, forget, events, recheck_after } =
            plan;
        for event in events {
            self.recorder.record(vm, event.kind, event.reason, event.message);
        }
        for (target, patch) in &instances {
            self.change_instance(key, target, patch).await?;
        }
        if let Some(change) = &change {
            return self.change(key, change).await.map(|()| Next::Wait);
        }
        for volume in &volumes {
            self.make_volume(key, vm, volume).await?;
        }
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.namespace);
        for revision in &keep {
            create(&api, revision).await?;
        }
        if let Some(status) = &status {
            self.change_status(key, status).await?;
        }
        if let Some(stop) = &stop {
            self.stop(key, vm, stop).await?;
        }
        if let Some(start) = &start {
            self.start(key, vm, start).await?;
        }
        for Target { name, uid } in &forget {
            delete(&api, name, Some(uid), None).await?;
        }
        // What was asked for may come and go unseen, and then nobody else brings the VM here again.
        let expects = self.memory().expectations.remaining(key, Instant::now());
        Ok(recheck_after.into_iter().chain(expects).min().map_or(Next::Wait, Next::After))
    }

    async fn change(&self, key: &Key, patch: &Value) -> Result<(), kube::Error> {
        let api: Api<VirtualMachine> = Api::namespaced(self.client.clone(), &key.namespace);
        let written = api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        self.note(key, written.inspect(|_| log_changed::<VirtualMachine>(&key.name)))
    }

    async fn change_status(&self, key: &Key, patch: &Value) -> Result<(), kube::Error> {
        let api: Api<VirtualMachine> = Api::namespaced(self.client.clone(), &key.namespace);
        self.note(key, api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    fn note(&self, key: &Key, written: Result<VirtualMachine, kube::Error>) -> Result<(), kube::Error> {
        if let Ok(written) = &written {
            self.memory().writes.note(key.clone(), written.metadata.resource_version.as_deref());
        }
        unless_gone(written)
    }

    async fn change_instance(&self, key: &Key, target: &Target, patch: &Value) -> Result<(), kube::Error> {
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &key.namespace);
        let written = api.patch(&target.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        if let Ok(written) = &written {
            log_changed::<VirtualMachineInstance>(&target.name);
            let key = Key { namespace: key.namespace.clone(), name: target.name.clone() };
            self.memory().instance_writes.note(key, written.metadata.resource_version.as_deref());
        }
        unless_gone(written)
    }

    async fn make_volume(&self, key: &Key, vm: &VirtualMachine, volume: &DataVolume) -> Result<(), kube::Error> {
        let api: Api<DataVolume> = Api::namespaced(self.client.clone(), &key.namespace);
        let made = create(&api, volume).await;
        let name = volume.name_any();
        match &made {
            Ok(()) => {
                let message = format!("Created DataVolume {name}");
                self.recorder.record(vm, Kind::Normal, "SuccessfulDataVolumeCreate", message);
            }
            Err(error) => {
                self.failed(key, vm, "FailedDataVolumeCreate", &format!("Error creating {name}: {}", chain(error)));
            }
        }
        made
    }

    async fn start(&self, key: &Key, vm: &VirtualMachine, start: &Start) -> Result<(), kube::Error> {
        // Nothing is started for a VM that has changed meanwhile, whatever the cache says: a VM that was halted stays so.
        let vms: Api<VirtualMachine> = Api::namespaced(self.client.clone(), &key.namespace);
        let current = vms.get_opt(&key.name).await?;
        let version = |vm: &VirtualMachine| (vm.uid(), vm.resource_version());
        if current.is_none_or(|current| version(&current) != version(vm)) {
            return Ok(());
        }
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.namespace);
        create(&revisions, &start.revision).await?;
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &key.namespace);
        self.memory().expectations.expect(key.clone(), 1, [], Instant::now());
        let failed = match api.create(&PostParams::default(), &start.instance).await {
            Ok(made) => {
                log_created(&made);
                self.memory().failures.remove(key);
                let message = format!(
                    "Started the virtual machine by creating the new virtual machine instance {}",
                    made.name_any()
                );
                self.recorder.record(vm, Kind::Normal, "SuccessfulCreate", message);
                return Ok(());
            }
            // An answer was lost, or another leader was faster, or a stranger's is there: the cache will show it.
            Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
            Err(error) => error,
        };
        self.memory().expectations.created(key);
        if let kube::Error::Api(status) = &failed
            && (status.code == 404 || is_namespace_terminating(status))
        {
            return Ok(());
        }
        self.failed(key, vm, "FailedCreate", &format!("Error creating virtual machine instance: {}", chain(&failed)));
        Err(failed)
    }

    async fn stop(&self, key: &Key, vm: &VirtualMachine, Stop { target, version }: &Stop) -> Result<(), kube::Error> {
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &key.namespace);
        self.memory().expectations.expect(key.clone(), 0, [target.uid.clone()], Instant::now());
        let done = delete_as_seen(&api, &target.name, &target.uid, version).await;
        match &done {
            Ok(()) => {
                let message =
                    format!("Stopped the virtual machine by deleting the virtual machine instance {}", target.uid);
                self.recorder.record(vm, Kind::Normal, "SuccessfulDelete", message);
            }
            Err(error) => {
                self.memory().expectations.deleted(key, &target.uid);
                // What has changed meanwhile is looked at again.
                if !matches!(error, kube::Error::Api(status) if status.code == 409) {
                    self.recorder.record(
                        vm,
                        Kind::Warning,
                        "FailedDelete",
                        format!("Error deleting: {}", chain(error)),
                    );
                }
            }
        }
        done
    }

    /// Remembers a failure for the status, and tells it when it is new.
    fn failed(&self, key: &Key, vm: &VirtualMachine, reason: &str, message: &str) {
        let known = self.memory().failures.insert(key.clone(), message.to_owned());
        if known.as_deref() != Some(message) {
            self.recorder.record(vm, Kind::Warning, reason, message);
        }
    }
}
