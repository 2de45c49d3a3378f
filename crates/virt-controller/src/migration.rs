//! Live migrations: a second launcher for an instance, the hand-over of its guest, and a clean end of either.
//!
//! ```text
//! VirtualMachineInstanceMigration ──┐
//! its instance and their pods ──────┼─> observe ──> decide ──> the target pod, one write of the instance, one of the migration
//! the other migrations: limits ─────┤
//! configuration, policies, nodes ───┘
//! ```
//! Watches: VirtualMachineInstanceMigration, VirtualMachineInstance, Pod, MigrationPolicy, Node, Namespace, ResourceQuota,
//! KubeVirt. Owns: the target pod, the status of the migration, and `status.migrationState` of the instance until it is handed
//! over. Emits: events about the migration and its pod.
//! Absent on purpose: memory and disks, which virt-handler and the launchers move. Which of two launchers may write is decided by
//! their grants. After the hand-over nothing here says that a guest has moved or stayed: the handlers say it, and this follows.
//!
//! | phase | what is seen | next |
//! |---|---|---|
//! | none | | Pending |
//! | Pending | the instance cannot move, or moves already | Failed |
//! | Pending | it is this migration's turn | the target pod is made |
//! | Pending | the target pod | Scheduling |
//! | Scheduling | the pod runs on its node | Scheduled |
//! | Scheduling | the pod ended, or has waited too long | Failed |
//! | Scheduled | | the instance is handed over: PreparingTarget |
//! | `PreparingTarget` | the target's handler tells its address | `TargetReady` |
//! | `TargetReady` | the source's handler has begun | Running |
//! | any of these three | the handlers say that it is completed, or failed | Succeeded, or Failed |
//! | `PreparingTarget`, `TargetReady` | the target pod ended and nothing was sent | the instance is told, then Failed |
//! | any | the instance ended | Failed |
//! | before the hand-over | somebody deletes the migration | Failed |
//! | after it | somebody deletes the migration | the instance is told: the handlers decide |

pub(crate) mod asking;
pub mod controller;
pub mod policy;
pub mod target;
pub mod turns;

mod end;
mod handover;
#[cfg(test)]
mod tests;
pub(crate) mod waiting;

use std::time::Duration;

use api::conditions::{self, ConditionStatus};
use api::migration::{
    VirtualMachineInstanceMigration as Migration, VirtualMachineInstanceMigrationCondition as Condition,
    VirtualMachineInstanceMigrationPhase as Phase,
    VirtualMachineInstanceMigrationPhaseTransitionTimestamp as Transition,
    VirtualMachineInstanceMigrationState as State, VirtualMachineInstanceMigrationStatus as Status,
};
use api::migration_policy::MigrationPolicy;
use api::vmi::VirtualMachineInstance;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use manager::events::Kind;
use manager::writing::{difference, guarded, whole_second};
use serde_json::{Value, json};

use crate::render::Input;
use crate::vmi::{Event, Target};

/// What the caches say about one migration.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    pub migration: &'a Migration,
    /// The instance that it names; none if there is none.
    pub vmi: Option<&'a VirtualMachineInstance>,
    /// The pods of that instance.
    pub pods: Vec<&'a Pod>,
    /// The other migrations of the same instance.
    pub siblings: Vec<&'a Migration>,
    /// Whether the limits let this migration begin now.
    pub has_turn: bool,
    /// What the target pod is rendered from; none without an instance.
    pub input: Option<Input<'a>>,
    /// The node that the guest is on.
    pub source: Option<&'a Node>,
    /// All migration policies.
    pub policies: Vec<&'a MigrationPolicy>,
    /// Why the target pod could not be made at the last attempt; none once it was.
    pub failure: Option<Failure>,
    /// What it waits for, as people were told last.
    pub told: Option<String>,
}

/// Why a target pod was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// A quota of the namespace has no room for it.
    pub by_quota: bool,
    /// The error, for people.
    pub message: String,
}

/// What to do about one migration; empty at rest. In this order: the instance, pods, the migration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MigrationPlan {
    /// A merge patch of the instance; it carries the version that was observed, and the UID.
    pub vmi: Option<Value>,
    /// The target pod.
    pub create: Option<Box<Pod>>,
    /// Pods that must go.
    pub delete: Vec<Target>,
    /// A guarded merge patch of the migration's status.
    pub status: Option<Value>,
    /// A guarded merge patch of the rest: its finalizer goes.
    pub release: Option<Value>,
    /// Old migrations of the instance that nobody needs any more.
    pub collect: Vec<Target>,
    /// What people should read about the migration.
    pub events: Vec<Event>,
    /// What they are told with this that it waits for.
    pub told: Option<String>,
    /// When time alone changes something: decide again then.
    pub recheck_after: Option<Duration>,
}

/// # Guarantees
/// - A target pod is made only in Pending, in its turn, for an instance that can move and that no other migration moves.
/// - Nothing is handed over to a pod that does not run, or that is on the source's node.
/// - After the hand-over a migration ends as the handlers say. The one exception: nothing was sent yet and the target pod has ended;
///   that is written to the instance as it was seen, so that a source that begins at that moment is not overruled.
/// - A target pod of a migration that failed goes only when the instance does not name it any more as the one that is moved to.
/// - Nothing follows an end: a migration that has Succeeded or Failed keeps its phase.
/// - Equal observations give equal plans; at rest the plan is empty.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> MigrationPlan {
    let migration = seen.migration;
    let mut making = Making {
        seen,
        target: seen.pods.iter().copied().find(|pod| target::is_of(pod, migration)),
        status: migration.status.as_ref().cloned().unwrap_or_default(),
        now,
        plan: MigrationPlan::default(),
    };
    making.follow();
    making.finish()
}

/// A decision in the making: the status as it shall be, and what else is to be done.
struct Making<'a> {
    seen: &'a Observed<'a>,
    /// The pod that was made for this migration.
    target: Option<&'a Pod>,
    status: Status,
    now: Timestamp,
    plan: MigrationPlan,
}

/// The phase of a migration.
#[must_use]
pub fn phase(migration: &Migration) -> &Phase {
    const UNSET: &Phase = &Phase::Unset;
    migration.status.as_ref().and_then(|status| status.phase.as_ref()).unwrap_or(UNSET)
}

/// Whether a migration has ended, well or not.
#[must_use]
pub fn is_final(migration: &Migration) -> bool {
    phase(migration).is_final()
}

/// What the instance says about this migration; none if it was not handed over, or another came after it.
#[must_use]
pub fn state_of<'a>(migration: &Migration, vmi: &'a VirtualMachineInstance) -> Option<&'a State> {
    let state = vmi.status.as_ref()?.migration_state.as_ref()?;
    (state.migration_uid.is_some() && state.migration_uid == migration.metadata.uid).then_some(state)
}

impl<'a> Making<'a> {
    fn follow(&mut self) {
        if is_final(self.seen.migration) {
            return self.clear_up();
        }
        let Some(vmi) = self.seen.vmi.filter(|vmi| !vmi.is_final()) else {
            return self.fail("the instance has ended");
        };
        if let Some(state) = state_of(self.seen.migration, vmi) {
            return self.follow_handlers(vmi, state);
        }
        if self.was_handed_over() {
            return self.fail("another migration of the instance has begun");
        }
        if self.is_cancelled() {
            let reason = "the migration was cancelled";
            self.tell(Kind::Normal, "SuccessfulAbortMigration", reason);
            return self.fail(reason);
        }
        if vmi.is_marked_for_deletion() {
            return self.fail("the instance is being deleted");
        }
        match phase(self.seen.migration) {
            Phase::Unset => self.enter(Phase::Pending),
            Phase::Pending => self.begin(vmi),
            Phase::Scheduling => self.wait_for_pod(),
            Phase::Scheduled => self.hand_over(vmi),
            // Those of migrations between clusters, which admission refuses; and phases of a later release.
            Phase::WaitingForSync | Phase::Synchronizing | Phase::Other(_) => {}
            Phase::PreparingTarget | Phase::TargetReady | Phase::Running | Phase::Succeeded | Phase::Failed => {}
        }
    }

    fn is_cancelled(&self) -> bool {
        self.seen.migration.metadata.deletion_timestamp.is_some()
    }

    /// Whether the instance was told of this migration at some time.
    fn was_handed_over(&self) -> bool {
        matches!(phase(self.seen.migration), Phase::PreparingTarget | Phase::TargetReady | Phase::Running)
    }

    fn uid(&self) -> &'a str {
        self.seen.migration.metadata.uid.as_deref().unwrap_or_default()
    }

    fn enter(&mut self, phase: Phase) {
        if self.status.phase.as_ref() == Some(&phase) {
            return;
        }
        let at = whole_second(self.now);
        let entered = self.status.phase_transition_timestamps.get_or_insert_default();
        entered.push(Transition { phase: Some(phase.clone()), phase_transition_timestamp: Some(at) });
        self.status.phase = Some(phase);
    }

    /// It ends before the handlers were told of it, or with the instance.
    fn fail(&mut self, reason: &str) {
        let state = self.status.migration_state.get_or_insert_default();
        state.migration_uid = self.seen.migration.metadata.uid.clone();
        state.completed = Some(true);
        state.failed = Some(true);
        state.failure_reason.get_or_insert_with(|| reason.to_owned());
        if state.end_timestamp.as_ref().is_none() {
            state.end_timestamp = Some(whole_second(self.now)).into();
        }
        self.enter(Phase::Failed);
        self.tell(Kind::Warning, "FailedMigration", format!("the migration failed: {reason}"));
    }

    /// A condition that is there only while it holds.
    fn condition(&mut self, kind: &str, why: Option<(&str, &str)>) {
        let Some((reason, message)) = why else {
            conditions::remove(&mut self.status.conditions, kind);
            return;
        };
        let condition = Condition {
            type_: kind.to_owned(),
            status: ConditionStatus::True,
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..Condition::default()
        };
        conditions::set(&mut self.status.conditions, condition, whole_second(self.now).0);
    }

    fn tell(&mut self, kind: Kind, reason: &'static str, message: impl Into<String>) {
        self.plan.events.push(Event { kind, reason, message: message.into() });
    }

    /// Tells what it waits for, once for each that it waits for.
    fn tell_once(&mut self, what: String, reason: &'static str, message: String) {
        if self.seen.told.as_ref() != Some(&what) {
            self.tell(Kind::Warning, reason, message);
            self.plan.told = Some(what);
        }
    }

    fn finish(mut self) -> MigrationPlan {
        let migration = self.seen.migration;
        let old = migration.status.as_ref().cloned().unwrap_or_default();
        let patch = difference(&json!(old), &json!(self.status));
        self.plan.status = patch.map(|patch| guarded(&migration.metadata, json!({ "status": patch })));
        self.plan
    }
}
