//! Observes, decides and acts: the part of the VM controller that speaks to the server.

mod feeding;
mod kinds;

use std::sync::Arc;

use api::data_volume::DataVolume;
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::{Chance, Context, Now, Started};
use manager::errors::chain;
use manager::events::{Kind, Recorder};
use manager::kit::{Expected, Kit, Reconciler, Remembered, Written};
use manager::worker::Next;
use manager::writing::{create, delete, delete_as_seen, is_namespace_terminating, log_created};
use serde_json::Value;

use super::instancetypes::choose;
use super::{Observed, Plan, Start, Stop, decide, revision};
use crate::configuration::Configuration;
use crate::data_volumes::DataVolumes;
use crate::indexes;
use crate::vmi::Target;
use crate::vmi::volumes::Known;
use crate::volume_snapshots::VolumeSnapshots;
use kinds::Kinds;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "vm-controller";

/// The controller.
#[must_use]
pub(crate) fn start(
    context: &Context,
    data_volumes: DataVolumes,
    volume_snapshots: VolumeSnapshots,
    workers: usize,
) -> Started {
    let (kit, caches) = (Kit::new(NAME, context), &context.caches);
    let revisions = indexes::revisions(caches);
    let controller = Vms {
        client: context.client.clone(),
        vms: indexes::vms(caches),
        vmis: indexes::vmis(caches),
        claims: caches.of(&[]),
        kinds: Kinds::new(caches, revisions.clone()),
        revisions,
        data_volumes,
        volume_snapshots,
        configuration: Configuration::new(context),
        expected: kit.expected(),
        written: kit.written(),
        instance_written: Written::default(),
        failures: kit.remembers("failure"),
        recorder: context.recorder.of("virtualmachine-controller"),
        now: context.now.clone(),
        chance: context.chance.clone(),
    };
    feeding::feed(kit, &controller).run(workers, controller)
}

struct Vms {
    client: Client,
    vms: Cache<VirtualMachine>,
    vmis: Cache<VirtualMachineInstance>,
    claims: Cache<PersistentVolumeClaim>,
    revisions: Cache<ControllerRevision>,
    kinds: Kinds,
    data_volumes: DataVolumes,
    volume_snapshots: VolumeSnapshots,
    configuration: Configuration,
    expected: Expected,
    written: Written,
    /// The same of instances, by their own keys.
    instance_written: Written,
    failures: Remembered<String>,
    recorder: Recorder,
    now: Now,
    chance: Chance,
}

impl Reconciler for Vms {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(vm) = self.vms.get(key) else { return Ok(Next::Wait) };
        let instance = self.vmis.get(key);
        if self.written.is_behind(key, &*vm)
            || instance.as_ref().is_some_and(|instance| self.instance_written.is_behind(key, &**instance))
        {
            return Ok(Next::Wait);
        }
        if let Some(left) = self.expected.remaining(key) {
            return Ok(Next::After(left));
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
}

impl Vms {
    fn decide(&self, key: &Key, vm: &VirtualMachine, instance: Option<&VirtualMachineInstance>, asked: bool) -> Plan {
        let uid = vm.metadata.uid.as_deref().unwrap_or_default();
        let config = self.configuration.current();
        let strays = self.vmis.find("controller", uid);
        // At rest there is nothing to learn from them, and to read them takes longer than all the rest.
        let known = self.revisions.keys("controller", uid);
        let is_news = |key: &Key| !instance.is_some_and(|instance| revision::was_started_from(instance, &key.name));
        let follows = instance.is_none_or(|instance| revision::has_heard_of(vm, instance));
        let revisions = match follows && !known.iter().any(is_news) {
            true => Vec::new(),
            false => self.revisions.find("controller", uid),
        };
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
        let failure = self.failures.get(key);
        let observed = Observed {
            vm,
            instance,
            asked,
            strays: strays.iter().map(|vmi| &**vmi).filter(|vmi| vmi.metadata.name != vm.metadata.name).collect(),
            revisions: revisions.iter().map(|revision| &**revision).collect(),
            chosen: choose(vm, &config, &self.kinds),
            volumes: known,
            snapshot_classes: self.volume_snapshots.classes(),
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
        let vms: Api<VirtualMachine> = Api::namespaced(self.client.clone(), &key.namespace);
        if let Some(change) = &change {
            return self.written.patch(&vms, key, change).await.map(|_| Next::Wait);
        }
        for volume in &volumes {
            self.make_volume(key, vm, volume).await?;
        }
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.namespace);
        for revision in &keep {
            create(&api, revision).await?;
        }
        if let Some(status) = &status {
            self.written.patch_status(&vms, key, status).await?;
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
        let expects = self.expected.remaining(key);
        Ok(recheck_after.into_iter().chain(expects).min().map_or(Next::Wait, Next::After))
    }

    async fn change_instance(&self, key: &Key, target: &Target, patch: &Value) -> Result<(), kube::Error> {
        let api: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &key.namespace);
        let key = Key { namespace: key.namespace.clone(), name: target.name.clone() };
        self.instance_written.patch(&api, &key, patch).await.map(drop)
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
        self.expected.expect(key, 1, []);
        let failed = match api.create(&PostParams::default(), &start.instance).await {
            Ok(made) => {
                log_created(&made);
                self.failures.take(key);
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
        self.expected.created(key);
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
        self.expected.expect(key, 0, [target.uid.clone()]);
        let done = delete_as_seen(&api, &target.name, &target.uid, version).await;
        match &done {
            Ok(()) => {
                let message =
                    format!("Stopped the virtual machine by deleting the virtual machine instance {}", target.uid);
                self.recorder.record(vm, Kind::Normal, "SuccessfulDelete", message);
            }
            Err(error) => {
                self.expected.deleted(key, &target.uid);
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
        let known = self.failures.set(key, message.to_owned());
        if known.as_deref() != Some(message) {
            self.recorder.record(vm, Kind::Warning, reason, message);
        }
    }
}
