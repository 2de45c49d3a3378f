//! Observes, decides and acts: the part of the migration controller that speaks to the server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::migration::VirtualMachineInstanceMigration as Migration;
use api::migration_policy::MigrationPolicy;
use api::names::annotation;
use api::vmi::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use manager::cache::{Cache, Changed, Key, controller_of};
use manager::context::{Context, Now, Started};
use manager::errors::chain;
use manager::events::{Kind, Recorder};
use manager::kit::{Expected, Kit, Reconciler, Remembered, Written};
use manager::worker::Next;
use manager::writing::{delete, log_changed, log_created, unless_gone};
use tokio::sync::watch;

use super::turns::{self, Limits, Urgency, Waiting};
use super::{Failure, MigrationPlan, Observed, decide, is_final, phase, state_of, target};
use crate::configuration::Configuration;
use crate::indexes;
use crate::render::{Claim, Input, Launcher};
use crate::surroundings::Surroundings;

/// As the flag `--controllers` knows it.
pub const NAME: &str = "migration-controller";

/// The controller.
#[must_use]
pub(crate) fn start(
    context: &Context,
    launcher: watch::Receiver<Launcher>,
    surroundings: Surroundings,
    workers: usize,
) -> Started {
    let (kit, caches) = (Kit::new(NAME, context), &context.caches);
    let controller = Migrations {
        client: context.client.clone(),
        migrations: caches.of(&indexes::MIGRATIONS),
        vmis: indexes::vmis(caches),
        pods: indexes::pods(caches),
        policies: caches.of(&[]),
        nodes: caches.of(&[]),
        configuration: Configuration::new(context),
        surroundings,
        launcher,
        begin: Arc::default(),
        expected: kit.expected(),
        written: kit.written(),
        failures: kit.remembers("failure"),
        told: kit.remembers("told"),
        recorder: context.recorder.of("virtualmachineinstancemigration-controller"),
        now: context.now.clone(),
    };
    feed(kit, &controller).run(workers, controller)
}

/// Declares all that a migration has to be looked at for.
fn feed(kit: Kit, controller: &Migrations) -> Kit {
    let Migrations { migrations, vmis, pods, policies, nodes, configuration, surroundings, expected, .. } = controller;
    let (of_vmi, of_end, of_configuration, of_quota) =
        (migrations.clone(), migrations.clone(), migrations.clone(), migrations.clone());
    let expected = expected.clone();
    kit.reconciles(migrations)
        // Whoever ends, or goes, makes room for those that wait.
        .watch(migrations, move |change: &Changed<Migration>| match change.new.as_deref().is_none_or(is_final) {
            true => waiting(&of_end),
            false => Vec::new(),
        })
        .watch(vmis, move |change: &Changed<VirtualMachineInstance>| of_instance(&of_vmi, &change.key))
        .watch(pods, move |change: &Changed<Pod>| {
            let owner = change.new.as_deref().or(change.old.as_deref()).and_then(migration_of);
            expected.saw(owner.as_ref(), owner.as_ref(), change);
            owner
        })
        .watch(configuration.objects(), move |_| waiting(&of_configuration))
        .watch(surroundings.quotas(), move |_| waiting(&of_quota))
        .needs(surroundings.namespaces())
        .needs(policies)
        .needs(nodes)
}

/// The migration that a pod was made for.
fn migration_of(pod: &Pod) -> Option<Key> {
    let name = pod.annotations().get(annotation::MIGRATION_JOB_NAME)?.clone();
    Some(Key { namespace: pod.namespace().unwrap_or_default(), name })
}

fn of_instance(migrations: &Cache<Migration>, vmi: &Key) -> Vec<Key> {
    let all = migrations.find("instance", &format!("{}/{}", vmi.namespace, vmi.name));
    all.iter().filter(|one| !is_final(one)).map(|one| Key::of(&**one)).collect()
}

/// The migrations that have not begun.
fn waiting(migrations: &Cache<Migration>) -> Vec<Key> {
    use api::migration::VirtualMachineInstanceMigrationPhase as Phase;
    let all = migrations.all();
    all.iter().filter(|one| matches!(phase(one), Phase::Unset | Phase::Pending)).map(|one| Key::of(&**one)).collect()
}

struct Migrations {
    client: Client,
    migrations: Cache<Migration>,
    vmis: Cache<VirtualMachineInstance>,
    pods: Cache<Pod>,
    policies: Cache<MigrationPolicy>,
    nodes: Cache<Node>,
    configuration: Configuration,
    surroundings: Surroundings,
    launcher: watch::Receiver<Launcher>,
    /// Held from counting who runs until the next one counts as running: two workers must not take the same turn.
    begin: Arc<Mutex<()>>,
    expected: Expected,
    written: Written,
    failures: Remembered<Failure>,
    told: Remembered<String>,
    recorder: Recorder,
    now: Now,
}

impl Reconciler for Migrations {
    async fn reconcile(&self, key: &Key) -> Result<Next, kube::Error> {
        let Some(migration) = self.migrations.get(key) else { return Ok(Next::Wait) };
        if self.written.is_behind(key, &*migration) {
            return Ok(Next::Wait);
        }
        if let Some(left) = self.expected.remaining(key) {
            return Ok(Next::After(left));
        }
        let image_volumes = self.surroundings.mounts_images(&self.client).await?;
        let plan = self.decide(key, &migration, image_volumes);
        self.act(key, &migration, plan).await
    }
}

impl Migrations {
    fn decide(&self, key: &Key, migration: &Migration, image_volumes: bool) -> MigrationPlan {
        let instance = migration.spec.vmi_name.clone().unwrap_or_default();
        let vmi = self.vmis.get(&Key { namespace: key.namespace.clone(), name: instance.clone() });
        let pods = vmi.as_deref().map(|vmi| self.pods_of(vmi)).unwrap_or_default();
        let siblings = self.migrations.find("instance", &format!("{}/{instance}", key.namespace));
        let policies = self.policies.all();
        let node = vmi.as_deref().and_then(node_of).and_then(|node| self.nodes.get(&Key::cluster(node)));
        let config = self.configuration.current();
        let namespace = self.surroundings.namespace(&key.namespace);
        let claims = vmi.as_deref().map(claims_of).unwrap_or_default();
        let launcher = self.launcher.borrow().clone();
        let begin = self.begin.lock().unwrap_or_else(PoisonError::into_inner);
        let observed = Observed {
            migration,
            vmi: vmi.as_deref(),
            pods: pods.iter().map(|pod| &**pod).collect(),
            siblings: siblings.iter().map(|one| &**one).filter(|one| one.uid() != migration.uid()).collect(),
            has_turn: self.has_turn(migration),
            input: vmi.as_deref().map(|vmi| Input {
                vmi,
                config: &config,
                launcher: &launcher,
                claims: &claims,
                namespace: &namespace,
                image_volumes,
            }),
            source: node.as_deref(),
            policies: policies.iter().map(|one| &**one).collect(),
            failure: self.failures.get(key),
            told: self.told.get(key),
        };
        let plan = decide(&observed, (self.now)());
        if plan.create.is_some() {
            self.expected.expect(key, 1, None);
        }
        drop(begin);
        plan
    }

    fn pods_of(&self, vmi: &VirtualMachineInstance) -> Vec<Arc<Pod>> {
        self.pods.find("controller", vmi.metadata.uid.as_deref().unwrap_or_default())
    }

    fn has_turn(&self, migration: &Migration) -> bool {
        let (mut running, mut waiting) = (Vec::new(), Vec::new());
        for one in self.migrations.all().iter().filter(|one| !is_final(one)) {
            let key = Key::of(&**one);
            let name = one.spec.vmi_name.clone().unwrap_or_default();
            let Some(vmi) = self.vmis.get(&Key { namespace: key.namespace.clone(), name }) else { continue };
            let handed_over = state_of(one, &vmi).and_then(|state| state.source_node.as_deref());
            let node = handed_over.or(node_of(&vmi)).unwrap_or_default().to_owned();
            let has_pod = self.pods_of(&vmi).iter().any(|pod| target::is_of(pod, one));
            if has_pod || handed_over.is_some() || self.expected.remaining(&key).is_some() {
                running.push(node);
                continue;
            }
            let created = one.metadata.creation_timestamp.as_ref().map(|at| at.0);
            let urgency = Urgency::of(one.spec.priority.as_ref());
            waiting.push(Waiting { urgency, created, uid: one.uid().unwrap_or_default(), node });
        }
        let config = self.configuration.current();
        let limits = config.migrations();
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let limits = Limits {
            per_cluster: count(limits.parallel_per_cluster),
            per_node: count(limits.parallel_outbound_per_node),
        };
        turns::has_turn(migration.metadata.uid.as_deref().unwrap_or_default(), &waiting, &running, limits)
    }

    async fn act(&self, key: &Key, migration: &Migration, plan: MigrationPlan) -> Result<Next, kube::Error> {
        let MigrationPlan { vmi, create, delete: gone, status, release, collect, events, told, recheck_after } = plan;
        let api: Api<Migration> = Api::namespaced(self.client.clone(), &key.namespace);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        if let Some(patch) = &vmi {
            let vmis: Api<VirtualMachineInstance> = Api::namespaced(self.client.clone(), &key.namespace);
            let name = migration.spec.vmi_name.as_deref().unwrap_or_default();
            let written = vmis.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
            unless_gone(written.inspect(|_| log_changed::<VirtualMachineInstance>(name)))?;
        }
        for pod in &gone {
            delete(&pods, &pod.name, Some(&pod.uid), None).await?;
            let message = format!("Deleted migration target pod {}", pod.name);
            self.recorder.record(migration, Kind::Normal, "SuccessfulDelete", message);
        }
        if let Some(status) = &status {
            self.written.patch_status(&api, key, status).await?;
        }
        for event in events {
            self.recorder.record(migration, event.kind, event.reason, event.message);
        }
        if let Some(told) = told {
            self.told.set(key, told);
        }
        if let Some(pod) = &create {
            self.create(key, migration, &pods, pod).await?;
        }
        if let Some(release) = &release {
            self.written.patch(&api, key, release).await?;
        }
        for old in &collect {
            delete(&api, &old.name, Some(&old.uid), None).await?;
        }
        let expects = self.expected.remaining(key);
        Ok(recheck_after.into_iter().chain(expects).min().map_or(Next::Wait, Next::After))
    }

    async fn create(&self, key: &Key, migration: &Migration, pods: &Api<Pod>, pod: &Pod) -> Result<(), kube::Error> {
        let error = match pods.create(&PostParams::default(), pod).await {
            Ok(made) => {
                log_created(&made);
                self.failures.take(key);
                return Ok(());
            }
            // An answer was lost, or another leader was faster: the cache will show it. A stranger's is another matter.
            Err(kube::Error::Api(status)) if status.is_already_exists() => match pods.get_opt(&pod.name_any()).await {
                Ok(Some(found)) if controller_of(&found) == controller_of(pod) => return Ok(()),
                Ok(_) => kube::Error::Api(status),
                Err(error) => error,
            },
            Err(error) => error,
        };
        self.expected.created(key);
        let by_quota = matches!(&error, kube::Error::Api(status) if status.code == 403 && status.message.contains("exceeded quota"));
        let failure = Failure { by_quota, message: chain(&error) };
        if self.failures.set(key, failure.clone()).as_ref() != Some(&failure) {
            let message = format!("Error creating pod: {}", failure.message);
            self.recorder.record(migration, Kind::Warning, "FailedCreate", message);
        }
        Err(error)
    }
}

fn node_of(vmi: &VirtualMachineInstance) -> Option<&str> {
    vmi.status.as_ref()?.node_name.as_deref()
}

/// The claims of an instance that runs, as it was handed over with them.
fn claims_of(vmi: &VirtualMachineInstance) -> BTreeMap<String, Claim> {
    use api::data_volume::VolumeMode;
    let volumes = vmi.status.iter().flat_map(|status| status.volume_status.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim_info.as_ref());
    let by_name = claims.filter_map(|claim| {
        let block = claim.volume_mode == Some(VolumeMode::Block);
        Some((claim.claim_name.clone()?, Claim { block }))
    });
    by_name.collect()
}
