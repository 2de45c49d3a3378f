//! Observes, decides and acts: the part of the clone controller that speaks to the server.

use std::sync::Arc;

use api::clone::VirtualMachineClone;
use api::restore::VirtualMachineRestore as Restore;
use api::snapshot::{VirtualMachineSnapshot as Snapshot, VirtualMachineSnapshotContent as Content};
use api::vm::VirtualMachine;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::ListParams;
use kube::{Api, Client};
use manager::cache::{Cache, Changed, Key};
use manager::context::{Context, Now, Started};
use manager::events::Recorder;
use manager::kit::{Kit, Orphans, Reconciler, Remembered, Written};
use manager::worker::Next;
use manager::writing::{create, delete};

use super::{ClonePlan, Observed, decide, restore_name, snapshot_name, target_name};
use crate::indexes;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "clone-controller";

/// The controller.
#[must_use]
pub(crate) fn start(context: &Context, workers: usize) -> Started {
    let (kit, caches) = (Kit::new(NAME, context), &context.caches);
    let controller = Clones {
        client: context.client.clone(),
        clones: caches.of(&[("name", names_of)]),
        vms: indexes::vms(caches),
        snapshots: caches.of(&[]),
        contents: caches.of(&[]),
        restores: caches.of(&[]),
        claims: caches.of(&[]),
        written: kit.written(),
        failures: kit.remembers("failure"),
        recorder: context.recorder.of("clone-controller"),
        now: context.now.clone(),
    };
    feed(kit, &controller).run(workers, controller)
}

/// What a clone is of and what it makes, as `namespace/name`.
fn names_of(clone: &VirtualMachineClone) -> Vec<String> {
    let namespace = clone.metadata.namespace.as_deref().unwrap_or_default();
    let mut names = vec![format!("{namespace}/{}", clone.spec.source.name)];
    names.push(format!("{namespace}/{}", target_name(clone)));
    names
}

/// Declares all that a clone has to be looked at for.
fn feed(kit: Kit, controller: &Clones) -> Kit {
    let Clones { clones, vms, snapshots, contents, restores, claims, .. } = controller;
    let owners = restores.clone();
    let (of_claim, of_content) = (clones.clone(), snapshots.clone());
    kit.reconciles(clones)
        .owns(snapshots, clones, Orphans::Ignored)
        .owns(restores, clones, Orphans::Ignored)
        .watch(vms, of::<VirtualMachine>(clones))
        .watch(snapshots, of::<Snapshot>(clones))
        .watch(claims, move |change: &Changed<PersistentVolumeClaim>| {
            // Only the claims of our own restores matter.
            let claim = change.new.as_ref()?;
            let restore = claim.metadata.annotations.as_ref()?.get(api::names::annotation::RESTORE_NAME)?;
            let key = Key { namespace: change.key.namespace.clone(), name: restore.clone() };
            let owner = api::owner::controller_of(&owners.get(&key)?.metadata)?.name.clone();
            of_claim.get(&Key { namespace: key.namespace, name: owner }).map(|clone| Key::of(&*clone))
        })
        .watch(contents, move |change: &Changed<Content>| {
            let snapshot =
                change.new.as_ref().and_then(|content| content.spec.virtual_machine_snapshot_name.clone())?;
            let key = Key { namespace: change.key.namespace.clone(), name: snapshot };
            let owner = of_content.get(&key).and_then(|one| api::owner::controller_of(&one.metadata).cloned());
            Some(Key { name: owner.map_or(key.name.clone(), |owner| owner.name), ..key })
        })
}

fn of<T>(clones: &Cache<VirtualMachineClone>) -> impl Fn(&Changed<T>) -> Vec<Key> + Send + use<T> {
    let clones = clones.clone();
    move |change| {
        let all = clones.find("name", &format!("{}/{}", change.key.namespace, change.key.name));
        all.iter().map(|one| Key::of(&**one)).collect()
    }
}

struct Clones {
    client: Client,
    clones: Cache<VirtualMachineClone>,
    vms: Cache<VirtualMachine>,
    snapshots: Cache<Snapshot>,
    contents: Cache<Content>,
    restores: Cache<Restore>,
    claims: Cache<PersistentVolumeClaim>,
    written: Written,
    failures: Remembered<String>,
    recorder: Recorder,
    now: Now,
}

impl Reconciler for Clones {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(clone) = self.clones.get(key) else { return Ok(Next::Wait) };
        if self.written.is_behind(key, &*clone) {
            return Ok(Next::Wait);
        }
        let plan = self.decide(key, &clone).await?;
        let done = self.act(key, &clone, plan).await;
        self.failures.refusal(key, done)
    }
}

impl Clones {
    async fn decide(&self, key: &Key, clone: &VirtualMachineClone) -> Result<ClonePlan, kube::Error> {
        let here = |name: &str| Key { namespace: key.namespace.clone(), name: name.to_owned() };
        let from_machine = clone.spec.source.kind == "VirtualMachine";
        let source = self.vms.get(&here(&clone.spec.source.name)).filter(|_| from_machine);
        let snapshot = match from_machine {
            true => self.snapshots.get(&here(&snapshot_name(clone))),
            false => self.snapshots.get(&here(&clone.spec.source.name)),
        };
        let status = clone.status.as_ref();
        let told = status.and_then(|status| status.snapshot_name.as_ref());
        let snapshot = self.or_ask(key, snapshot, told).await?;
        let content = snapshot.as_deref().map(crate::snapshot::content_name);
        let content = content.and_then(|name| self.contents.get(&here(&name)));
        let told = status.and_then(|status| status.restore_name.as_ref());
        let restore = self.or_ask(key, self.restores.get(&here(&restore_name(clone))), told).await?;
        let made = restore.iter().flat_map(|restore| restore.status.iter());
        let made = made.flat_map(|status| status.restores.iter().flatten());
        let claims: Vec<Arc<PersistentVolumeClaim>> =
            made.filter_map(|one| self.claims.get(&here(&one.persistent_volume_claim))).collect();
        let target = self.vms.get(&here(&target_name(clone)));
        let failure = self.failures.get(key);
        let observed = Observed {
            clone,
            source: source.as_deref(),
            snapshot: snapshot.as_deref(),
            content: content.as_deref(),
            restore: restore.as_deref(),
            target: target.as_deref(),
            claims: claims.iter().map(|one| (one.metadata.name.as_deref().unwrap_or_default(), &**one)).collect(),
            failure: failure.as_deref(),
        };
        Ok(decide(&observed, (self.now)()))
    }

    /// What the cache has, or else the server, if the clone says that it was made: its loss ends a clone for good, and another
    /// kind's cache may be behind.
    async fn or_ask<T>(
        &self,
        key: &Key,
        cached: Option<Arc<T>>,
        told: Option<&String>,
    ) -> Result<Option<Arc<T>>, kube::Error>
    where
        T: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::de::DeserializeOwned,
    {
        match (cached, told) {
            (None, Some(name)) => {
                let api: Api<T> = Api::namespaced(self.client.clone(), &key.namespace);
                // By a list: its right is there already.
                let named = ListParams::default().fields(&format!("metadata.name={name}"));
                Ok(api.list(&named).await?.items.pop().map(Arc::new))
            }
            (cached, _) => Ok(cached),
        }
    }

    async fn act(&self, key: &Key, clone: &VirtualMachineClone, plan: ClonePlan) -> Result<Next, kube::Error> {
        let api: Api<VirtualMachineClone> = Api::namespaced(self.client.clone(), &key.namespace);
        let snapshots: Api<Snapshot> = Api::namespaced(self.client.clone(), &key.namespace);
        let restores: Api<Restore> = Api::namespaced(self.client.clone(), &key.namespace);
        if let Some(snapshot) = &plan.snapshot {
            create(&snapshots, snapshot).await?;
            self.failures.take(key);
        }
        if let Some(restore) = &plan.restore {
            create(&restores, restore).await?;
            self.failures.take(key);
        }
        if let Some(gone) = &plan.delete_restore {
            delete(&restores, &gone.name, Some(&gone.uid), None).await?;
        }
        if let Some(gone) = &plan.delete_snapshot {
            delete(&snapshots, &gone.name, Some(&gone.uid), None).await?;
        }
        if let Some(status) = &plan.status {
            self.written.patch_status(&api, key, status).await?;
        }
        for event in plan.events {
            self.recorder.record(clone, event.kind, event.reason, event.message);
        }
        if let Some(gone) = &plan.delete {
            delete(&api, &gone.name, Some(&gone.uid), None).await?;
        }
        Ok(Next::Wait)
    }
}
