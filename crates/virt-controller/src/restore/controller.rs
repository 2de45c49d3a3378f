//! Observes, decides and acts: the part of the restore controller that speaks to the server.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use api::data_volume::DataVolume;
use api::restore::VirtualMachineRestore as Restore;
use api::snapshot::{VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotContent as Content};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::volume_snapshot::VolumeSnapshot;
use http::Request;
use http::header::CONTENT_TYPE;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use manager::cache::{Cache, Changed, Index, Key};
use manager::context::{Context, Now, Started};
use manager::events::Recorder;
use manager::kit::{Kit, Reconciler, Remembered, Written};
use manager::worker::Next;
use manager::writing::{create, delete, log_changed, log_created, unless_gone};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::volumes::copy_obstacle;
use super::{Observed, Replaced, RestorePlan, decide, has_begun, is_progressing};
use crate::data_volumes::DataVolumes;
use crate::indexes;
use crate::snapshot::content_name;
use crate::volume_snapshots::VolumeSnapshots;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "restore-controller";

/// The controller.
#[must_use]
pub(crate) fn start(
    context: &Context,
    data_volumes: DataVolumes,
    volume_snapshots: VolumeSnapshots,
    workers: usize,
) -> Started {
    let (kit, caches) = (Kit::new(NAME, context), &context.caches);
    let controller = Restores {
        client: context.client.clone(),
        restores: caches.of(&[("vm", target_of), ("snapshot", snapshot_of), ("claim", claims_of)]),
        snapshots: caches.of(&[]),
        contents: caches.of(&[]),
        vms: indexes::vms(caches),
        vmis: indexes::vmis(caches),
        claims: caches.of(&[]),
        revisions: indexes::revisions(caches),
        data_volumes,
        volume_snapshots,
        written: kit.written(),
        failures: kit.remembers("failure"),
        recorder: context.recorder.of("restore-controller"),
        now: context.now.clone(),
    };
    feed(kit, &controller).run(workers, controller)
}

fn within(restore: &Restore, name: &str) -> String {
    format!("{}/{name}", restore.metadata.namespace.as_deref().unwrap_or_default())
}

/// The VM that a restore is of, as `namespace/name`.
fn target_of(restore: &Restore) -> Vec<String> {
    vec![within(restore, &restore.spec.target.name)]
}

/// The snapshot that a restore is made of, as `namespace/name`.
fn snapshot_of(restore: &Restore) -> Vec<String> {
    vec![within(restore, &restore.spec.virtual_machine_snapshot_name)]
}

/// Restores by the snapshot that they are made of.
pub(crate) const BY_SNAPSHOT: [(&str, Index<Restore>); 1] = [("snapshot", snapshot_of)];

/// The snapshot of a restore that has changed.
pub(crate) fn snapshot_in(change: &Changed<Restore>) -> Option<Key> {
    let restore = change.new.as_ref().or(change.old.as_ref())?;
    Some(Key { namespace: change.key.namespace.clone(), name: restore.spec.virtual_machine_snapshot_name.clone() })
}

/// Whether a restore of a snapshot has begun, and has not ended.
pub(crate) fn use_it(restores: &Cache<Restore>, snapshot: &Key) -> bool {
    let all = restores.find("snapshot", &format!("{}/{}", snapshot.namespace, snapshot.name));
    all.iter().any(|restore| has_begun(restore))
}

/// The claims and data volumes that a restore makes, as `namespace/name`.
fn claims_of(restore: &Restore) -> Vec<String> {
    let restores = restore.status.iter().flat_map(|status| status.restores.iter().flatten());
    let names = restores.flat_map(|one| [Some(&one.persistent_volume_claim), one.data_volume_name.as_ref()]);
    names.flatten().map(|name| within(restore, name)).collect()
}

/// Declares all that a restore has to be looked at for.
fn feed(kit: Kit, controller: &Restores) -> Kit {
    let Restores {
        restores, snapshots, contents, vms, vmis, claims, revisions, data_volumes, volume_snapshots, ..
    } = controller;
    let (of_content, watching, copies) = (restores.clone(), data_volumes.clone(), volume_snapshots.clone());
    let (of_copy, contents_of, of_user) = (restores.clone(), contents.clone(), restores.clone());
    kit.also(async move { watching.run().await })
        .also(async move { copies.run().await })
        .reconciles(restores)
        .watch(vms, of::<VirtualMachine>(restores, "vm"))
        .watch(vmis, move |change: &Changed<VirtualMachineInstance>| {
            let Key { namespace, name } = &change.key;
            let used = [&change.old, &change.new].into_iter().flatten().flat_map(|vmi| indexes::claims_of(vmi));
            let used = used.flat_map(|claim| find(&of_user, "claim", namespace, &claim));
            find(&of_user, "vm", namespace, name).into_iter().chain(used).collect::<BTreeSet<_>>()
        })
        .watch(snapshots, of::<Snapshot>(restores, "snapshot"))
        .watch(contents, move |change: &Changed<Content>| {
            let content = change.new.as_ref().or(change.old.as_ref());
            content.map(|content| of_the_snapshot(&of_content, content)).unwrap_or_default()
        })
        .hears_of(volume_snapshots.snapshots(), move |change: &Changed<VolumeSnapshot>| {
            let copy = change.new.as_ref().or(change.old.as_ref());
            let owner = copy.and_then(|copy| api::owner::controller_of(&copy.metadata).cloned());
            let here = |name| Key { namespace: change.key.namespace.clone(), name };
            let content = owner.and_then(|owner| contents_of.get(&here(owner.name)));
            content.map(|content| of_the_snapshot(&of_copy, &content)).unwrap_or_default()
        })
        .watch(claims, of::<PersistentVolumeClaim>(restores, "claim"))
        .hears_of(data_volumes.cache(), of::<DataVolume>(restores, "claim"))
        .needs(volume_snapshots.storage_classes())
        .needs(revisions)
}

/// An object is news for the restores that name it, and have not ended.
fn of<T>(restores: &Cache<Restore>, index: &'static str) -> impl Fn(&Changed<T>) -> Vec<Key> + Send + use<T> {
    let restores = restores.clone();
    move |change| find(&restores, index, &change.key.namespace, &change.key.name)
}

/// Restores that are made of a content's snapshot.
fn of_the_snapshot(restores: &Cache<Restore>, content: &Content) -> Vec<Key> {
    let namespace = content.metadata.namespace.as_deref().unwrap_or_default();
    let name = content.spec.virtual_machine_snapshot_name.as_deref();
    name.map(|name| find(restores, "snapshot", namespace, name)).unwrap_or_default()
}

fn find(restores: &Cache<Restore>, index: &str, namespace: &str, name: &str) -> Vec<Key> {
    let all = restores.find(index, &format!("{namespace}/{name}"));
    let open = |one: &&Arc<Restore>| is_progressing(one) || one.metadata.deletion_timestamp.is_some();
    all.iter().filter(open).map(|one| Key::of(&**one)).collect()
}

struct Restores {
    client: Client,
    restores: Cache<Restore>,
    snapshots: Cache<Snapshot>,
    contents: Cache<Content>,
    vms: Cache<VirtualMachine>,
    vmis: Cache<VirtualMachineInstance>,
    claims: Cache<PersistentVolumeClaim>,
    revisions: Cache<ControllerRevision>,
    data_volumes: DataVolumes,
    volume_snapshots: VolumeSnapshots,
    written: Written,
    failures: Remembered<String>,
    recorder: Recorder,
    now: Now,
}

impl Reconciler for Restores {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(restore) = self.restores.get(key) else { return Ok(Next::Wait) };
        if self.written.is_behind(key, &*restore) {
            return Ok(Next::Wait);
        }
        self.data_volumes.known().await;
        self.volume_snapshots.known().await;
        let plan = self.decide(key, &restore);
        let done = self.act(key, &restore, plan).await;
        // A race is only lost.
        self.failures.refusal(key, done)
    }
}

impl Restores {
    fn decide(&self, key: &Key, restore: &Restore) -> RestorePlan {
        let here = |name: &str| Key { namespace: key.namespace.clone(), name: name.to_owned() };
        let target = here(&restore.spec.target.name);
        let (vm, vmi) = (self.vms.get(&target), self.vmis.get(&target));
        let snapshot = self.snapshots.get(&here(&restore.spec.virtual_machine_snapshot_name));
        let content = snapshot.as_deref().and_then(|snapshot| self.contents.get(&here(&content_name(snapshot))));
        let backups = content.iter().flat_map(|content| content.spec.volume_backups.iter().flatten());
        let copies = backups.filter_map(|backup| backup.volume_snapshot_name.as_deref());
        let copies: Vec<Arc<VolumeSnapshot>> =
            copies.filter_map(|name| self.volume_snapshots.snapshots().get(&here(name))).collect();
        let names = claim_names(restore, content.as_deref());
        let claims: Vec<_> = names.iter().filter_map(|name| self.claims.get(&here(name))).collect();
        let is_used = |name: &&String| !self.vmis.find("claim", &format!("{}/{name}", key.namespace)).is_empty();
        let volumes = self.data_volumes.of(&key.namespace);
        let revisions = revision_names(restore, vm.as_deref(), content.as_deref());
        let revisions: Vec<_> = revisions.iter().filter_map(|name| self.revisions.get(&here(name))).collect();
        let classes = self.volume_snapshots.storage_classes().all();
        let late = classes.iter().filter(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        let failure = self.failures.get(key);
        let observed = Observed {
            restore,
            vm: vm.as_deref(),
            vmi: vmi.as_deref(),
            snapshot: snapshot.as_deref(),
            content: content.as_deref(),
            copies: copies.iter().map(|one| (name(&one.metadata), &**one)).collect(),
            claims: claims.iter().map(|one| (name(&one.metadata), &**one)).collect(),
            used: names.iter().filter(is_used).map(String::as_str).collect(),
            data_volumes: volumes.as_ref().map(|all| all.iter().map(|one| (name(&one.metadata), &**one)).collect()),
            late_binding: late.map(|class| name(&class.metadata)).collect(),
            revisions: revisions.iter().map(|one| (name(&one.metadata), &**one)).collect(),
            failure: failure.as_deref(),
        };
        decide(&observed, (self.now)())
    }

    async fn act(&self, key: &Key, restore: &Restore, plan: RestorePlan) -> Result<Next, kube::Error> {
        let api: Api<Restore> = self.api(key);
        if let Some(protect) = &plan.protect {
            return self.written.patch(&api, key, protect).await.map(|_| Next::Wait);
        }
        let target = &restore.spec.target.name;
        if plan.stop {
            self.stop(key, target).await?;
        }
        let vms: Api<VirtualMachine> = self.api(key);
        if let Some(status) = &plan.vm_status {
            unless_gone(vms.patch_status(target, &PatchParams::default(), &Patch::Merge(status)).await)?;
        }
        self.act_on_volumes(key, &plan).await?;
        self.act_on_machine(key, restore, &plan).await?;
        let volumes: Api<DataVolume> = self.api(key);
        for gone in &plan.delete_data_volumes {
            delete(&volumes, &gone.name, Some(&gone.uid), None).await?;
        }
        if let Some(status) = &plan.status {
            self.written.patch_status(&api, key, status).await?;
        }
        for event in plan.events {
            self.recorder.record(restore, event.kind, event.reason, event.message);
        }
        if let Some(release) = &plan.release {
            self.written.patch(&api, key, release).await?;
        }
        Ok(plan.recheck_after.map_or(Next::Wait, Next::After))
    }

    async fn act_on_volumes(&self, key: &Key, plan: &RestorePlan) -> Result<(), kube::Error> {
        let (claims, volumes): (Api<PersistentVolumeClaim>, Api<DataVolume>) = (self.api(key), self.api(key));
        for (name, patch) in &plan.data_volume_patches {
            change(&volumes, name, patch).await?;
        }
        let copies: Api<VolumeSnapshot> = self.api(key);
        for Replaced { claim, copy } in &plan.replace {
            // The server itself is asked: what a cache still shows may be gone.
            if copies.get_opt(copy).await?.is_some_and(|copy| copy_obstacle(&copy).is_none()) {
                delete(&claims, &claim.name, Some(&claim.uid), None).await?;
            }
        }
        for claim in &plan.claims {
            create(&claims, claim).await?;
            self.failures.take(key);
        }
        for (name, patch) in &plan.claim_patches {
            change(&claims, name, patch).await?;
        }
        for volume in &plan.data_volumes {
            create(&volumes, volume).await?;
            self.failures.take(key);
        }
        Ok(())
    }

    async fn act_on_machine(&self, key: &Key, restore: &Restore, plan: &RestorePlan) -> Result<(), kube::Error> {
        let (vms, revisions): (Api<VirtualMachine>, Api<ControllerRevision>) = (self.api(key), self.api(key));
        for gone in &plan.delete_revisions {
            delete(&revisions, &gone.name, Some(&gone.uid), None).await?;
        }
        for revision in &plan.revisions {
            create(&revisions, revision).await?;
        }
        if let Some(vm) = &plan.create {
            match vms.create(&PostParams::default(), vm).await {
                Ok(made) => log_created(&made),
                // An answer was lost: the cache will show whose it is.
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => return Err(error),
            }
            self.failures.take(key);
        }
        if let Some(patch) = &plan.vm {
            change(&vms, &restore.spec.target.name, patch).await?;
            self.failures.take(key);
        }
        for (name, patch) in &plan.revision_patches {
            change(&revisions, name, patch).await?;
        }
        Ok(())
    }

    /// Asks for the target's stop. One that is stopping already, or gone, needs nothing more.
    async fn stop(&self, key: &Key, vm: &str) -> Result<(), kube::Error> {
        let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/{}/virtualmachines/{vm}/stop", key.namespace);
        let request = Request::put(path).header(CONTENT_TYPE, "application/json").body(b"{}".to_vec());
        match self.client.request_text(request.map_err(kube::Error::HttpError)?).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            asked => asked.map(|_| log_changed::<VirtualMachine>(vm)),
        }
    }

    fn api<T: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>>(&self, key: &Key) -> Api<T> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

async fn change<T>(api: &Api<T>, name: &str, patch: &Value) -> Result<(), kube::Error>
where
    T: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let written = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    unless_gone(written.inspect(|_| log_changed::<T>(name)))
}

fn name(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// Claims that a restore looks at: those that it makes, and those that data volumes of its VM would fill.
fn claim_names(restore: &Restore, content: Option<&Content>) -> BTreeSet<String> {
    let restores = restore.status.iter().flat_map(|status| status.restores.iter().flatten());
    let mut names: BTreeSet<String> = restores
        .flat_map(|one| [Some(one.persistent_volume_claim.clone()), one.data_volume_name.clone()])
        .flatten()
        .collect();
    let backups = content.iter().flat_map(|content| content.spec.volume_backups.iter().flatten());
    for backup in backups {
        let claim = backup.persistent_volume_claim.metadata.as_ref().and_then(|metadata| metadata.name.clone());
        names.insert(super::names::restored(restore, &backup.volume_name, claim.as_deref().unwrap_or_default()));
    }
    let spec = content.and_then(|content| content.spec.source.virtual_machine.as_ref()?.spec.as_ref());
    let templates = spec.into_iter().flat_map(|spec| spec.data_volume_templates.iter().flatten());
    names.extend(templates.filter_map(|template| template.metadata.as_ref()?.name.clone()));
    names
}

/// Revisions that the snapshot's VM names, and what a restore calls its own of them.
fn revision_names(restore: &Restore, vm: Option<&VirtualMachine>, content: Option<&Content>) -> BTreeSet<String> {
    let frozen = content.and_then(|content| content.spec.source.virtual_machine.as_ref()?.spec.as_ref());
    let mut names = BTreeSet::new();
    for spec in frozen.into_iter().chain(vm.map(|vm| &vm.spec)) {
        let instancetype = spec.instancetype.as_ref().and_then(|matcher| matcher.revision_name.clone());
        let preference = spec.preference.as_ref().and_then(|matcher| matcher.revision_name.clone());
        for name in instancetype.into_iter().chain(preference) {
            names.insert(name.replacen(&restore.spec.virtual_machine_snapshot_name, &restore.spec.target.name, 1));
            names.insert(name);
        }
    }
    names
}
