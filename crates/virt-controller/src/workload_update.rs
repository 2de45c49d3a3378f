//! Workload updates: guests leave launchers that are outdated, and move where a change of theirs needs that.
//!
//! ```text
//! KubeVirt: methods, batches ────────────┐
//! instances: what their launchers run ───┼─> observe ──> decide ──> the count; migrations, evictions, aborts
//! their pods and migrations ─────────────┤
//! what launchers run that are made now ──┘
//! ```
//! Watches: KubeVirt, VirtualMachineInstance, Pod, VirtualMachineInstanceMigration. Owns: the migrations that it makes, and
//! `status.outdatedVirtualMachineInstanceWorkloads` of the KubeVirt object. Emits: `SuccessfulCreate`, `FailedCreate`,
//! `SuccessfulEvict`, `FailedEvict`, `SuccessfulChangeAbortion` and `FailedChangeAbortion` about instances.
//! Absent on purpose: the label of outdated instances, which is the VMI controller's; when a migration begins, which is the migration
//! controller's. A guest is never shut down for a change of its own that waits: only for a launcher that is outdated.
//!
//! | the instance | `LiveMigrate` is a method, and it can move | `Evict` is a method | what happens |
//! |---|---|---|---|
//! | does not run, ends, or moves already | | | nothing |
//! | is outdated | yes | | it is moved |
//! | is outdated | no | yes | its pod is evicted, in batches |
//! | has a change that needs a migration | yes | | it is moved |
//! | has neither, and a migration that was made here | | | the migration is cancelled, unless the guest has arrived |
//!
//! Nothing happens while the installation itself is being updated: the newest launchers may not be known yet.

pub mod controller;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use api::conditions::{self, ConditionStatus};
use api::kubevirt::{KubeVirt, KubeVirtPhase, KubeVirtWorkloadUpdateStrategy};
use api::migration::{MigrationPriority, VirtualMachineInstanceMigration as Migration};
use api::names::annotation;
use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use manager::cache::Key;
use manager::writing::guarded;
use serde_json::{Value, json};
use virt_rules::config::ClusterConfig;
use virt_rules::eviction::{self, Consequence};

use crate::migration::asking::{self, takes_room};
use crate::migration::is_final;
use crate::migration::waiting::holds;
use crate::render;
use crate::vmi::{Target, pods};

/// What the names of its migrations begin with.
const PREFIX: &str = "kubevirt-workload-update-";
/// Pods that are evicted at once, and the time between two times.
const BATCH: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(60);

/// What the caches say.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The KubeVirt object.
    pub kubevirt: &'a KubeVirt,
    /// All instances.
    pub instances: Vec<Instance<'a>>,
    /// What launchers run that are made now.
    pub launcher: &'a str,
    /// The cluster's configuration.
    pub config: &'a ClusterConfig,
    /// When pods were last evicted here.
    pub last_batch: Option<Timestamp>,
}

/// An instance and what belongs to it.
#[derive(Clone, Debug)]
pub struct Instance<'a> {
    pub vmi: &'a VirtualMachineInstance,
    /// The pods that it controls.
    pub pods: Vec<&'a Pod>,
    /// Its migrations, ended or not.
    pub migrations: Vec<&'a Migration>,
}

/// What to do; empty at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpdatePlan {
    /// A guarded merge patch of the KubeVirt object's status.
    pub count: Option<Value>,
    /// Migrations to make.
    pub migrate: Vec<Migration>,
    /// Instances whose pods are to be evicted, and the pods.
    pub evict: Vec<(Key, Target)>,
    /// Instances whose migrations are to be cancelled, and the migrations.
    pub abort: Vec<(Key, Target)>,
    /// When the next batch is due.
    pub recheck_after: Option<Duration>,
}

/// # Guarantees
/// - An instance gets a migration only if it has none that has not ended; and it is never moved and evicted at once.
/// - No more migrations are under way than the cluster's limit says, of those that this controller makes.
/// - No more pods are evicted in an interval than a batch has.
/// - Without methods, nobody is disturbed. At rest the plan is empty.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> UpdatePlan {
    let mut plan = UpdatePlan::default();
    if is_being_installed(seen.kubevirt) {
        return plan;
    }
    let verdicts: Vec<_> = seen.instances.iter().map(|one| (one, verdict(one, seen))).collect();
    let outdated = seen.instances.iter().filter(|one| runs(one.vmi) && is_outdated(one, seen.launcher)).count();
    plan.count = count(seen.kubevirt, outdated);
    let of = |wanted: Verdict| verdicts.iter().filter(move |(_, verdict)| *verdict == wanted).map(|(one, _)| *one);
    let under_way = seen.instances.iter().filter(|one| own(one).any(|own| takes_room(own, &one.migrations))).count();
    let most = usize::try_from(seen.config.migrations().parallel_per_cluster).unwrap_or(usize::MAX);
    plan.migrate = of(Verdict::Moves).take(most.saturating_sub(under_way)).map(migration).collect();
    plan.abort = of(Verdict::Stays).flat_map(|one| own(one).filter_map(|own| abort(one, own))).collect();
    let waiting: Vec<_> = of(Verdict::Ends).filter_map(|one| Some((Key::of(one.vmi), launcher(one)?))).collect();
    if !waiting.is_empty() {
        evict(&mut plan, seen, waiting, now);
    }
    plan
}

/// What becomes of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It is as it should be, or somebody is at it.
    Rests,
    /// It is moved.
    Moves,
    /// It is shut down.
    Ends,
    /// It is not to be moved any more.
    Stays,
}

fn verdict(one: &Instance<'_>, seen: &Observed<'_>) -> Verdict {
    let vmi = one.vmi;
    if !runs(vmi) {
        return Verdict::Rests;
    }
    let (outdated, wants_change) = (is_outdated(one, seen.launcher), has_change(vmi) && !is_called_off(vmi));
    if !outdated && !wants_change {
        let is_moved = own(one).next().is_some() && !has_arrived(vmi);
        return if is_moved { Verdict::Stays } else { Verdict::Rests };
    }
    if !one.migrations.iter().all(|one| is_final(one)) || asking::is_moving(vmi) {
        return Verdict::Rests;
    }
    let can_move = eviction::can_move(vmi);
    if has_method(seen.kubevirt, "LiveMigrate") && can_move {
        return Verdict::Moves;
    }
    // One that must not be shut down, or is on its way out already, would only take the place of others in its batch.
    let goes = eviction::consequence(vmi, seen.config) != Consequence::Stays && eviction::marked(vmi).is_none();
    if has_method(seen.kubevirt, "Evict") && outdated && goes { Verdict::Ends } else { Verdict::Rests }
}

fn runs(vmi: &VirtualMachineInstance) -> bool {
    vmi.is_running() && !vmi.is_marked_for_deletion()
}

/// Whether the launcher runs something else than those do that are made now. The pod itself tells: what the status says of it may be
/// from before the guest arrived in another. What is not known is not outdated.
fn is_outdated(one: &Instance<'_>, launcher: &str) -> bool {
    holder(one).and_then(render::runs).is_some_and(|runs| runs != launcher)
}

/// Whether a change of the guest waits for a migration.
fn has_change(vmi: &VirtualMachineInstance) -> bool {
    let all = vmi.status.as_ref().and_then(|status| status.conditions.as_deref());
    let holds = |kind: &str| conditions::has(all, kind, &ConditionStatus::True);
    conditions::find(all, "HotVCPUChange").is_some() || holds("HotMemoryChange") || holds("MigrationRequired")
}

fn is_called_off(vmi: &VirtualMachineInstance) -> bool {
    let annotations = vmi.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(annotation::WORKLOAD_UPDATE_ABORTION))
}

/// Whether the guest is where its last migration was to bring it: nothing is left to cancel.
fn has_arrived(vmi: &VirtualMachineInstance) -> bool {
    let status = vmi.status.as_ref();
    let state = status.and_then(|status| status.migration_state.as_ref());
    state.is_some_and(|state| {
        let is_there = state.target_node.is_some()
            && status.and_then(|status| status.node_name.as_ref()) == state.target_node.as_ref();
        is_there || state.target_node_domain_ready_timestamp.as_ref().is_some() || state.completed == Some(true)
    })
}

/// The migrations of an instance that were made here and have not ended.
fn own<'a>(one: &'a Instance<'_>) -> impl Iterator<Item = &'a Migration> {
    one.migrations.iter().copied().filter(|one| !is_final(one) && is_own(one))
}

/// Whether a migration was made here.
#[must_use]
pub fn is_own(migration: &Migration) -> bool {
    let annotations = migration.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(annotation::WORKLOAD_UPDATE_MIGRATION))
}

/// One that is on its way out is not deleted again.
fn abort(one: &Instance<'_>, migration: &Migration) -> Option<(Key, Target)> {
    let metadata = Some(&migration.metadata).filter(|metadata| metadata.deletion_timestamp.is_none())?;
    Some((Key::of(one.vmi), Target { name: metadata.name.clone()?, uid: metadata.uid.clone()? }))
}

fn migration(one: &Instance<'_>) -> Migration {
    let annotations = BTreeMap::from([(annotation::WORKLOAD_UPDATE_MIGRATION.to_owned(), String::new())]);
    let priority = match has_change(one.vmi) {
        true => MigrationPriority::UserTriggered,
        false => MigrationPriority::SystemCritical,
    };
    asking::migration(one.vmi, &one.migrations, PREFIX, annotations, priority)
}

/// The pod that the guest is in.
fn holder<'a>(one: &Instance<'a>) -> Option<&'a Pod> {
    one.pods.iter().copied().find(|pod| holds(pod, one.vmi))
}

/// The same, to be evicted: one that goes anyway needs nothing more.
fn launcher(one: &Instance<'_>) -> Option<Target> {
    holder(one).filter(|pod| !pods::is_terminating(pod)).map(pods::target)
}

fn evict(plan: &mut UpdatePlan, seen: &Observed<'_>, waiting: Vec<(Key, Target)>, now: Timestamp) {
    let strategy = strategy(seen.kubevirt);
    let size = strategy.and_then(|strategy| strategy.batch_eviction_size).unwrap_or(BATCH);
    let interval =
        strategy.and_then(|strategy| strategy.batch_eviction_interval.as_ref()?.to_std()).unwrap_or(INTERVAL);
    let left = seen.last_batch.and_then(|last| Duration::try_from((last + interval).duration_since(now)).ok());
    match left.filter(|left| !left.is_zero()) {
        Some(left) => plan.recheck_after = Some(left),
        None => {
            plan.evict = waiting.into_iter().take(usize::try_from(size).unwrap_or(usize::MAX)).collect();
            plan.recheck_after = Some(interval);
        }
    }
}

fn strategy(kubevirt: &KubeVirt) -> Option<&KubeVirtWorkloadUpdateStrategy> {
    kubevirt.spec.workload_update_strategy.as_ref()
}

fn has_method(kubevirt: &KubeVirt, method: &str) -> bool {
    let methods = strategy(kubevirt).and_then(|strategy| strategy.workload_update_methods.as_ref());
    methods.is_some_and(|methods| methods.iter().any(|one| one == method))
}

/// Whether an installation is on its way to another release. Where nobody installs anything in steps, nobody says so.
fn is_being_installed(kubevirt: &KubeVirt) -> bool {
    let Some(status) = &kubevirt.status else { return false };
    let is_deployed = status.phase.as_ref().is_none_or(|phase| *phase == KubeVirtPhase::Deployed);
    !is_deployed || status.observed_deployment_id != status.target_deployment_id
}

fn count(kubevirt: &KubeVirt, outdated: usize) -> Option<Value> {
    let told = kubevirt.status.as_ref().and_then(|status| status.outdated_virtual_machine_instance_workloads);
    let outdated = u32::try_from(outdated).unwrap_or(u32::MAX);
    let patch = json!({ "status": { "outdatedVirtualMachineInstanceWorkloads": outdated } });
    (told != Some(outdated)).then(|| guarded(&kubevirt.metadata, patch))
}
