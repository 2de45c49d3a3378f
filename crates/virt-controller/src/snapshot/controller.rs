//! Observes, decides and acts: the part of the snapshot controller that speaks to the server.

use std::sync::Arc;
use std::time::Duration;

use api::data_volume::DataVolume;
use api::restore::VirtualMachineRestore as Restore;
use api::snapshot::{VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotContent as Content};
use api::vm::VirtualMachine;
use api::vmi::VirtualMachineInstance;
use api::volume_snapshot::VolumeSnapshot;
use http::Request;
use http::header::CONTENT_TYPE;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Changed, Key};
use manager::context::{Context, Now, Started};
use manager::errors::chain;
use manager::events::{Kind, Recorder};
use manager::kit::{Kit, Reconciler, Remembered, Written};
use manager::worker::Next;
use manager::writing::{create, delete, log_changed, log_created, unless_gone};
use serde_json::{Value, json};

use super::{AGAIN, Failure, GoOn, Observed, Quiet, SnapshotPlan, content_name, decide};
use crate::data_volumes::DataVolumes;
use crate::indexes;
use crate::restore::controller as restore;
use crate::vmi::volumes::Known;
use crate::volume_snapshots::VolumeSnapshots;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "snapshot-controller";

/// The controller.
#[must_use]
pub(crate) fn start(
    context: &Context,
    data_volumes: DataVolumes,
    volume_snapshots: VolumeSnapshots,
    workers: usize,
) -> Started {
    let (kit, caches) = (Kit::new(NAME, context), &context.caches);
    let controller = Snapshots {
        client: context.client.clone(),
        snapshots: caches.of(&[("vm", vm_of)]),
        contents: caches.of(&[("snapshot", snapshot_of)]),
        vms: indexes::vms(caches),
        vmis: indexes::vmis(caches),
        claims: caches.of(&[]),
        pods: indexes::pods(caches),
        revisions: indexes::revisions(caches),
        data_volumes,
        volume_snapshots,
        written: kit.written(),
        restores: caches.of(&restore::BY_SNAPSHOT),
        failures: kit.remembers("failure"),
        recorder: context.recorder.of("snapshot-controller"),
        now: context.now.clone(),
    };
    feed(kit, &controller).run(workers, controller)
}

/// The VM that a snapshot is of, as `namespace/name`.
fn vm_of(snapshot: &Snapshot) -> Vec<String> {
    vec![format!("{}/{}", snapshot.namespace().unwrap_or_default(), snapshot.spec.source.name)]
}

/// The snapshot that a content is of, as `namespace/name`.
fn snapshot_of(content: &Content) -> Vec<String> {
    let name = content.spec.virtual_machine_snapshot_name.iter();
    name.map(|name| format!("{}/{name}", content.namespace().unwrap_or_default())).collect()
}

/// Declares all that a snapshot has to be looked at for.
fn feed(kit: Kit, controller: &Snapshots) -> Kit {
    let Snapshots { snapshots, contents, vms, vmis, claims, pods, revisions, data_volumes, volume_snapshots, .. } =
        controller;
    let (of_vm, of_vmi) = (snapshots.clone(), snapshots.clone());
    let (of_claim, named, contents_of) = (snapshots.clone(), vms.clone(), contents.clone());
    let (of_class, watching) = (snapshots.clone(), volume_snapshots.clone());
    kit.also(async move { watching.run().await })
        .reconciles(snapshots)
        .watch(contents, |change: &Changed<Content>| {
            let content = change.new.as_ref().or(change.old.as_ref());
            content.and_then(|content| of_content(content))
        })
        .watch(&controller.restores, restore::snapshot_in)
        .watch(vms, move |change: &Changed<VirtualMachine>| of_machine(&of_vm, &change.key))
        .watch(vmis, move |change: &Changed<VirtualMachineInstance>| of_machine(&of_vmi, &change.key))
        .watch(claims, move |change: &Changed<PersistentVolumeClaim>| {
            let users = named.find("claim", &format!("{}/{}", change.key.namespace, change.key.name));
            users.iter().flat_map(|vm| of_machine(&of_claim, &Key::of(&**vm))).collect::<Vec<_>>()
        })
        .hears_of(volume_snapshots.snapshots(), move |change: &Changed<VolumeSnapshot>| {
            let copy = change.new.as_ref().or(change.old.as_ref());
            let owner = copy.and_then(|copy| api::owner::controller_of(&copy.metadata).cloned())?;
            let key = Key { namespace: change.key.namespace.clone(), name: owner.name };
            contents_of.get(&key).and_then(|content| of_content(&content))
        })
        .hears_of(volume_snapshots.class_objects(), move |_| {
            of_class
                .all()
                .iter()
                .filter(|one| super::is_progressing(one))
                .map(|one| Key::of(&**one))
                .collect::<Vec<_>>()
        })
        .needs(volume_snapshots.storage_classes())
        .needs(pods)
        .needs(revisions)
        .also({
            let data_volumes = data_volumes.clone();
            async move { data_volumes.run().await }
        })
}

fn of_content(content: &Content) -> Option<Key> {
    let name = content.spec.virtual_machine_snapshot_name.clone()?;
    Some(Key { namespace: content.namespace().unwrap_or_default(), name })
}

fn of_machine(snapshots: &Cache<Snapshot>, vm: &Key) -> Vec<Key> {
    let all = snapshots.find("vm", &format!("{}/{}", vm.namespace, vm.name));
    all.iter().map(|one| Key::of(&**one)).collect()
}

struct Snapshots {
    client: Client,
    snapshots: Cache<Snapshot>,
    contents: Cache<Content>,
    vms: Cache<VirtualMachine>,
    vmis: Cache<VirtualMachineInstance>,
    claims: Cache<PersistentVolumeClaim>,
    pods: Cache<Pod>,
    revisions: Cache<ControllerRevision>,
    data_volumes: DataVolumes,
    volume_snapshots: VolumeSnapshots,
    written: Written,
    restores: Cache<Restore>,
    failures: Remembered<Failure>,
    recorder: Recorder,
    now: Now,
}

impl Reconciler for Snapshots {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let snapshot = self.snapshots.get(key);
        if snapshot.as_ref().is_some_and(|snapshot| self.written.is_behind(key, &**snapshot)) {
            return Ok(Next::Wait);
        }
        self.data_volumes.known().await;
        self.volume_snapshots.known().await;
        let plan = self.decide(key, snapshot.as_deref());
        self.act(key, snapshot.as_deref(), plan).await
    }
}

impl Snapshots {
    fn decide(&self, key: &Key, snapshot: Option<&Snapshot>) -> SnapshotPlan {
        let here = |name: &str| Key { namespace: key.namespace.clone(), name: name.to_owned() };
        let content = snapshot.and_then(|snapshot| self.contents.get(&here(&content_name(snapshot))));
        let own = content.as_ref().and_then(|content| content.metadata.name.clone());
        let named = self.contents.find("snapshot", &format!("{}/{}", key.namespace, key.name));
        let strangers: Vec<_> = named.into_iter().filter(|one| one.metadata.name != own).collect();
        let strangers: Vec<_> = strangers
            .into_iter()
            .map(|content| {
                let vmi = machine_of(&content).and_then(|name| self.vmis.get(&here(&name)));
                (content, vmi)
            })
            .collect();
        let machine = snapshot.map(|snapshot| here(&snapshot.spec.source.name));
        let vm = machine.as_ref().and_then(|key| self.vms.get(key));
        let vmi = machine.as_ref().and_then(|key| self.vmis.get(key));
        let names = vm.as_deref().map(indexes::claim_names_of_vm).unwrap_or_default();
        let claims: Vec<_> = names.iter().filter_map(|name| self.claims.get(&here(name))).collect();
        let volumes: Option<Vec<Arc<DataVolume>>> = self.data_volumes.of(&key.namespace);
        let revisions = self.revisions_of(&here, vm.as_deref(), vmi.as_deref());
        let copies: Vec<_> = content.iter().flat_map(|content| copies_of(content)).collect();
        let copies: Vec<_> =
            copies.iter().filter_map(|name| self.volume_snapshots.snapshots().get(&here(name))).collect();
        let observed = Observed {
            snapshot,
            content: content.as_deref(),
            strangers: strangers.iter().map(|(content, vmi)| (&**content, vmi.as_deref())).collect(),
            vm: vm.as_deref(),
            vmi: vmi.as_deref(),
            revisions: revisions.iter().map(|one| (name(&one.metadata), &**one)).collect(),
            volumes: Known {
                claims: claims.iter().map(|one| (name(&one.metadata), &**one)).collect(),
                data_volumes: volumes.as_ref().map(|all| all.iter().map(|one| (name(&one.metadata), &**one)).collect()),
                ..Known::default()
            },
            users: if vmi.is_some() { 0 } else { self.users(&key.namespace, &names) },
            classes: self.volume_snapshots.classes(),
            copies: copies.iter().map(|one| (name(&one.metadata), &**one)).collect(),
            failure: self.failures.get(key),
            restores: restore::use_it(&self.restores, key),
        };
        decide(&observed, (self.now)())
    }

    fn revisions_of(
        &self,
        here: &impl Fn(&str) -> Key,
        vm: Option<&VirtualMachine>,
        vmi: Option<&VirtualMachineInstance>,
    ) -> Vec<Arc<ControllerRevision>> {
        let started = vmi.and_then(|vmi| vmi.status.as_ref()?.virtual_machine_revision_name.clone());
        let started = started.and_then(|name| self.revisions.get(&here(&name)));
        let then = started.as_deref().and_then(crate::vm::revision::specification);
        let specs = then.as_ref().into_iter().chain(vm.map(|vm| &vm.spec));
        let named = specs.flat_map(|spec| {
            let instancetype = spec.instancetype.as_ref().and_then(|one| one.revision_name.clone());
            [instancetype, spec.preference.as_ref().and_then(|one| one.revision_name.clone())]
        });
        let kept: Vec<_> = named.flatten().filter_map(|name| self.revisions.get(&here(&name))).collect();
        started.into_iter().chain(kept).collect()
    }

    /// How many launchers have one of these claims.
    fn users(&self, namespace: &str, claims: &[String]) -> usize {
        let uses = |pod: &Pod| {
            let ended = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            let mut named = volumes.filter_map(|volume| Some(&volume.persistent_volume_claim.as_ref()?.claim_name));
            pod.namespace().as_deref() == Some(namespace)
                && !matches!(ended, Some("Succeeded" | "Failed"))
                && named.any(|name| claims.contains(name))
        };
        self.pods.all().iter().filter(|pod| uses(pod)).count()
    }

    async fn act(&self, key: &Key, snapshot: Option<&Snapshot>, plan: SnapshotPlan) -> Result<Next, kube::Error> {
        let api: Api<Snapshot> = Api::namespaced(self.client.clone(), &key.namespace);
        let contents: Api<Content> = Api::namespaced(self.client.clone(), &key.namespace);
        if let Some(protect) = &plan.protect {
            return self.written.patch(&api, key, protect).await.map(|_| Next::Wait);
        }
        self.change_machine(key, snapshot, &plan).await?;
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.namespace);
        for revision in &plan.keep {
            create(&revisions, revision).await?;
        }
        if let Some(content) = &plan.content {
            create(&contents, content).await?;
        }
        if let Some(next) = self.quiet_and_copy(key, snapshot, &plan).await? {
            return Ok(next);
        }
        for (target, patch) in &plan.contents {
            let written = contents.patch(&target.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            unless_gone(written.inspect(|_| log_changed::<Content>(&target.name)))?;
        }
        let content = snapshot.map(content_name).unwrap_or_default();
        if let Some(status) = &plan.content_status {
            unless_gone(contents.patch_status(&content, &PatchParams::default(), &Patch::Merge(status)).await)?;
        }
        if let Some(gone) = &plan.delete {
            delete(&contents, &gone.name, Some(&gone.uid), None).await?;
        }
        if let Some(status) = &plan.status {
            self.written.patch_status(&api, key, status).await?;
        }
        if let Some(snapshot) = snapshot {
            for event in plan.events {
                self.recorder.record(snapshot, event.kind, event.reason, event.message);
            }
        }
        if let Some(content) = self.contents.get(&Key { namespace: key.namespace.clone(), name: content }) {
            for event in plan.content_events {
                self.recorder.record(&*content, event.kind, event.reason, event.message);
            }
        }
        if let Some(release) = &plan.release {
            self.written.patch(&api, key, release).await?;
        }
        Ok(plan.recheck_after.map_or(Next::Wait, Next::After))
    }

    async fn change_machine(
        &self,
        key: &Key,
        snapshot: Option<&Snapshot>,
        plan: &SnapshotPlan,
    ) -> Result<(), kube::Error> {
        let Some(snapshot) = snapshot else { return Ok(()) };
        let vms: Api<VirtualMachine> = Api::namespaced(self.client.clone(), &key.namespace);
        let (name, parameters) = (&snapshot.spec.source.name, PatchParams::default());
        if let Some(status) = &plan.vm_status {
            unless_gone(vms.patch_status(name, &parameters, &Patch::Merge(status)).await)?;
        }
        if let Some(change) = &plan.vm {
            let written = vms.patch(name, &parameters, &Patch::Merge(change)).await;
            unless_gone(written.inspect(|_| log_changed::<VirtualMachine>(name)))?;
        }
        Ok(())
    }

    /// The guest becomes quiet, its disks are copied, or it goes on. Returns when to look again if one of these failed.
    async fn quiet_and_copy(
        &self,
        key: &Key,
        snapshot: Option<&Snapshot>,
        plan: &SnapshotPlan,
    ) -> Result<Option<Next>, kube::Error> {
        if let Some(quiet) = &plan.quiet {
            let asked = match quiet {
                Quiet::Freeze { limit } => {
                    self.ask(key, &plan.machine, "freeze", &json!({ "unfreezeTimeout": limit })).await
                }
                Quiet::Stop => self.ask(key, &plan.machine, "pause", &json!({})).await,
            };
            if let Err(error) = asked {
                return Ok(Some(self.failed(key, &error, *quiet == Quiet::Stop)));
            }
        }
        let copies: Api<VolumeSnapshot> = Api::namespaced(self.client.clone(), &key.namespace);
        for copy in &plan.copy {
            self.copy(key, snapshot, &copies, copy).await?;
        }
        let asked = match plan.go_on {
            Some(GoOn::Thaw) => self.ask(key, &plan.machine, "unfreeze", &json!({})).await,
            Some(GoOn::Resume) => self.ask(key, &plan.machine, "unpause", &json!({})).await,
            None => return Ok(None),
        };
        match asked {
            Ok(()) => drop(self.failures.take(key)),
            Err(error) if plan.thaws_by_itself => {
                tracing::warn!(error = chain(&error), "the guest was not thawed, and will thaw by itself");
            }
            Err(error) => return Ok(Some(self.failed(key, &error, false))),
        }
        Ok(None)
    }

    async fn copy(
        &self,
        key: &Key,
        snapshot: Option<&Snapshot>,
        copies: &Api<VolumeSnapshot>,
        copy: &VolumeSnapshot,
    ) -> Result<(), kube::Error> {
        match copies.create(&PostParams::default(), copy).await {
            Ok(made) => log_created(&made),
            // An answer was lost, or another leader was faster: the cache will show it.
            Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
            Err(error) => return Err(error),
        }
        let content = Key { namespace: key.namespace.clone(), name: snapshot.map(content_name).unwrap_or_default() };
        if let Some(content) = self.contents.get(&content) {
            let message = format!("Successfully created VolumeSnapshot {}", copy.name_any());
            self.recorder.record(&*content, Kind::Normal, "SuccessfulVolumeSnapshotCreate", message);
        }
        Ok(())
    }

    /// Asks for something of the guest. That it is so already is no failure.
    async fn ask(&self, key: &Key, machine: &str, what: &str, body: &Value) -> Result<(), kube::Error> {
        let path = format!(
            "/apis/subresources.kubevirt.io/v1/namespaces/{}/virtualmachineinstances/{machine}/{what}",
            key.namespace
        );
        let request = Request::put(path).header(CONTENT_TYPE, "application/json").body(body.to_string().into_bytes());
        match self.client.request_text(request.map_err(kube::Error::HttpError)?).await {
            Err(kube::Error::Api(status)) if status.code == 409 && status.message.contains("paused") => Ok(()),
            asked => asked.map(drop),
        }
    }

    fn failed(&self, key: &Key, error: &kube::Error, stop: bool) -> Next {
        let forever = stop && matches!(error, kube::Error::Api(status) if status.code == 403);
        let message = match error {
            kube::Error::Api(status) => status.message.clone(),
            other => chain(other),
        };
        tracing::warn!(message, "the guest did not do as asked");
        self.failures.set(key, Failure { message, forever, again: (self.now)() + AGAIN });
        Next::After(Duration::ZERO)
    }
}

fn name(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

fn machine_of(content: &Content) -> Option<String> {
    content.spec.source.virtual_machine.as_ref()?.metadata.as_ref()?.name.clone()
}

fn copies_of(content: &Content) -> Vec<String> {
    let backups = content.spec.volume_backups.iter().flatten();
    backups.filter_map(|backup| backup.volume_snapshot_name.clone()).collect()
}
