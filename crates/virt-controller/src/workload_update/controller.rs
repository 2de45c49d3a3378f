//! Observes, decides and acts: the part of the workload updater that speaks to the server.

use std::sync::Arc;
use std::time::Duration;

use api::kubevirt::KubeVirt;
use api::migration::VirtualMachineInstanceMigration as Migration;
use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::core::Status;
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Changed, Key};
use manager::context::{Context, Now, Started};
use manager::errors::chain;
use manager::events::{Kind, Recorder};
use manager::kit::{Expected, Kit, Reconciler, Remembered, Written};
use manager::worker::Next;
use manager::writing::{delete, log_changed};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Instance, Observed, UpdatePlan, decide, is_own};
use crate::configuration::Configuration;
use crate::indexes;
use crate::migration::asking::ask_for;
use crate::render::Launcher;
use crate::vmi::Target;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "workload-updater";
/// Between two looks at all instances.
const PAUSE: Duration = Duration::from_secs(5);

/// The controller.
#[must_use]
pub(crate) fn start(context: &Context, launcher: watch::Receiver<Launcher>) -> Started {
    let (kit, caches) = (Kit::new(NAME, context), &context.caches);
    let configuration = Configuration::new(context);
    let controller = Updates {
        client: context.client.clone(),
        kubevirts: configuration.objects().clone(),
        vmis: indexes::vmis(caches),
        pods: indexes::pods(caches),
        migrations: caches.of(&indexes::MIGRATIONS),
        configuration,
        launcher,
        expected: kit.expected(),
        written: kit.written(),
        looked: kit.remembers("last look"),
        last_batch: kit.remembers("last batch of evictions"),
        recorder: context.recorder.of("workload-update-controller"),
        now: context.now.clone(),
    };
    feed(kit, &controller).run(1, controller)
}

/// Declares all that the instances have to be looked at for.
fn feed(kit: Kit, controller: &Updates) -> Kit {
    let Updates { kubevirts, vmis, pods, migrations, expected, .. } = controller;
    let (of_vmi, of_migration, of_launcher) = (kubevirts.clone(), kubevirts.clone(), kubevirts.clone());
    let (expected, queue, mut launcher) = (expected.clone(), kit.queue(), controller.launcher.clone());
    kit.reconciles(kubevirts)
        .watch(vmis, move |change: &Changed<VirtualMachineInstance>| {
            let [before, now] = [&change.old, &change.new].map(|vmi| vmi.as_deref().map(what_matters));
            if before == now { Vec::new() } else { keys(&of_vmi) }
        })
        .watch(migrations, move |change: &Changed<Migration>| {
            let keys = keys(&of_migration);
            let owner = |one: &Option<Arc<Migration>>| keys.first().filter(|_| one.as_deref().is_some_and(is_own));
            expected.saw(owner(&change.old), owner(&change.new), change);
            keys
        })
        .needs(pods)
        .also(async move {
            while launcher.changed().await.is_ok() {
                keys(&of_launcher).into_iter().for_each(|key| queue.add(key));
            }
        })
}

/// Admission allows one.
fn keys(kubevirts: &Cache<KubeVirt>) -> Vec<Key> {
    kubevirts.all().iter().map(|one| Key::of(&**one)).collect()
}

/// What of an instance can change a decision; the rest of its status changes all the time.
fn what_matters(vmi: &VirtualMachineInstance) -> impl PartialEq + use<> {
    let status = vmi.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let conditions: Vec<_> = conditions.into_iter().map(|one| (one.type_, one.status)).collect();
    let moving = crate::migration::asking::is_moving(vmi);
    let told = (status.launcher_container_image_version, status.evacuation_node_name, status.node_name);
    (vmi.phase().clone(), vmi.is_marked_for_deletion(), vmi.annotations().clone(), conditions, moving, told)
}

struct Updates {
    client: Client,
    kubevirts: Cache<KubeVirt>,
    vmis: Cache<VirtualMachineInstance>,
    pods: Cache<Pod>,
    migrations: Cache<Migration>,
    configuration: Configuration,
    launcher: watch::Receiver<Launcher>,
    expected: Expected,
    written: Written,
    looked: Remembered<Instant>,
    last_batch: Remembered<Timestamp>,
    recorder: Recorder,
    now: Now,
}

impl Reconciler for Updates {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(kubevirt) = self.kubevirts.get(key) else { return Ok(Next::Wait) };
        if self.written.is_behind(key, &*kubevirt) {
            return Ok(Next::Wait);
        }
        if let Some(left) = self.expected.remaining(key) {
            return Ok(Next::After(left));
        }
        // All instances are looked at: not at each change of one of them.
        let young = self.looked.get(key).map_or(Duration::ZERO, |at| PAUSE.saturating_sub(at.elapsed()));
        if !young.is_zero() {
            return Ok(Next::After(young));
        }
        self.looked.set(key, Instant::now());
        let plan = self.decide(key, &kubevirt);
        self.act(key, plan).await
    }
}

impl Updates {
    fn decide(&self, key: &Key, kubevirt: &KubeVirt) -> UpdatePlan {
        let vmis = self.vmis.all();
        let found: Vec<_> = vmis
            .iter()
            .map(|vmi| {
                let pods = self.pods.find("controller", vmi.metadata.uid.as_deref().unwrap_or_default());
                let Key { namespace, name } = Key::of(&**vmi);
                (vmi, pods, self.migrations.find("instance", &format!("{namespace}/{name}")))
            })
            .collect();
        let instances = found.iter().map(|(vmi, pods, migrations)| Instance {
            vmi,
            pods: pods.iter().map(|pod| &**pod).collect(),
            migrations: migrations.iter().map(|one| &**one).collect(),
        });
        let (config, launcher) = (self.configuration.current(), self.launcher.borrow().runs());
        let seen = Observed {
            kubevirt,
            instances: instances.collect(),
            launcher: &launcher,
            config: &config,
            last_batch: self.last_batch.get(key),
        };
        decide(&seen, (self.now)())
    }

    async fn act(&self, key: &Key, plan: UpdatePlan) -> Result<Next, kube::Error> {
        let UpdatePlan { count, migrate, evict, abort, recheck_after } = plan;
        if let Some(count) = &count {
            let api: Api<KubeVirt> = Api::namespaced(self.client.clone(), &key.namespace);
            self.written.patch_status(&api, key, count).await?;
        }
        let mut outcome = Ok(());
        for (vmi, migration) in &abort {
            outcome = outcome.and(self.abort(vmi, migration).await);
        }
        if !migrate.is_empty() {
            self.expected.expect(key, migrate.len(), None);
        }
        for migration in &migrate {
            outcome = outcome.and(self.migrate(key, migration).await);
        }
        if !evict.is_empty() {
            self.last_batch.set(key, (self.now)());
        }
        for (vmi, pod) in &evict {
            self.evict(vmi, pod).await;
        }
        outcome?;
        let expects = self.expected.remaining(key);
        Ok(recheck_after.into_iter().chain(expects).min().map_or(Next::Wait, Next::After))
    }

    fn tell(&self, vmi: &Key, kind: Kind, reason: &'static str, message: String) {
        if let Some(vmi) = self.vmis.get(vmi) {
            self.recorder.record(&*vmi, kind, reason, message);
        }
    }

    async fn migrate(&self, key: &Key, migration: &Migration) -> Result<(), kube::Error> {
        let name = migration.spec.vmi_name.clone().unwrap_or_default();
        let vmi = Key { namespace: migration.namespace().unwrap_or_default(), name };
        let made = ask_for(&self.client, migration).await;
        match &made {
            Ok(()) => {
                let message = format!("Created Migration {} for automated workload update", migration.name_any());
                self.tell(&vmi, Kind::Normal, "SuccessfulCreate", message);
            }
            Err(error) => {
                self.expected.created(key);
                let message = format!("Error creating a Migration for automated workload update: {}", chain(error));
                self.tell(&vmi, Kind::Warning, "FailedCreate", message);
            }
        }
        made
    }

    /// A pod that stays is in the next batch again: there is nothing else to be done about it.
    async fn evict(&self, vmi: &Key, pod: &Target) {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &vmi.namespace);
        match evict(&api, pod).await {
            Ok(()) => {
                let message = "Initiated eviction of VMI as part of automated workload update".to_owned();
                self.tell(vmi, Kind::Normal, "SuccessfulEvict", message);
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                let message = format!("Error deleting VMI during automated workload update: {}", chain(&error));
                self.tell(vmi, Kind::Warning, "FailedEvict", message);
            }
        }
    }

    async fn abort(&self, vmi: &Key, Target { name, uid }: &Target) -> Result<(), kube::Error> {
        let api: Api<Migration> = Api::namespaced(self.client.clone(), &vmi.namespace);
        let done = delete(&api, name, Some(uid), None).await;
        match &done {
            Ok(()) => {
                let message = format!("Aborted change for vmi: {}", vmi.name);
                self.tell(vmi, Kind::Normal, "SuccessfulChangeAbortion", message);
            }
            Err(error) => {
                let message = format!("Failed to abort change for vmi: {}: {}", vmi.name, chain(error));
                self.tell(vmi, Kind::Warning, "FailedChangeAbortion", message);
            }
        }
        done
    }
}

/// Evicts a pod, and not another of its name.
async fn evict(api: &Api<Pod>, Target { name, uid }: &Target) -> Result<(), kube::Error> {
    let eviction = json!({ "metadata": { "name": name }, "deleteOptions": { "preconditions": { "uid": uid } } });
    let parameters = PostParams::default();
    let answer: Result<Status, kube::Error> = api.create_subresource("eviction", name, &parameters, &eviction).await;
    answer.map(|_| log_changed::<Pod>(name))
}
