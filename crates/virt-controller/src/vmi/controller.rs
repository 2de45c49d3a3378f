//! Observes, decides and acts: the part of the VMI controller that speaks to the server.

mod acting;
mod feeding;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api::data_volume::DataVolume;
use api::names::label;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Key, controller_of};
use manager::context::{Chance, Context, Now, Started};
use manager::events::Recorder;
use manager::kit::{Expected, Kit, Reconciler, Remembered, Written};
use manager::worker::Next;
use tokio::sync::watch;
use tokio::time::Instant;

use super::volumes::Known;
use super::{Observed, Plan, decide};
use crate::configuration::Configuration;
use crate::data_volumes::DataVolumes;
use crate::indexes;
use crate::render::Launcher;
use crate::surroundings::Surroundings;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "vmi-controller";

/// A watch is seldom silent for longer than this.
const ASK_AFTER: Duration = Duration::from_secs(20);

/// The controller.
#[must_use]
pub(crate) fn start(
    context: &Context,
    launcher: watch::Receiver<Launcher>,
    surroundings: Surroundings,
    data_volumes: DataVolumes,
    workers: usize,
) -> Started {
    let (kit, caches) = (Kit::new(NAME, context), &context.caches);
    let controller = Vmis {
        client: context.client.clone(),
        vmis: indexes::vmis(caches),
        pods: indexes::pods(caches),
        claims: caches.of(&[]),
        classes: caches.of(&[]),
        data_volumes,
        configuration: Configuration::new(context),
        launcher,
        surroundings,
        expected: kit.expected(),
        asked_for: kit.remembers("when what is expected was asked for"),
        written: kit.written(),
        failures: kit.remembers("failure"),
        recorder: context.recorder.of("virtualmachine-controller"),
        now: context.now.clone(),
        chance: context.chance.clone(),
    };
    feeding::feed(kit, &controller).run(workers, controller)
}

struct Vmis {
    client: Client,
    vmis: Cache<VirtualMachineInstance>,
    pods: Cache<Pod>,
    claims: Cache<PersistentVolumeClaim>,
    classes: Cache<StorageClass>,
    data_volumes: DataVolumes,
    configuration: Configuration,
    launcher: watch::Receiver<Launcher>,
    surroundings: Surroundings,
    expected: Expected,
    asked_for: Remembered<Instant>,
    written: Written,
    failures: Remembered<String>,
    recorder: Recorder,
    now: Now,
    chance: Chance,
}

impl Reconciler for Vmis {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(vmi) = self.vmis.get(key) else { return Ok(Next::Wait) };
        if self.written.is_behind(key, &*vmi) {
            return Ok(Next::Wait);
        }
        if let Some(left) = self.waits(key, &vmi).await? {
            return Ok(Next::After(left));
        }
        if vmi.spec.volumes.iter().flatten().any(|volume| volume.data_volume.is_some()) {
            self.data_volumes.known().await;
        }
        let cached = self.pods_of(&vmi);
        let mut plan = self.decide(key, &vmi, &cached, false).await?;
        if plan.ask {
            let asked = ask(&self.client, &vmi).await?;
            plan = self.decide(key, &vmi, &asked, true).await?;
        }
        self.act(key, &vmi, plan).await
    }
}

impl Vmis {
    fn pods_of(&self, vmi: &VirtualMachineInstance) -> Vec<Arc<Pod>> {
        self.pods.find("controller", vmi.metadata.uid.as_deref().unwrap_or_default())
    }

    /// How long to wait for the cache to show what was asked for; none if there is nothing to wait for. A pod that came and
    /// went while the watch was silent is no news to anybody: after a while the server itself is asked.
    async fn waits(&self, key: &Key, vmi: &VirtualMachineInstance) -> Result<Option<Duration>, kube::Error> {
        let Some(left) = self.expected.remaining(key) else { return Ok(None) };
        let young = self.asked_for.get(key).map_or(Duration::ZERO, |at| ASK_AFTER.saturating_sub(at.elapsed()));
        if !young.is_zero() {
            return Ok(Some(left.min(young)));
        }
        if !ask(&self.client, vmi).await?.is_empty() {
            return Ok(Some(left.min(ASK_AFTER)));
        }
        self.expected.forget(key);
        Ok(None)
    }

    async fn decide(
        &self,
        key: &Key,
        vmi: &VirtualMachineInstance,
        pods: &[Arc<Pod>],
        asked: bool,
    ) -> Result<Plan, kube::Error> {
        let image_volumes = self.surroundings.mounts_images(&self.client).await?;
        let config = self.configuration.current();
        let claims = indexes::claims_of(vmi);
        let of_cache = |name: &String| self.claims.get(&Key { namespace: key.namespace.clone(), name: name.clone() });
        let claims: Vec<_> = claims.iter().filter_map(of_cache).collect();
        let volumes = self.data_volumes.of(&key.namespace);
        let more: Vec<_> = volumes.iter().flatten().filter_map(|volume| of_cache(&claim_of(volume)?)).collect();
        let classes = self.classes.all();
        let named = |volume: &'_ Arc<DataVolume>| volume.metadata.name.clone().unwrap_or_default();
        let names: Vec<(String, Arc<DataVolume>)> =
            volumes.iter().flatten().map(|volume| (named(volume), volume.clone())).collect();
        let all = claims.iter().chain(&more);
        let known = Known {
            claims: all.map(|claim| (claim.metadata.name.as_deref().unwrap_or_default(), &**claim)).collect(),
            data_volumes: volumes.is_some().then(|| names.iter().map(|(name, one)| (name.as_str(), &**one)).collect()),
            late_binding: classes.iter().filter(|class| binds_late(class)).filter_map(|class| name_of(class)).collect(),
            default_class: classes.iter().find(|class| is_default(class)).and_then(|class| name_of(class)),
        };
        let launcher = self.launcher.borrow();
        let failure = self.failures.get(key);
        let wants_cid = vmi.spec.domain.devices.autoattach_vsock == Some(true);
        let taken_cids = if wants_cid { self.taken_cids() } else { BTreeSet::new() };
        let observed = Observed {
            vmi,
            pods: pods.iter().map(|pod| &**pod).collect(),
            asked,
            volumes: known,
            namespace: self.surroundings.namespace(&key.namespace),
            config: &config,
            launcher: &launcher,
            image_volumes,
            failure: failure.as_deref(),
            taken_cids: &taken_cids,
            chance: if wants_cid { self.chance.number() } else { 0 },
        };
        Ok(decide(&observed, (self.now)()))
    }

    fn taken_cids(&self) -> BTreeSet<u32> {
        let vmis = self.vmis.all();
        vmis.iter().filter(|vmi| !vmi.is_final()).filter_map(|vmi| vmi.status.as_ref()?.vsock_cid).collect()
    }
}

/// The pods of an instance that the server itself has.
pub(crate) async fn ask(client: &Client, vmi: &VirtualMachineInstance) -> Result<Vec<Arc<Pod>>, kube::Error> {
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(client.clone(), vmi.metadata.namespace.as_deref().unwrap_or_default());
    let found = api.list(&ListParams::default().labels(&format!("{}={uid}", label::CREATED_BY))).await?.items;
    Ok(found.into_iter().filter(|pod| controller_of(pod) == [uid]).map(Arc::new).collect())
}

fn claim_of(volume: &DataVolume) -> Option<String> {
    volume.status.as_ref()?.claim_name.clone().or_else(|| volume.metadata.name.clone())
}

fn binds_late(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

fn is_default(class: &StorageClass) -> bool {
    class.annotations().get("storageclass.kubernetes.io/is-default-class").is_some_and(|value| value == "true")
}

fn name_of(class: &StorageClass) -> Option<&str> {
    class.metadata.name.as_deref()
}
