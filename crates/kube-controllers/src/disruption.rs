//! Disruption budgets: how many pods of an application may be taken away at the same time.
//!
//! ```text
//! PodDisruptionBudget ──┐
//! the pods it selects ──┼─> observe ──> decide ──> Plan ──> act: one status write, events
//! their owners' scales ─┤
//! now ──────────────────┘
//! ```
//! Who evicts takes one of `status.disruptionsAllowed` and notes the pod in `status.disruptedPods` in the same write: that is the
//! API server's part. This controller counts what is healthy, and a pod that is noted there is not. A note holds until the pod
//! is seen on its way out, or for two minutes.
//!
//! Watches: PodDisruptionBudget, Pod, Deployment, ReplicaSet, ReplicationController, StatefulSet. Owns: the status of budgets,
//! and the end of a pod's condition `DisruptionTarget` when nobody took the pod away. Emits: NoPods, UnmanagedPods,
//! CalculateExpectedPodCountFailed, NotDeleted, MultiplePodDisruptionBudgets.
//! Absent on purpose: the eviction itself, and any memory between two looks.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use manager::claim::controller_of;
use manager::selector::{Selector, SelectorError};
use manager::writing::whole_second;

use crate::pods;
use crate::share::{Rounding, share, text};

pub mod controller;
mod scales;
mod stale;
mod subresource;

#[cfg(test)]
mod tests;

/// So long after an eviction was granted the pod must be seen on its way out; after that it will stay.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// What is known about one budget.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The budget itself.
    pub budget: &'a PodDisruptionBudget,
    /// The pods that it selects, of its namespace.
    pub pods: Vec<&'a Pod>,
    /// How many pods their controllers want, by the UID that a pod's reference names. Only budgets that [`counts_owners`]
    /// need it.
    pub scales: BTreeMap<String, Scale>,
}

/// How many pods an owner wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// So many. Several replica sets of one deployment have one owner: the deployment counts once.
    Known {
        /// Whose scale it is.
        owner: String,
        /// How many pods it wants.
        replicas: i32,
    },
    /// There is no such owner, or it is another by now.
    NotFound,
    /// It has no scale, or that cannot be read.
    Failed(String),
}

/// What to do about one budget; empty at rest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The whole new status, if it differs.
    pub status: Option<PodDisruptionBudgetStatus>,
    /// What to say about it. At rest there may be something to say, and nobody says it twice: only with a new status.
    pub notices: Vec<Notice>,
    /// Pods that were to be taken away and were not.
    pub not_deleted: Vec<String>,
    /// When time alone changes the status: decide again then.
    pub recheck_after: Option<Duration>,
}

/// What people should know about a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It selects nothing.
    NoPods,
    /// It counts the owners of pods, and some have none.
    UnmanagedPods,
    /// It cannot be known how many pods there should be.
    Uncountable(BudgetError),
}

/// Why a budget allows nothing: nobody knows how many pods it is about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// A pod's controller is not there.
    #[error("found no controllers for pod {pod:?}")]
    NoController { pod: String },
    /// A pod's controller does not say how many pods it wants.
    #[error("{reason}")]
    Scale { reason: String },
    /// A limit that is neither a number nor a percentage.
    #[error("invalid value for IntOrString: spec.{field} {value:?} is not a percentage, such as \"50%\"")]
    Limit {
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// The selector cannot be used.
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

/// Whether the pods' controllers have to be asked how many pods they want.
#[must_use]
pub fn counts_owners(budget: &PodDisruptionBudget) -> bool {
    budget.spec.as_ref().is_some_and(|spec| {
        spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
    })
}

/// The pods of its namespace that a budget is about: none without a selector, all with an empty one.
///
/// # Errors
/// When the selector cannot be used; see [`failed`].
pub fn selected<'a>(
    budget: &PodDisruptionBudget,
    pods: impl IntoIterator<Item = &'a Pod>,
) -> Result<Vec<&'a Pod>, BudgetError> {
    let Some(selector) = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else { return Ok(Vec::new()) };
    let selector = Selector::read_any(selector)?;
    Ok(pods.into_iter().filter(|pod| selector.matches(pod.metadata.labels.as_ref())).collect())
}

/// # Guarantees
/// - `disruptionsAllowed` is never negative, and zero wherever it is not known how many pods there should be.
/// - A pod that is noted in `disruptedPods` and not yet seen on its way out is not healthy.
/// - Equal observations give equal plans; at rest the plan has no status.
#[must_use]
pub fn decide(seen: &Observed<'_>, now: Timestamp) -> Plan {
    let counted = match count(seen) {
        Ok(counted) => counted,
        Err(error) => return failed(seen.budget, &error, now),
    };
    let Disrupted { pods: disrupted, not_deleted, recheck_after } = disrupted(seen, now);
    let is_healthy = |pod: &&&Pod| {
        let noted = pod.metadata.name.as_ref().is_some_and(|name| disrupted.contains_key(name));
        pod.metadata.deletion_timestamp.is_none() && !noted && pods::is_ready(pod)
    };
    let healthy = number(seen.pods.iter().filter(is_healthy).count());
    // A budget that selects nothing yet allows nothing: its first pods come before its next status.
    let spare = if counted.expected > 0 { healthy.saturating_sub(counted.desired).max(0) } else { 0 };
    let old = seen.budget.status.clone().unwrap_or_default();
    let generation = seen.budget.metadata.generation;
    let (is_allowed, reason) = if spare > 0 { (true, "SufficientPods") } else { (false, "InsufficientPods") };
    let new = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(counted.desired),
        expected_pods: Some(counted.expected),
        disruptions_allowed: Some(spare),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: generation,
        conditions: with_condition(&old, is_allowed, reason, "", generation, now),
    };
    let status = changed(&old, new);
    let mut notices = Vec::new();
    if seen.pods.is_empty() {
        notices.push(Notice::NoPods);
    }
    if counted.unmanaged {
        notices.push(Notice::UnmanagedPods);
    }
    notices.retain(|_| status.is_some());
    Plan { status, notices, not_deleted, recheck_after }
}

/// What to do about a budget that cannot be counted: it allows nothing, and says why. All else stays as it was last known.
#[must_use]
pub fn failed(budget: &PodDisruptionBudget, error: &BudgetError, now: Timestamp) -> Plan {
    let old = budget.status.clone().unwrap_or_default();
    let conditions = with_condition(&old, false, "SyncFailed", &error.to_string(), old.observed_generation, now);
    let new = PodDisruptionBudgetStatus { disruptions_allowed: Some(0), conditions, ..old.clone() };
    let status = changed(&old, new);
    let notices = status.iter().map(|_| Notice::Uncountable(error.clone())).collect();
    Plan { status, notices, ..Plan::default() }
}

/// How many pods there should be.
struct Counted {
    expected: i32,
    desired: i32,
    /// Some pods have no controller that says how many there should be.
    unmanaged: bool,
}

fn count(seen: &Observed<'_>) -> Result<Counted, BudgetError> {
    let empty = PodDisruptionBudgetSpec::default();
    let spec = seen.budget.spec.as_ref().unwrap_or(&empty);
    let of = |field: &'static str, value: &IntOrString, expected: i32| {
        let invalid = || BudgetError::Limit { field, value: text(value) };
        share(value, expected, Rounding::Up).ok_or_else(invalid)
    };
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(limit), _) => {
            let (expected, unmanaged) = expected_by_owners(seen)?;
            let unavailable = of("maxUnavailable", limit, expected)?;
            Ok(Counted { expected, desired: expected.saturating_sub(unavailable).max(0), unmanaged })
        }
        (None, Some(IntOrString::Int(least))) => {
            Ok(Counted { expected: number(seen.pods.len()), desired: *least, unmanaged: false })
        }
        (None, Some(least)) => {
            let (expected, unmanaged) = expected_by_owners(seen)?;
            Ok(Counted { expected, desired: of("minAvailable", least, expected)?, unmanaged })
        }
        (None, None) => Ok(Counted { expected: 0, desired: 0, unmanaged: false }),
    }
}

/// What all owners want together, each counted once; and whether a pod has none.
fn expected_by_owners(seen: &Observed<'_>) -> Result<(i32, bool), BudgetError> {
    let (mut owners, mut unmanaged) = (BTreeMap::new(), false);
    for pod in &seen.pods {
        let Some(reference) = controller_of(&pod.metadata) else {
            unmanaged = true;
            continue;
        };
        match seen.scales.get(&reference.uid).unwrap_or(&Scale::NotFound) {
            Scale::Known { owner, replicas } => {
                owners.insert(owner, i64::from(*replicas));
            }
            Scale::NotFound => {
                return Err(BudgetError::NoController { pod: pod.metadata.name.clone().unwrap_or_default() });
            }
            Scale::Failed(reason) => return Err(BudgetError::Scale { reason: reason.clone() }),
        }
    }
    Ok((i32::try_from(owners.values().sum::<i64>()).unwrap_or(i32::MAX), unmanaged))
}

/// Pods whose eviction was granted.
struct Disrupted {
    /// Those that are still expected to go, and since when.
    pods: BTreeMap<String, Time>,
    not_deleted: Vec<String>,
    recheck_after: Option<Duration>,
}

fn disrupted(seen: &Observed<'_>, now: Timestamp) -> Disrupted {
    let mut result = Disrupted { pods: BTreeMap::new(), not_deleted: Vec::new(), recheck_after: None };
    let noted = seen.budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    let alive = seen.pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let alive: BTreeMap<&String, &&Pod> = alive.filter_map(|pod| Some((pod.metadata.name.as_ref()?, pod))).collect();
    for (name, since) in noted.into_iter().flatten() {
        let Some(pod) = alive.get(name) else { continue };
        // The one that was to go is gone, and this is another of its name: names are given again. Kubernetes cannot tell them
        // apart, and takes the new one for lost for two minutes.
        if pod.metadata.creation_timestamp.as_ref().is_some_and(|created| created.0 > since.0) {
            continue;
        }
        let left = DELETION_TIMEOUT.saturating_sub(now.duration_since(since.0));
        match Duration::try_from(left).ok().filter(|left| !left.is_zero()) {
            Some(left) => {
                result.recheck_after = Some(result.recheck_after.map_or(left, |sooner| sooner.min(left)));
                result.pods.insert(name.clone(), since.clone());
            }
            None => result.not_deleted.push(name.clone()),
        }
    }
    result
}

/// The conditions with one set. The time of the change stays where the truth does not change.
fn with_condition(
    old: &PodDisruptionBudgetStatus,
    is_true: bool,
    reason: &str,
    message: &str,
    observed_generation: Option<i64>,
    now: Timestamp,
) -> Option<Vec<Condition>> {
    let mut all = old.conditions.clone().unwrap_or_default();
    let status = if is_true { "True" } else { "False" };
    let known = all.iter().position(|one| one.type_ == DISRUPTION_ALLOWED);
    let before = known.and_then(|at| all.get(at)).filter(|one| one.status == status);
    let condition = Condition {
        type_: DISRUPTION_ALLOWED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: observed_generation.filter(|generation| *generation != 0),
        last_transition_time: before.map_or_else(|| whole_second(now), |one| one.last_transition_time.clone()),
    };
    match known.and_then(|at| all.get_mut(at)) {
        Some(place) => *place = condition,
        None => all.push(condition),
    }
    Some(all)
}

/// The new status, unless it says the same: a server may leave out what is empty.
fn changed(old: &PodDisruptionBudgetStatus, new: PodDisruptionBudgetStatus) -> Option<PodDisruptionBudgetStatus> {
    let plain = |status: &PodDisruptionBudgetStatus| PodDisruptionBudgetStatus {
        current_healthy: Some(status.current_healthy.unwrap_or(0)),
        desired_healthy: Some(status.desired_healthy.unwrap_or(0)),
        expected_pods: Some(status.expected_pods.unwrap_or(0)),
        disruptions_allowed: Some(status.disruptions_allowed.unwrap_or(0)),
        disrupted_pods: status.disrupted_pods.clone().filter(|pods| !pods.is_empty()),
        observed_generation: status.observed_generation.filter(|generation| *generation != 0),
        conditions: status.conditions.clone(),
    };
    (plain(old) != plain(&new)).then_some(new)
}

/// The controllers of pods, by UID, each with a reference that names it.
pub(crate) fn owners<'a>(pods: &[&'a Pod]) -> BTreeMap<&'a str, &'a OwnerReference> {
    let references = pods.iter().filter_map(|pod| controller_of(&pod.metadata));
    references.map(|one| (one.uid.as_str(), one)).collect()
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
