//! Until the target pod runs: whether the instance can move, whose turn it is, and how long a pod may take.

use std::time::Duration;

use api::conditions::{self, ConditionStatus};
use api::migration::{VirtualMachineInstanceMigration as Migration, VirtualMachineInstanceMigrationPhase as Phase};
use api::names::annotation;
use api::vmi::VirtualMachineInstance;
use api::vmi_status::VirtualMachineInstancePhase;
use k8s_openapi::api::core::v1::Pod;
use manager::events::Kind;

use super::{Making, is_final, phase, target};
use crate::vmi::pods;

/// How long a pod may be without a node that could take it.
const UNSCHEDULABLE: Duration = Duration::from_secs(300);
/// How long a pod may take in all until it runs.
const PENDING: Duration = Duration::from_secs(900);
/// The first wait after a migration that nobody in person asked for has failed; it doubles with each failure in a row.
const BACK_OFF: Duration = Duration::from_secs(20);
/// No wait is longer: a node that is being emptied should not stand half empty for a day.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(3600);

/// Shown while a quota has no room for the target pod.
const BY_QUOTA: &str = "migrationRejectedByResourceQuota";

/// A wait after failures in a row.
struct BackOff {
    failures: usize,
    until: jiff::Timestamp,
    rest: Duration,
}

impl Making<'_> {
    /// Pending: makes the target pod, when the time has come.
    pub(super) fn begin(&mut self, vmi: &VirtualMachineInstance) {
        if let Some(pod) = self.target {
            self.condition(BY_QUOTA, None);
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            self.tell(Kind::Normal, "SuccessfulCreate", format!("Created migration target pod {name}"));
            return self.enter(Phase::Scheduling);
        }
        if let Some(reason) = self.why_not(vmi) {
            return self.fail(&reason);
        }
        // Not yet, though it may be soon: the instance's first launcher has not told of its guest.
        if vmi.phase() != &VirtualMachineInstancePhase::Running {
            return;
        }
        if let Some(BackOff { failures, until, rest }) = self.back_off() {
            let name = self.seen.migration.spec.vmi_name.as_deref().unwrap_or_default();
            let (seconds, since) =
                (rest.as_secs_f64().ceil(), if failures == 1 { "one has" } else { "several in a row have" });
            let message =
                format!("The migration of VMI [{name}] waits for {seconds} seconds, because {since} failed before it.");
            self.tell_once(format!("back-off until {until}"), "MigrationBackoff", message);
            self.plan.recheck_after = Some(rest);
            return;
        }
        if !self.seen.has_turn {
            return;
        }
        let quota = self.seen.failure.as_ref().filter(|failure| failure.by_quota);
        let quota = quota.map(|failure| ("ExceededQuota", failure.message.as_str()));
        self.condition(BY_QUOTA, quota);
        let Some(input) = &self.seen.input else { return };
        let source = self.seen.pods.iter().copied().find(|pod| holds(pod, vmi));
        match target::render(input, self.seen.migration, source, self.seen.source) {
            Ok(pod) => self.plan.create = Some(Box::new(pod)),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    /// Why the instance will not move at all.
    fn why_not(&self, vmi: &VirtualMachineInstance) -> Option<String> {
        let status = vmi.status.as_ref();
        let all = status.and_then(|status| status.conditions.as_deref());
        if let Some(no) = conditions::find(all, "LiveMigratable").filter(|one| one.status == ConditionStatus::False) {
            return Some(no.message.clone().unwrap_or_else(|| "the instance cannot be migrated".to_owned()));
        }
        // The older one goes on; admission refuses a second, but two may come at the same moment.
        let ahead = |other: &&&Migration| {
            !is_final(other) && (phase(other) > phase(self.seen.migration) || order(other) < order(self.seen.migration))
        };
        self.seen.siblings.iter().find(ahead).map(|other| {
            let name = other.metadata.name.as_deref().unwrap_or_default();
            format!("the instance is already being moved by migration {name}")
        })
    }

    /// How long to wait after earlier failures, where no person waits.
    fn back_off(&self) -> Option<BackOff> {
        if !is_automatic(self.seen.migration) {
            return None;
        }
        let mut ended: Vec<_> = self.seen.siblings.iter().filter_map(|one| Some((end_of(one)?, phase(one)))).collect();
        ended.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let failures = ended.iter().take_while(|(_, phase)| **phase == Phase::Failed).count();
        let (last, _) = ended.first()?;
        let again = u32::try_from(failures.checked_sub(1)?).unwrap_or(u32::MAX);
        let until = *last + BACK_OFF.saturating_mul(2_u32.saturating_pow(again)).min(LONGEST_BACK_OFF);
        let rest = Duration::try_from(until.duration_since(self.now)).ok().filter(|rest| !rest.is_zero())?;
        Some(BackOff { failures, until, rest })
    }

    /// Scheduling: the pod is there, and does not run yet.
    pub(super) fn wait_for_pod(&mut self) {
        let Some(pod) = self.target else { return self.fail("the target pod is gone") };
        if pods::has_ended(pod) || pods::is_terminating(pod) {
            let words = pods::last_words(pod);
            return self.fail(&format!("the target pod ended before the guest came: {words}"));
        }
        if pods::is_ready_to_run(pod) {
            return self.enter(Phase::Scheduled);
        }
        let (limit, unschedulable) = self.patience(pod);
        if unschedulable {
            let vmi = self.seen.migration.spec.vmi_name.as_deref().unwrap_or_default();
            let message = format!("Migration target pod for VMI [{vmi}] is currently unschedulable.");
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            self.tell_once(format!("a node for pod {uid}"), "migrationTargetPodUnschedulable", message);
        }
        let created = pod.metadata.creation_timestamp.as_ref().map_or(self.now, |at| at.0);
        match Duration::try_from((created + limit).duration_since(self.now)).unwrap_or_default() {
            Duration::ZERO if unschedulable => {
                self.fail(&format!("no node could take the target pod for {} seconds", limit.as_secs()));
            }
            Duration::ZERO => self.fail(&format!("the target pod did not run after {} seconds", limit.as_secs())),
            left => self.plan.recheck_after = Some(left),
        }
    }

    /// How long the pod may take, and whether that is because no node can take it.
    fn patience(&self, pod: &Pod) -> (Duration, bool) {
        let set = |name: &str, usual: Duration| {
            let annotations = self.seen.migration.metadata.annotations.as_ref();
            let seconds = annotations.and_then(|all| all.get(name)?.parse().ok());
            seconds.map_or(usual, Duration::from_secs)
        };
        let unschedulable = pods::condition(pod, "PodScheduled")
            .is_some_and(|one| one.status == "False" && one.reason.as_deref() == Some("Unschedulable"));
        match unschedulable {
            true => (set(annotation::MIGRATION_UNSCHEDULABLE_TIMEOUT, UNSCHEDULABLE), true),
            false => (set(annotation::MIGRATION_PENDING_TIMEOUT, PENDING), false),
        }
    }
}

/// Whether a pod is the launcher that the guest is in.
pub(crate) fn holds(pod: &Pod, vmi: &VirtualMachineInstance) -> bool {
    use virt_rules::launchers::{Launcher, role};
    !pods::has_ended(pod) && role(&Launcher::of(pod), vmi).holds()
}

/// Whether a controller asked for it, not a person.
fn is_automatic(migration: &Migration) -> bool {
    let annotations = migration.metadata.annotations.as_ref();
    annotations.is_some_and(|all| {
        all.contains_key(annotation::EVACUATION_MIGRATION) || all.contains_key(annotation::WORKLOAD_UPDATE_MIGRATION)
    })
}

/// When a migration ended.
fn end_of(migration: &Migration) -> Option<jiff::Timestamp> {
    let entered = migration.status.as_ref()?.phase_transition_timestamps.as_ref()?;
    let end = entered.iter().find(|one| one.phase.as_ref().is_some_and(Phase::is_final))?;
    end.phase_transition_timestamp.as_ref().map(|at| at.0)
}

/// The older first.
pub(super) fn order(migration: &Migration) -> (Option<jiff::Timestamp>, Option<&String>) {
    let metadata = &migration.metadata;
    (metadata.creation_timestamp.as_ref().map(|at| at.0), metadata.uid.as_ref())
}
