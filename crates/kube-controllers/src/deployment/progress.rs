//! The conditions of a deployment, above all whether its rollout gets on.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DeploymentCondition;

use super::sets::Member;
use crate::pods::seconds;
use manager::writing::whole_second;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Why `Progressing` is what it is.
const CREATED: &str = "NewReplicaSetCreated";
const FOUND: &str = "FoundNewReplicaSet";
const UPDATED: &str = "ReplicaSetUpdated";
const ARRIVED: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";
pub(super) const NOT_CREATED: &str = "ReplicaSetCreateError";

/// What is known of a rollout.
pub(super) struct Progress<'a> {
    /// The deployment's name.
    pub(super) name: &'a str,
    /// Seconds without progress after which it counts as stuck.
    pub(super) deadline: Option<i32>,
    pub(super) paused: bool,
    /// It has arrived.
    pub(super) complete: bool,
    /// It got on since the last status.
    pub(super) advanced: bool,
    /// There are pods of the new template only.
    pub(super) all_updated: bool,
    /// The replica set of the new template, observed or about to be created.
    pub(super) new: Option<&'a Member<'a>>,
    /// That set is an old one.
    pub(super) rolled_back: bool,
}

impl Progress<'_> {
    fn subject(&self) -> String {
        match self.new {
            Some(new) => format!("ReplicaSet {:?}", new.name()),
            None => format!("Deployment {:?}", self.name),
        }
    }
}

/// The conditions while a status is being made.
pub(super) struct Conditions {
    list: Vec<DeploymentCondition>,
    now: Timestamp,
}

impl Conditions {
    pub(super) fn new(list: Vec<DeploymentCondition>, now: Timestamp) -> Self {
        Self { list, now }
    }

    pub(super) fn into_list(self) -> Option<Vec<DeploymentCondition>> {
        (!self.list.is_empty()).then_some(self.list)
    }

    pub(super) fn availability(&mut self, enough: bool) {
        let (status, reason, message) = match enough {
            true => ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
            false => ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
        };
        self.set(AVAILABLE, status, reason, message.to_owned());
    }

    /// What the plan itself does or finds: a pause, the end of one, a new replica set.
    pub(super) fn announce(&mut self, progress: &Progress<'_>) {
        if progress.deadline.is_none() {
            return;
        }
        let reason = self.progressing().and_then(|condition| condition.reason.as_deref());
        match (progress.paused, reason) {
            (_, Some(TIMED_OUT)) | (true, Some(PAUSED)) => {}
            (true, _) => self.set(PROGRESSING, "Unknown", PAUSED, "Deployment is paused".to_owned()),
            // The clock of the deadline stood still meanwhile.
            (false, Some(PAUSED)) => self.set(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed".to_owned()),
            (false, _) => {}
        }
        let Some(new) = progress.new else { return };
        if new.is_to_create() {
            self.set(PROGRESSING, "True", CREATED, format!("Created new replica set {:?}", new.name()));
        } else if self.progressing().is_none() || (progress.rolled_back && !progress.paused) {
            self.set(PROGRESSING, "True", FOUND, format!("Found new replica set {:?}", new.name()));
        }
    }

    /// The replica set of a new template could not be made.
    pub(super) fn not_created(&mut self, message: &str) {
        self.set(PROGRESSING, "False", NOT_CREATED, message.to_owned());
    }

    /// Whether the rollout has arrived, gets on, or is stuck.
    pub(super) fn estimate(&mut self, progress: &Progress<'_>) {
        let Some(deadline) = progress.deadline else {
            self.list.retain(|condition| condition.type_ != PROGRESSING);
            return;
        };
        let known = self.progressing();
        let reason = known.and_then(|condition| condition.reason.as_deref());
        // It has arrived before: pods that fail later on, and a change of size, are no rollout.
        let subject = progress.subject();
        if progress.all_updated && reason == Some(ARRIVED) {
            // A write of the steps in between may have been lost: what arrived is named all the same.
            let arrived = self.list.iter_mut().find(|condition| condition.type_ == PROGRESSING);
            if let Some(condition) = arrived.filter(|_| progress.complete) {
                condition.message = Some(format!("{subject} has successfully progressed."));
            }
            return;
        }
        if progress.complete {
            self.set(PROGRESSING, "True", ARRIVED, format!("{subject} has successfully progressed."));
        } else if progress.advanced {
            self.set(PROGRESSING, "True", UPDATED, format!("{subject} is progressing."));
            // Here the time says more than the reason: it is what the deadline is counted from.
            let updated = Some(whole_second(self.now));
            if let Some(condition) = self.list.iter_mut().find(|condition| condition.type_ == PROGRESSING) {
                condition.last_update_time = updated;
            }
        } else if reason != Some(ARRIVED) && self.deadline_passed(deadline) {
            self.set(PROGRESSING, "False", TIMED_OUT, format!("{subject} has timed out progressing."));
        }
    }

    /// How long until the rollout counts as stuck, if nothing happens.
    pub(super) fn deadline_in(&self, progress: &Progress<'_>) -> Option<Duration> {
        let reason = self.progressing()?.reason.as_deref();
        if matches!(reason, Some(ARRIVED | TIMED_OUT | PAUSED)) {
            return None;
        }
        let left = seconds(Some(progress.deadline?)).saturating_sub(self.since_progress()?);
        Duration::try_from(left).ok().filter(|left| !left.is_zero())
    }

    /// The failure of one replica set stands for all; that of the first, which is the new one, before the others'.
    pub(super) fn failures<'a>(&mut self, mut sets: impl Iterator<Item = &'a Member<'a>>) {
        let failure = sets.find_map(|set| {
            let conditions = set.set.status.as_ref()?.conditions.as_ref()?;
            conditions.iter().find(|condition| condition.type_ == REPLICA_FAILURE)
        });
        match failure {
            None => self.list.retain(|condition| condition.type_ != REPLICA_FAILURE),
            Some(failure) => {
                let reason = failure.reason.as_deref().unwrap_or_default();
                self.set(REPLICA_FAILURE, &failure.status, reason, failure.message.clone().unwrap_or_default());
            }
        }
    }

    fn progressing(&self) -> Option<&DeploymentCondition> {
        self.list.iter().find(|condition| condition.type_ == PROGRESSING)
    }

    fn since_progress(&self) -> Option<jiff::SignedDuration> {
        Some(self.now.duration_since(self.progressing()?.last_update_time.as_ref()?.0))
    }

    fn deadline_passed(&self, deadline: i32) -> bool {
        self.since_progress().is_some_and(|since| since >= seconds(Some(deadline)))
    }

    /// A condition with the same status and reason stays as it is, its message and times included.
    fn set(&mut self, type_: &str, status: &str, reason: &str, message: String) {
        let known = self.list.iter().position(|condition| condition.type_ == type_);
        let now = Some(whole_second(self.now));
        let mut condition = DeploymentCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_update_time: now.clone(),
            last_transition_time: now,
        };
        let Some(known) = known.and_then(|index| self.list.get_mut(index)) else {
            self.list.push(condition);
            return;
        };
        if known.status != status {
            *known = condition;
        } else if known.reason.as_deref() != Some(reason) {
            condition.last_transition_time = known.last_transition_time.take();
            *known = condition;
        }
    }
}
