//! Volumes of this machine, and snapshots of them.
//!
//! Watches: PersistentVolumeClaim, PersistentVolume, StorageClass, Pod, VolumeSnapshot, VolumeSnapshotContent,
//! VolumeSnapshotClass. Owns: volumes of classes whose provisioner is [`NAME`], their bytes, the binding of claims to them, the
//! contents of snapshots of that driver, and the finalizers that protect what is in use. Emits: one write to make a volume, two to
//! bind a claim; a content and three more writes for a snapshot.
//!
//! The objects say what is to be there, and [`storage::volumes`] keeps the bytes. What was made and never told of, because this
//! process was killed in between or the API server refused, is removed if no object asks for it: at the start, and whenever a claim
//! or a content has gone.

mod claims;
mod decide;
mod room;
mod snapshots;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use api::volume_snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Keeping, Key};
use manager::context::{Context, Now};
use manager::events::Recorder;
use manager::queue::Queue;
use manager::worker::{About, Next, ObjectName, work};
use manager::writing::{delete, unless_gone};
use serde_json::{Value, json};
use storage::volumes::{Copies, Name, Stored, VolumeError, Volumes};
use tokio::sync::{RwLock, Semaphore, SemaphorePermit, TryAcquireError};

use decide::origin::Named;
use decide::{VOLUME_PROTECTION, VolumePlan, origin, snapshot};
use room::Promises;

/// The provisioner, as storage classes name it.
pub const NAME: &str = "orlop.dev/local";
/// The label of nodes on one machine: all of them have the machine's volumes.
pub const MACHINE: &str = "orlop.dev/machine";
/// Tells who made a volume.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Claims and volumes that are worked on at the same time: more than there are places for copies that take their time.
const WORKERS: usize = 6;
/// Between a look at a volume whose claim the cache does not show, though it is there, and the next one.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Claims that are copied byte by byte at the same time. That may take minutes, while others wait to be bound.
const CLONING: usize = 2;
/// Snapshots that are copied byte by byte at the same time. Guests stand frozen meanwhile, so they never wait for claims.
const SNAPPING: usize = 2;
/// Between a look at a copy that finds no place and the next one.
const PLACE_AGAIN: Duration = Duration::from_secs(1);
/// Pods by the claims that they use.
const CLAIMS: &str = "claims";
/// Claims by what they are made from.
const ORIGINS: &str = "origins";
/// Snapshots by the claim that they are made of.
const SOURCES: &str = "sources";

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Claim(Key),
    Volume(Key),
    Snapshot(Key),
    Content(Key),
}

impl About for Work {
    fn about(&self) -> ObjectName<'_> {
        match self {
            Self::Claim(key) | Self::Volume(key) | Self::Snapshot(key) | Self::Content(key) => key.about(),
        }
    }
}

/// Why a claim or a volume could not be served.
#[derive(Debug, thiserror::Error)]
enum ProvisionError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Storage(#[from] VolumeError),
    #[error("the task that made a copy was lost")]
    Lost,
}

/// Makes volumes of one machine, and snapshots of them.
#[derive(Clone)]
pub struct Provisioner {
    client: Client,
    machine: String,
    storage: Arc<dyn Volumes>,
    cloning: Arc<Semaphore>,
    snapping: Arc<Semaphore>,
    /// Held by those who make volumes, until an object tells of them.
    making: Arc<RwLock<()>>,
    now: Now,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    pods: Cache<Pod>,
    snapshots: Cache<VolumeSnapshot>,
    contents: Cache<VolumeSnapshotContent>,
    snapshot_classes: Cache<VolumeSnapshotClass>,
    queue: Queue<Work>,
    recorder: Recorder,
    /// How much claims may ask for together, in percent of the room; none if anything may be asked for.
    overcommit: Option<u64>,
    promises: Promises,
}

fn claims_of(pod: &Pod) -> Vec<String> {
    let namespace = pod.namespace().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| format!("{namespace}/{}", claim.claim_name)).collect()
}

/// What a claim is made from, as an index has it.
fn origin_of(claim: &PersistentVolumeClaim) -> Vec<String> {
    let namespace = claim.namespace().unwrap_or_default();
    match origin::named(claim) {
        Some(Named::Snapshot(name)) => vec![format!("snapshot/{namespace}/{name}")],
        Some(Named::Claim(name)) => vec![format!("claim/{namespace}/{name}")],
        Some(Named::Unsupported(_)) | None => Vec::new(),
    }
}

/// The claim that a snapshot is made of, as an index has it.
fn source_of(snapshot: &VolumeSnapshot) -> Vec<String> {
    let namespace = snapshot.namespace().unwrap_or_default();
    let claim = snapshot.spec.source.persistent_volume_claim_name.iter();
    claim.map(|claim| format!("{namespace}/{claim}")).collect()
}

impl Provisioner {
    /// Volumes of the nodes with the label [`MACHINE`] of this value, kept by this storage.
    #[must_use]
    pub fn new(context: &Context, machine: &str, storage: Arc<dyn Volumes>) -> Self {
        Self {
            client: context.client.clone(),
            machine: machine.to_owned(),
            storage,
            cloning: Arc::new(Semaphore::new(CLONING)),
            snapping: Arc::new(Semaphore::new(SNAPPING)),
            making: Arc::default(),
            now: context.now.clone(),
            claims: context.caches.of(&[(ORIGINS, origin_of)]),
            volumes: context.caches.of(&[]),
            classes: context.caches.of(&[]),
            pods: context.caches.kept("", Keeping::slim(), &[(CLAIMS, claims_of)]),
            snapshots: context.caches.of(&[(SOURCES, source_of)]),
            contents: context.caches.of(&[]),
            snapshot_classes: context.caches.of(&[]),
            queue: context.queue("local-volumes"),
            recorder: context.recorder.of("local-provisioner"),
            overcommit: None,
            promises: Promises::default(),
        }
    }

    /// Runs until the queue is closed.
    pub async fn run(&self) {
        self.claims.synced().await;
        self.volumes.synced().await;
        self.classes.synced().await;
        self.pods.synced().await;
        self.snapshots.synced().await;
        self.contents.synced().await;
        self.snapshot_classes.synced().await;
        if let Err(error) = self.sweep().await {
            tracing::warn!(error = manager::errors::chain(&error), "cannot remove copies that were not finished");
        }
        let work = work("local-volumes", &self.queue, WORKERS, |item: Work| {
            let this = self.clone();
            async move {
                match item {
                    Work::Claim(key) => this.look_at_claim(&key).await,
                    Work::Volume(key) => this.look_at_volume(&key).await,
                    Work::Snapshot(key) => this.look_at_snapshot(&key).await,
                    Work::Content(key) => this.look_at_content(&key).await,
                }
            }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.feed() => {}
        }
    }

    async fn feed(&self) {
        let (mut claims, mut volumes) = (self.claims.subscribe(), self.volumes.subscribe());
        let (mut classes, mut pods) = (self.classes.subscribe(), self.pods.subscribe());
        let (mut snapshots, mut contents) = (self.snapshots.subscribe(), self.contents.subscribe());
        let mut snapshot_classes = self.snapshot_classes.subscribe();
        loop {
            tokio::select! {
                biased;
                change = claims.next() => {
                    let changed = change.new.as_ref().or(change.old.as_ref());
                    let volume = changed.map(|claim| volume_name(claim));
                    self.wake_copies("claim", &change.key);
                    let snapshots = self.snapshots.find(SOURCES, &format!("{}/{}", change.key.namespace, change.key.name));
                    snapshots.iter().for_each(|one| self.queue.add(Work::Snapshot(Key::of(&**one))));
                    // A snapshot that goes waits for the claims that are made from it.
                    if let (Some(Named::Snapshot(name)), namespace) =
                        (changed.and_then(|claim| origin::named(claim)), change.key.namespace.clone())
                    {
                        self.queue.add(Work::Snapshot(Key { namespace, name }));
                    }
                    self.queue.add(Work::Claim(change.key));
                    volume.into_iter().for_each(|name| self.queue.add(Work::Volume(Key::cluster(name))));
                }
                change = volumes.next() => {
                    if let Some(claim) = change.new.as_ref().or(change.old.as_ref()).and_then(|volume| owner(volume)) {
                        self.queue.add(Work::Claim(claim));
                    }
                    if change.new.is_none() {
                        self.promises.forget(&change.key.name);
                        self.wake_refused();
                    }
                    self.queue.add(Work::Volume(change.key));
                }
                // A new class may be what claims wait for.
                _ = classes.next() => self.claims.all().iter().for_each(|claim| self.queue.add(Work::Claim(Key::of(&**claim)))),
                change = snapshots.next() => {
                    let content = change.new.as_ref().or(change.old.as_ref()).map(|one| snapshot::content_name(one));
                    self.wake_copies("snapshot", &change.key);
                    self.queue.add(Work::Snapshot(change.key));
                    content.into_iter().for_each(|name| self.queue.add(Work::Content(Key::cluster(name))));
                }
                change = contents.next() => {
                    if let Some(owner) = change.new.as_ref().or(change.old.as_ref()).and_then(|one| snapshots::owner(one)) {
                        self.wake_copies("snapshot", &owner);
                        self.queue.add(Work::Snapshot(owner));
                    }
                    self.queue.add(Work::Content(change.key));
                }
                _ = snapshot_classes.next() => {
                    self.snapshots.all().iter().for_each(|one| self.queue.add(Work::Snapshot(Key::of(&**one))));
                }
                change = pods.next() => {
                    for pod in [change.old, change.new].iter().flatten() {
                        for claim in claims_of(pod) {
                            if let Some((namespace, name)) = claim.split_once('/') {
                                self.queue.add(Work::Claim(Key { namespace: namespace.to_owned(), name: name.to_owned() }));
                            }
                        }
                    }
                }
            }
        }
    }

    /// Looks at the claims that are to be made from something.
    fn wake_copies(&self, kind: &str, of: &Key) {
        let claims = self.claims.find(ORIGINS, &format!("{kind}/{}/{}", of.namespace, of.name));
        claims.iter().for_each(|claim| self.queue.add(Work::Claim(Key::of(&**claim))));
    }

    async fn look_at_volume(&self, key: &Key) -> Result<Next, ProvisionError> {
        let Some(volume) = self.volumes.get(key) else { return Ok(Next::Wait) };
        let claim = owner(&volume).and_then(|key| self.claims.get(&key));
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        match decide::volume(&volume, is_ours(&volume), bound(&volume, claim.as_deref())) {
            VolumePlan::Nothing => {}
            VolumePlan::Phase(phase) => {
                let status = json!({ "status": { "phase": phase } });
                unless_gone(api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(&status)).await)?;
            }
            VolumePlan::Reclaim => {
                if !self.is_abandoned(&api, &volume).await? {
                    tracing::warn!(volume = key.name, "keeping a volume that looked unused: its claim still exists");
                    return Ok(Next::After(LOOK_AGAIN));
                }
                let stored = Stored::Volume(Name::try_from(key.name.as_str())?);
                blocking(&self.storage, move |storage| storage.delete(&stored)).await?;
                delete(&api, &key.name, volume.uid().as_deref(), None).await?;
            }
            VolumePlan::Release => {
                let kept: Vec<&String> = volume.finalizers().iter().filter(|one| *one != VOLUME_PROTECTION).collect();
                unless_gone(
                    patch(&api, &key.name, &json!({ "metadata": seen(&*volume, json!({ "finalizers": kept })) })).await,
                )?;
            }
        }
        Ok(Next::Wait)
    }

    /// Whether a volume is to be removed with its data, as the API server itself has it and its claim: what a cache does not
    /// show may be there, and data does not come back.
    async fn is_abandoned(&self, api: &Api<PersistentVolume>, seen: &PersistentVolume) -> Result<bool, ProvisionError> {
        // One that is gone, or is another of its name, has had its data removed or has data of its own.
        let volume = api.get_opt(&seen.name_any()).await?.filter(|volume| volume.metadata.uid == seen.metadata.uid);
        let Some(volume) = volume else { return Ok(false) };
        let claim = match owner(&volume) {
            Some(key) => {
                let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
                claims.get_opt(&key.name).await?
            }
            None => None,
        };
        Ok(decide::volume(&volume, is_ours(&volume), bound(&volume, claim.as_ref())) == VolumePlan::Reclaim)
    }
}

fn reference(claim: &PersistentVolumeClaim) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim.metadata.name,
        "namespace": claim.metadata.namespace, "uid": claim.metadata.uid,
    })
}

/// The volume that a claim names, or the name of the one that is made for it.
fn volume_name(claim: &PersistentVolumeClaim) -> String {
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    named.unwrap_or_else(|| format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default()))
}

fn owner(volume: &PersistentVolume) -> Option<Key> {
    let owner = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(Key { namespace: owner.namespace.clone()?, name: owner.name.clone()? })
}

fn is_ours(volume: &PersistentVolume) -> bool {
    volume.annotations().get(PROVISIONED_BY).is_some_and(|by| by == NAME)
}

/// The claim of the name that a volume says, if it is the one that it is bound to, and not a later one of that name.
fn bound<'a>(volume: &PersistentVolume, claim: Option<&'a PersistentVolumeClaim>) -> Option<&'a PersistentVolumeClaim> {
    let uid = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_ref());
    claim.filter(|claim| uid.is_none() || claim.metadata.uid.as_ref() == uid)
}

/// A place for a copy. Copies that share their bytes take no time, and need none.
fn place<'a>(copies: &Copies, places: &'a Semaphore) -> Result<Option<SemaphorePermit<'a>>, TryAcquireError> {
    match copies {
        Copies::Shared => Ok(None),
        Copies::Plain { .. } => places.try_acquire().map(Some),
    }
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Metadata of a patch that holds for the version that was seen.
fn seen<K: kube::Resource<DynamicType = ()>>(object: &K, mut metadata: Value) -> Value {
    metadata["uid"] = json!(object.meta().uid);
    metadata["resourceVersion"] = json!(object.meta().resource_version);
    metadata
}

async fn patch<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<K, kube::Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

/// Does what may block where it keeps nobody waiting.
async fn blocking<T: Send + 'static>(
    volumes: &Arc<dyn Volumes>,
    act: impl FnOnce(&dyn Volumes) -> Result<T, VolumeError> + Send + 'static,
) -> Result<T, ProvisionError> {
    let volumes = volumes.clone();
    let done = tokio::task::spawn_blocking(move || act(&*volumes)).await;
    Ok(done.map_err(|_| ProvisionError::Lost)??)
}
