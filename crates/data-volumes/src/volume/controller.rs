//! Observes, decides and acts: the part of the DataVolume controller that speaks to the server.

use std::sync::Arc;
use std::time::Duration;

use api::cdi::{CDIConfig, DataSource, StorageProfile};
use api::data_volume::{DataVolume, DataVolumePhase as Phase};
use api::owner::{controller_reference, is_controlled_by};
use api::volume_snapshot::VolumeSnapshot;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Keeping, Key, controller_of, namespace_of};
use manager::context::{Context, Now, Started};
use manager::events::Recorder;
use manager::kit::{Kit, Orphans, Reconciler, Remembered, Written};
use manager::worker::Next;
use manager::writing::{create, delete, guarded, log_changed, unless_gone};
use serde_json::{Value, json};

use super::claim::size;
use super::importer::wait;
use super::{Act, Gaps, Observed, Setback, VolumePlan, decide, status};
use crate::config::CONFIG;
use crate::names::{DEFAULT_CLASS, DEFAULT_VIRT_CLASS, POD_PHASE, POPULATED, PREPOPULATED};
use crate::overhead::Overhead;
use crate::pod;
use crate::source::{Origin, OriginError, origin};
use crate::table::{Asking, Settings};

/// As the flag `--controllers` knows it.
pub const NAME: &str = "datavolume-controller";
/// DataVolumes that are worked on at the same time.
const WORKERS: usize = 3;
/// Between two questions about progress.
const PROGRESS: Duration = Duration::from_secs(2);

/// The controller.
#[must_use]
pub fn start(context: &Context, settings: &Settings) -> Started {
    let kit = Kit::new(NAME, context);
    let controller = DataVolumes {
        client: context.client.clone(),
        image: settings.image.clone(),
        asking: settings.asking.clone(),
        volumes: context.caches.of(&[("namespace", namespace_of)]),
        claims: context.caches.of(&[("namespace", namespace_of)]),
        pods: context.caches.kept("", Keeping::slim(), &[("controller", controller_of)]),
        classes: context.caches.of(&[]),
        profiles: context.caches.of(&[]),
        sources: context.caches.of(&[]),
        configs: context.caches.of(&[]),
        snapshots: context.caches.of(&[]),
        died: kit.remembers("died"),
        written: kit.written(),
        recorder: context.recorder.of("datavolume-controller"),
        now: context.now.clone(),
    };
    let DataVolumes { volumes, claims, pods, classes, profiles, sources, configs, snapshots, .. } = &controller;
    let snapshots = snapshots.clone();
    let (volumes, claims, pods, classes) = (volumes.clone(), claims.clone(), pods.clone(), classes.clone());
    let (profiles, sources, configs) = (profiles.clone(), sources.clone(), configs.clone());
    // A claim, a VolumeSnapshot or a DataSource may be what others are copied from.
    let (near, all, class) = (volumes.clone(), volumes.clone(), volumes.clone());
    let (of_snapshot, of_name) = (volumes.clone(), volumes.clone());
    kit.reconciles(&volumes)
        .owns(&pods, &volumes, Orphans::Ignored)
        .watch(&claims, move |change| {
            open_in(&near, &change.key.namespace).chain([change.key.clone()]).collect::<Vec<_>>()
        })
        .watch(&snapshots, move |change| open_in(&of_snapshot, &change.key.namespace).collect::<Vec<_>>())
        // A name that is free again is what an importer may wait for.
        .watch(&pods, move |change| {
            let gone = change.new.is_none() && change.key.name.starts_with(pod::PREFIX);
            open_in(&of_name, &change.key.namespace).filter(|_| gone).collect::<Vec<_>>()
        })
        .watch(&sources, move |_| open(&all))
        .watch(&classes, move |_| open(&class))
        .needs(&profiles)
        .needs(&configs)
        .run(WORKERS, controller)
}

/// Those that are on their way.
fn open(volumes: &Cache<DataVolume>) -> Vec<Key> {
    volumes.all().into_iter().filter(|volume| is_open(volume)).map(|volume| Key::of(&*volume)).collect()
}

fn open_in(volumes: &Cache<DataVolume>, namespace: &str) -> impl Iterator<Item = Key> + use<> {
    let all = volumes.find("namespace", namespace).into_iter();
    all.filter(|volume| is_open(volume)).map(|volume| Key::of(&*volume))
}

fn is_open(volume: &DataVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_ref());
    !matches!(phase, Some(Phase::Succeeded | Phase::Failed))
}

struct DataVolumes {
    client: Client,
    image: String,
    asking: Asking,
    volumes: Cache<DataVolume>,
    claims: Cache<PersistentVolumeClaim>,
    pods: Cache<Pod>,
    classes: Cache<StorageClass>,
    profiles: Cache<StorageProfile>,
    sources: Cache<DataSource>,
    configs: Cache<CDIConfig>,
    snapshots: Cache<VolumeSnapshot>,
    died: Remembered<Died>,
    written: Written,
    recorder: Recorder,
    now: Now,
}

/// How often importers of a DataVolume have died, of what the last one, and when another may be made.
#[derive(Clone, Debug, Default)]
struct Died {
    times: u32,
    message: String,
    next: Timestamp,
}

/// What caches hold for one DataVolume.
struct Found {
    origin: Result<Origin, OriginError>,
    claim: Option<Arc<PersistentVolumeClaim>>,
    original: Option<Arc<PersistentVolumeClaim>>,
    snapshot: Option<Arc<VolumeSnapshot>>,
    pod: Option<Arc<Pod>>,
    taken: bool,
    class: Option<Arc<StorageClass>>,
    profile: Option<Arc<StorageProfile>>,
    overhead: Overhead,
}

impl Reconciler for DataVolumes {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(volume) = self.volumes.get(key) else { return Ok(Next::Wait) };
        if self.written.is_behind(key, &*volume) {
            return Ok(Next::Wait);
        }
        let found = self.find(&volume, key);
        let progress = match &found.pod {
            Some(pod) if runs(pod) => (self.asking)(pod.clone()).await,
            _ => None,
        };
        let observed = Observed {
            volume: &volume,
            origin: &found.origin,
            claim: found.claim.as_deref(),
            pod: found.pod.as_deref(),
            original: found.original.as_deref(),
            snapshot: found.snapshot.as_deref(),
            taken: found.taken,
            setback: self.setback(key),
            gaps: found.gaps(),
            progress,
        };
        let VolumePlan { act, told, again } = decide(&observed);
        if let Some(told) = &told {
            let (patch, event) = status::changed(&volume, told, (self.now)());
            if let Some(event) = event {
                self.recorder.record(&*volume, event.kind, &event.reason, event.message);
            }
            if let Some(patch) = patch {
                let api: Api<DataVolume> = Api::namespaced(self.client.clone(), &key.namespace);
                self.written.patch_status(&api, key, &patch).await?;
            }
        }
        self.act(&volume, key, &found, act).await?;
        let imports = told.is_some_and(|told| told.phase == Phase::ImportInProgress);
        Ok(again.or(imports.then_some(PROGRESS)).map_or(Next::Wait, Next::After))
    }
}

impl DataVolumes {
    fn find(&self, volume: &DataVolume, key: &Key) -> Found {
        let near = |name: &str| self.claims.get(&Key { namespace: key.namespace.clone(), name: name.to_owned() });
        let origin = origin(&volume.spec, &key.namespace, |namespace, name| {
            let key = Key { namespace: namespace.to_owned(), name: name.to_owned() };
            self.sources.get(&key).map(|source| (*source).clone())
        });
        let original = match &origin {
            Ok(Origin::Copy { name, .. }) => near(name),
            _ => None,
        };
        let snapshot = match &origin {
            Ok(Origin::Snapshot { name, .. }) => {
                self.snapshots.get(&Key { namespace: key.namespace.clone(), name: name.clone() })
            }
            _ => None,
        };
        let uid = volume.uid().unwrap_or_default();
        let pods = self.pods.find("controller", &uid);
        let taken = self.pods.get(&Key { namespace: key.namespace.clone(), name: pod::name(volume) });
        let taken = taken.is_some_and(|pod| !is_controlled_by(&pod.metadata, &uid));
        let claim = volume.annotations().get(PREPOPULATED).and_then(|name| near(name)).or_else(|| near(&key.name));
        let class = self.class_of(volume);
        let profile = class.as_ref().and_then(|class| self.profiles.get(&Key::cluster(class.name_any())));
        let config = self.configs.get(&Key::cluster(CONFIG));
        let overhead = Overhead::of(config.as_deref(), class.as_ref().map(|class| class.name_any()).as_deref());
        let pod = pods.into_iter().find(|pod| pod::is_importer(pod));
        Found { origin, claim, original, snapshot, pod, taken, class, profile, overhead }
    }

    fn setback(&self, key: &Key) -> Option<Setback> {
        let Died { message, next, .. } = self.died.get(key)?;
        let left = Duration::try_from(next.duration_since((self.now)())).unwrap_or_default();
        (!left.is_zero()).then_some(Setback { message, left })
    }

    /// The class that a DataVolume names, or that of claims that name none: the one for virtual machines first.
    fn class_of(&self, volume: &DataVolume) -> Option<Arc<StorageClass>> {
        let (claim, storage) = (volume.spec.pvc.as_ref(), volume.spec.storage.as_ref());
        let named = claim.and_then(|claim| claim.storage_class_name.as_deref());
        let named = named.or_else(|| storage.and_then(|storage| storage.storage_class_name.as_deref()));
        if let Some(name) = named {
            return self.classes.get(&Key::cluster(name));
        }
        let marked = |mark: &str| {
            let is_marked = |class: &Arc<StorageClass>| class.annotations().get(mark).is_some_and(|is| is == "true");
            self.classes.all().into_iter().find(is_marked)
        };
        // What is written as a claim is made as one: by Kubernetes' own rule.
        let virt = if storage.is_some() { marked(DEFAULT_VIRT_CLASS) } else { None };
        virt.or_else(|| marked(DEFAULT_CLASS))
    }

    async fn act(&self, volume: &DataVolume, key: &Key, found: &Found, act: Act) -> Result<(), kube::Error> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        match (act, &found.claim, &found.origin) {
            (Act::CreateClaim(claim), ..) => create(&claims, &claim).await,
            (Act::Populate, Some(claim), _) => {
                let annotations = json!({ POPULATED: "true", POD_PHASE: "Succeeded" });
                let patch = guarded(&claim.metadata, json!({ "metadata": { "annotations": annotations } }));
                change(&claims, &claim.name_any(), &patch).await
            }
            (Act::CreatePod, Some(claim), Ok(origin)) => {
                let size = claim.spec.as_ref().and_then(size).unwrap_or_default();
                let disk = found.overhead.disk_in(size);
                match pod::render(volume, origin, &claim.name_any(), disk, &self.image) {
                    Some(pod) => create(&pods, &pod).await,
                    None => Ok(()),
                }
            }
            (Act::Adopt, Some(claim), _) => {
                let owners = claim.owner_references().iter().cloned().chain(controller_reference(volume));
                let owners: Vec<OwnerReference> = owners.collect();
                let patch = guarded(&claim.metadata, json!({ "metadata": { "ownerReferences": owners } }));
                change(&claims, &claim.name_any(), &patch).await
            }
            (Act::Retry(message), ..) => {
                let now = (self.now)();
                self.died.change(key, |died| {
                    let times = died.times.saturating_add(1);
                    *died = Died { times, message, next: now.saturating_add(wait(times)).unwrap_or(now) };
                });
                remove(&pods, found).await
            }
            (Act::RemovePod, ..) => remove(&pods, found).await,
            (Act::Nothing | Act::Populate | Act::CreatePod | Act::Adopt, ..) => Ok(()),
        }
    }
}

async fn change(claims: &Api<PersistentVolumeClaim>, name: &str, patch: &Value) -> Result<(), kube::Error> {
    let written = claims.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    unless_gone(written.inspect(|_| log_changed::<PersistentVolumeClaim>(name)))
}

async fn remove(pods: &Api<Pod>, found: &Found) -> Result<(), kube::Error> {
    match &found.pod {
        Some(pod) => delete(pods, &pod.name_any(), pod.uid().as_deref(), None).await,
        None => Ok(()),
    }
}

impl Found {
    fn gaps(&self) -> Gaps<'_> {
        let class = self.class.as_ref();
        let sets = self.profile.as_ref().and_then(|profile| profile.status.as_ref()?.claim_property_sets.as_ref());
        let first = sets.and_then(|sets| sets.first());
        Gaps {
            class: class.and_then(|class| class.metadata.name.as_deref()),
            binds_late: class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")),
            access_modes: first.map(|set| set.access_modes.as_slice()),
            volume_mode: first.and_then(|set| set.volume_mode.as_deref()),
            overhead: self.overhead,
        }
    }
}

fn runs(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
}
