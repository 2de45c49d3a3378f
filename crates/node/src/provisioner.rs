//! Volumes of this machine: a directory for each claim.
//!
//! Watches: PersistentVolumeClaim, PersistentVolume, StorageClass, Pod. Owns: volumes of classes whose provisioner is
//! [`NAME`], their directories, the binding of claims to them, and the finalizers that protect claims and volumes in use.
//! Emits: one write to make a volume, two to bind a claim.

mod decide;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key};
use manager::context::Context;
use manager::events::{Kind, Recorder};
use manager::queue::Queue;
use manager::worker::{About, Next, ObjectName, work};
use manager::writing::{create, delete, unless_gone};
use serde_json::{Value, json};

use decide::{Around, CLAIM_PROTECTION, ClaimPlan, VOLUME_PROTECTION, VolumePlan};

/// The provisioner, as storage classes name it.
pub const NAME: &str = "orlop.dev/local";
/// The label of nodes on one machine: all of them have the machine's volumes.
pub const MACHINE: &str = "orlop.dev/machine";
/// Tells who made a volume.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Marks the class of claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Claims and volumes that are worked on at the same time.
const WORKERS: usize = 4;
/// Between a look at a volume whose claim the cache does not show, though it is there, and the next one.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Pods by the claims that they use.
const CLAIMS: &str = "claims";

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Claim(Key),
    Volume(Key),
}

impl About for Work {
    fn about(&self) -> ObjectName<'_> {
        match self {
            Self::Claim(key) | Self::Volume(key) => key.about(),
        }
    }
}

/// Why a claim or a volume could not be served.
#[derive(Debug, thiserror::Error)]
enum ProvisionError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("{action} {}", path.display())]
    Folder { action: &'static str, path: PathBuf, source: std::io::Error },
}

/// Makes volumes below a directory of one machine.
#[derive(Clone)]
pub struct Provisioner {
    client: Client,
    machine: String,
    folder: Arc<Path>,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    pods: Cache<Pod>,
    queue: Queue<Work>,
    recorder: Recorder,
}

fn claims_of(pod: &Pod) -> Vec<String> {
    let namespace = pod.namespace().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| format!("{namespace}/{}", claim.claim_name)).collect()
}

impl Provisioner {
    /// Volumes of the nodes with the label [`MACHINE`] of this value, below this directory.
    #[must_use]
    pub fn new(context: &Context, machine: &str, folder: &Path) -> Self {
        Self {
            client: context.client.clone(),
            machine: machine.to_owned(),
            folder: folder.into(),
            claims: context.caches.of(&[]),
            volumes: context.caches.of(&[]),
            classes: context.caches.of(&[]),
            pods: context.caches.of(&[(CLAIMS, claims_of)]),
            queue: context.queue("local-volumes"),
            recorder: context.recorder.of("local-provisioner"),
        }
    }

    /// Runs until the queue is closed.
    pub async fn run(&self) {
        self.claims.synced().await;
        self.volumes.synced().await;
        self.classes.synced().await;
        self.pods.synced().await;
        let work = work("local-volumes", &self.queue, WORKERS, |item: Work| {
            let this = self.clone();
            async move {
                match item {
                    Work::Claim(key) => this.look_at_claim(&key).await,
                    Work::Volume(key) => this.look_at_volume(&key).await,
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
        loop {
            tokio::select! {
                biased;
                change = claims.next() => {
                    let volume = change.new.as_ref().or(change.old.as_ref()).map(|claim| volume_name(claim));
                    self.queue.add(Work::Claim(change.key));
                    volume.into_iter().for_each(|name| self.queue.add(Work::Volume(Key::cluster(name))));
                }
                change = volumes.next() => {
                    if let Some(claim) = change.new.as_ref().or(change.old.as_ref()).and_then(|volume| owner(volume)) {
                        self.queue.add(Work::Claim(claim));
                    }
                    self.queue.add(Work::Volume(change.key));
                }
                // A new class may be what claims wait for.
                _ = classes.next() => self.claims.all().iter().for_each(|claim| self.queue.add(Work::Claim(Key::of(&**claim)))),
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

    async fn look_at_claim(&self, key: &Key) -> Result<Next, ProvisionError> {
        let Some(claim) = self.claims.get(key) else { return Ok(Next::Wait) };
        let volume = self.volumes.get(&Key::cluster(volume_name(&claim)));
        let class = self.class_of(&claim);
        let pods = self.pods.find(CLAIMS, &format!("{}/{}", key.namespace, key.name));
        let around = Around {
            ours: class.as_ref().is_some_and(|class| class.provisioner == NAME),
            volume: volume.as_deref(),
            used: pods.iter().any(|pod| !has_ended(pod)),
        };
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        match decide::claim(&claim, around) {
            ClaimPlan::Nothing => {}
            ClaimPlan::Refuse(why) => self.recorder.record(&*claim, Kind::Warning, "ProvisioningFailed", why),
            ClaimPlan::Provision => {
                let path = self.folder.join(volume_name(&claim));
                make_directory(&path)?;
                let volume = self.object(&claim, class.as_deref(), &path);
                let volume = serde_json::from_value(volume).map_err(kube::Error::SerdeError)?;
                create(&Api::<PersistentVolume>::all(self.client.clone()), &volume).await?;
            }
            ClaimPlan::Bind { volume } => self.bind(&claim, &volume).await?,
            ClaimPlan::Release => {
                let kept: Vec<&String> = claim.finalizers().iter().filter(|one| *one != CLAIM_PROTECTION).collect();
                unless_gone(
                    patch(&api, &key.name, &json!({ "metadata": seen(&*claim, json!({ "finalizers": kept })) })).await,
                )?;
            }
        }
        Ok(Next::Wait)
    }

    async fn bind(&self, claim: &PersistentVolumeClaim, volume: &str) -> Result<(), ProvisionError> {
        let (name, namespace) = (claim.name_any(), claim.namespace().unwrap_or_default());
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
        let Some(found) = self.volumes.get(&Key::cluster(volume)) else { return Ok(()) };
        // The volume first: what it is bound to is nobody else's.
        if found.spec.as_ref().is_none_or(|spec| spec.claim_ref.as_ref().is_none_or(|owner| owner.uid.is_none())) {
            let owner = json!({ "spec": { "claimRef": reference(claim) }, "metadata": seen(&*found, json!({})) });
            unless_gone(patch(&volumes, volume, &owner).await)?;
        }
        if claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()) != Some(volume) {
            let spec = json!({ "volumeName": volume });
            let annotations = json!({ "annotations": { "pv.kubernetes.io/bind-completed": "yes" } });
            unless_gone(patch(&claims, &name, &json!({ "metadata": annotations, "spec": spec })).await)?;
        }
        let modes = found.spec.as_ref().and_then(|spec| spec.access_modes.clone());
        let capacity = found.spec.as_ref().and_then(|spec| spec.capacity.clone());
        let status = json!({ "status": { "phase": "Bound", "accessModes": modes, "capacity": capacity } });
        let written = claims.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await;
        Ok(unless_gone(written)?)
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
                remove_folder(&self.folder.join(&key.name))?;
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

    /// The class that a claim asks for, or the default.
    fn class_of(&self, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
        match claim.spec.as_ref()?.storage_class_name.as_deref() {
            Some(name) => self.classes.get(&Key::cluster(name)),
            None => self
                .classes
                .all()
                .into_iter()
                .find(|class| class.annotations().get(DEFAULT_CLASS).is_some_and(|is| is == "true")),
        }
    }

    fn object(&self, claim: &PersistentVolumeClaim, class: Option<&StorageClass>, path: &Path) -> Value {
        let spec = claim.spec.as_ref();
        let storage = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage").cloned());
        json!({
            "metadata": { "name": volume_name(claim), "annotations": { PROVISIONED_BY: NAME } },
            "spec": {
                "capacity": { "storage": storage },
                "accessModes": spec.and_then(|spec| spec.access_modes.clone()),
                "volumeMode": "Filesystem",
                "persistentVolumeReclaimPolicy": class.and_then(|class| class.reclaim_policy.as_deref()).unwrap_or("Delete"),
                "storageClassName": class.map(kube::ResourceExt::name_any),
                "claimRef": reference(claim),
                "local": { "path": path },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": MACHINE, "operator": "In", "values": [self.machine] },
                ] }] } },
            },
        })
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

fn make_directory(path: &Path) -> Result<(), ProvisionError> {
    let made = std::fs::create_dir_all(path);
    made.map_err(|source| ProvisionError::Folder { action: "create", path: path.to_owned(), source })
}

fn remove_folder(path: &Path) -> Result<(), ProvisionError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| ProvisionError::Folder { action: "remove", path: path.to_owned(), source }),
    }
}
