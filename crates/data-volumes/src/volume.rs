//! DataVolumes: each has a claim of its name, which is filled with its data.
//!
//! Watches: DataVolume, PersistentVolumeClaim, Pod, StorageClass, StorageProfile, DataSource, VolumeSnapshot, CDIConfig. Owns: the claim of a
//! DataVolume and the pod that fills it, both deleted with it by Kubernetes' garbage collector. Emits: one event for each phase.
//! Absent on purpose: a second import of a DataVolume that has succeeded or failed; who wants one makes another DataVolume.

mod claim;
pub mod controller;
mod importer;
mod status;

use std::time::Duration;

use api::data_volume::{DataVolume, DataVolumePhase as Phase};
use api::owner::{controller_of, is_controlled_by};
use api::volume_snapshot::VolumeSnapshot;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;

use crate::names::{DONE, IMMEDIATE, POPULATED, POPULATED_FOR, PREPOPULATED, RETAIN_POD};
use crate::source::{Origin, OriginError};

pub use claim::Gaps;
use importer::{import, importing};

/// What is known of one DataVolume.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// Itself.
    pub volume: &'a DataVolume,
    /// Where its data comes from.
    pub origin: &'a Result<Origin, OriginError>,
    /// The claim of its name, or the one that it says has its data.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The pod that imports for it.
    pub pod: Option<&'a Pod>,
    /// The claim that it is a copy of.
    pub original: Option<&'a PersistentVolumeClaim>,
    /// The VolumeSnapshot that it is made of.
    pub snapshot: Option<&'a VolumeSnapshot>,
    /// The importer's name is taken by a pod that is not its own.
    pub taken: bool,
    /// What the last importer died of, as long as no other is to be made.
    pub setback: Option<Setback>,
    /// What its claim has where it says nothing.
    pub gaps: Gaps<'a>,
    /// How far the importer is, by its own words.
    pub progress: Option<String>,
}

/// Why another importer waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setback {
    /// What the last one died of.
    pub message: String,
    /// For how much longer.
    pub left: Duration,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    Nothing,
    /// Its claim is to be made.
    CreateClaim(Box<PersistentVolumeClaim>),
    /// Its claim has its data: that is to be said there.
    Populate,
    /// The pod that imports is to be made.
    CreatePod,
    /// The pod is of no use any more.
    RemovePod,
    /// The pod has died of this. Another is made later.
    Retry(String),
    /// Its claim has its data from elsewhere, and becomes its own.
    Adopt,
}

/// What is told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// In a word.
    pub phase: Phase,
    /// Whether its claim is bound.
    pub is_bound: bool,
    /// Whether its importer runs; `None` if it needs none, or none is there yet.
    pub is_running: Option<bool>,
    /// Why it is where it is, for people.
    pub message: String,
    /// How much has arrived.
    pub progress: Option<String>,
    /// How often the importer was started again.
    pub restarts: Option<i32>,
}

/// What is to be done and told.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumePlan {
    /// What to do.
    pub act: Act,
    /// What to tell; nothing if it stays as it is.
    pub told: Option<Told>,
    /// When time alone changes something: decide again then.
    pub again: Option<Duration>,
}

impl VolumePlan {
    fn new(act: Act, told: impl Into<Option<Told>>) -> Self {
        Self { act, told: told.into(), again: None }
    }
}

/// # Guarantees
/// - A claim of somebody else is never filled. Only one that nobody controls, and that says that it has the data, is adopted.
/// - A claim that has its data from elsewhere is neither filled nor missed: whoever made it may be about to make it again.
/// - Nothing is copied that is not complete itself.
/// - A pod is made only for a claim that is bound, is not populated, and of a DataVolume that has neither succeeded nor failed.
/// - A DataVolume succeeds only with a bound claim that is populated, and a claim is called populated only when nothing was to be
///   imported into it, or the importer has said that it is done.
#[must_use]
pub fn decide(seen: &Observed<'_>) -> VolumePlan {
    let volume = seen.volume;
    if volume.metadata.deletion_timestamp.is_some() {
        return VolumePlan::new(Act::Nothing, None);
    }
    match seen.claim {
        // Where the data would have come from does not matter any more.
        Some(claim) if is_prepopulated(volume, claim) => return prepopulated(seen, claim),
        None if volume.annotations().contains_key(PREPOPULATED) => return VolumePlan::new(Act::Nothing, None),
        _ => {}
    }
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_ref()).unwrap_or(&Phase::Unset);
    let origin = match seen.origin {
        Ok(origin) => origin,
        // Where the data came from does not matter any more.
        Err(_) if *phase == Phase::Succeeded => return with_claim(seen, &Origin::Claim),
        Err(OriginError::Refused { .. }) => return failed(seen, refusal(seen)),
        Err(error @ OriginError::Missing { .. }) => {
            return waits(Phase::CloneScheduled, error.to_string());
        }
    };
    match (seen.claim, phase) {
        (None, Phase::Succeeded | Phase::Failed) => {
            let message = "the claim was deleted; delete the DataVolume and create it again to import its data again";
            failed(seen, message.to_owned())
        }
        (_, Phase::Failed) => VolumePlan::new(Act::Nothing, None),
        (None, _) => without_claim(seen, origin),
        (Some(_), _) => with_claim(seen, origin),
    }
}

fn refusal(seen: &Observed<'_>) -> String {
    seen.origin.as_ref().err().map(ToString::to_string).unwrap_or_default()
}

fn failed(seen: &Observed<'_>, message: String) -> VolumePlan {
    let told = Told { message, is_running: Some(false), is_bound: is_bound(seen.claim), ..Told::of(Phase::Failed) };
    VolumePlan::new(Act::Nothing, told)
}

fn waits(phase: Phase, message: String) -> VolumePlan {
    VolumePlan::new(Act::Nothing, Told { message, ..Told::of(phase) })
}

fn without_claim(seen: &Observed<'_>, origin: &Origin) -> VolumePlan {
    if let Some(message) = incomplete(seen, origin) {
        return waits(Phase::CloneScheduled, message);
    }
    match claim::render(seen, origin) {
        Ok(claim) => {
            let message = format!("PVC {} Pending", claim.name_any());
            let told = Told { message, ..Told::of(Phase::Pending) };
            VolumePlan::new(Act::CreateClaim(Box::new(claim)), told)
        }
        Err(problem) => failed(seen, problem.to_string()),
    }
}

/// Why there is nothing to copy yet.
fn incomplete(seen: &Observed<'_>, origin: &Origin) -> Option<String> {
    match (origin, seen.original, seen.snapshot) {
        (Origin::Copy { name, .. }, None, _) => Some(format!("the PersistentVolumeClaim {name} does not exist")),
        (Origin::Copy { name, .. }, Some(original), _) if !is_complete(original) => {
            Some(format!("the PersistentVolumeClaim {name} does not have its data yet"))
        }
        (Origin::Snapshot { name, .. }, _, snapshot) if claim::has_no_size(seen.volume) => match snapshot {
            None => Some(format!("the VolumeSnapshot {name} does not exist")),
            Some(snapshot) if claim::size_of(snapshot).is_none() => {
                Some(format!("the VolumeSnapshot {name} does not say yet how large it is"))
            }
            Some(_) => None,
        },
        _ => None,
    }
}

/// The claim has had the data from the beginning, as a restored one.
fn prepopulated(seen: &Observed<'_>, claim: &PersistentVolumeClaim) -> VolumePlan {
    let name = claim.name_any();
    match claim.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Bound") => {}
        Some("Lost") => return failed(seen, format!("the PersistentVolumeClaim {name} has lost its volume")),
        _ if seen.gaps.binds_late => {
            let message = format!("PVC {name} is waiting for its first consumer");
            return waits(Phase::WaitForFirstConsumer, message);
        }
        _ => return waits(Phase::Pending, format!("PVC {name} Pending")),
    }
    let is_meant = claim.annotations().get(POPULATED_FOR) == Some(&seen.volume.name_any());
    let is_free = controller_of(&claim.metadata).is_none() && claim.metadata.deletion_timestamp.is_none();
    let act = match is_ours(seen.volume, claim) {
        true if !is_complete(claim) => Act::Populate,
        false if is_meant && is_free => Act::Adopt,
        _ => Act::Nothing,
    };
    succeeded(seen, act)
}

fn with_claim(seen: &Observed<'_>, origin: &Origin) -> VolumePlan {
    let (Some(claim), volume) = (seen.claim, seen.volume) else {
        return VolumePlan::new(Act::Nothing, None);
    };
    let name = claim.name_any();
    if !is_ours(volume, claim) {
        let message = format!("the PersistentVolumeClaim {name} exists and belongs to somebody else; use another name");
        return waits(Phase::Pending, message);
    }
    match claim.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Bound") => filled(seen, origin, claim),
        Some("Lost") => failed(seen, format!("the PersistentVolumeClaim {name} has lost its volume")),
        _ => unbound(seen, origin, &name),
    }
}

/// Waits for the claim. Where its class binds late, a pod must use it first: a VM's, or the importer if that was asked for.
fn unbound(seen: &Observed<'_>, origin: &Origin, name: &str) -> VolumePlan {
    let immediate = seen.volume.annotations().contains_key(IMMEDIATE);
    let (phase, message) = match origin {
        _ if seen.gaps.binds_late && !immediate => {
            (Phase::WaitForFirstConsumer, format!("PVC {name} is waiting for its first consumer"))
        }
        Origin::Copy { name: other, .. } => (Phase::CsiCloneInProgress, format!("copying PVC {other} to PVC {name}")),
        Origin::Snapshot { name: other, .. } => {
            (Phase::CloneFromSnapshotSourceInProgress, format!("copying VolumeSnapshot {other} to PVC {name}"))
        }
        _ => (Phase::Pending, format!("PVC {name} Pending")),
    };
    let consumer = seen.gaps.binds_late && immediate && origin.is_imported() && seen.pod.is_none();
    let told = Told { message, ..Told::of(phase) };
    if consumer { import(seen, told) } else { VolumePlan::new(Act::Nothing, told) }
}

/// The claim is bound: its data comes, or is there.
fn filled(seen: &Observed<'_>, origin: &Origin, claim: &PersistentVolumeClaim) -> VolumePlan {
    let is_populated = claim.annotations().get(POPULATED).is_some_and(|value| value == "true");
    let retains = seen.volume.annotations().get(RETAIN_POD).is_some_and(|value| value == "true");
    match (origin, seen.pod) {
        _ if is_populated => {
            let leaves = seen.pod.is_some_and(|pod| !retains && pod.metadata.deletion_timestamp.is_none());
            succeeded(seen, if leaves { Act::RemovePod } else { Act::Nothing })
        }
        (Origin::Blank | Origin::Claim | Origin::Copy { .. } | Origin::Snapshot { .. }, _) => {
            succeeded(seen, Act::Populate)
        }
        (Origin::Web(_) | Origin::Registry(_), None) => {
            let message = format!("import into {} scheduled", seen.volume.name_any());
            import(seen, Told { message, is_bound: true, ..Told::of(Phase::ImportScheduled) })
        }
        (Origin::Web(_) | Origin::Registry(_), Some(pod)) => importing(seen, pod),
    }
}

fn succeeded(seen: &Observed<'_>, act: Act) -> VolumePlan {
    let restarts = seen.volume.status.as_ref().and_then(|status| status.restart_count);
    let told = Told {
        message: DONE.to_owned(),
        is_bound: true,
        is_running: Some(false),
        progress: Some("100.0%".to_owned()),
        restarts,
        ..Told::of(Phase::Succeeded)
    };
    // It is told after it is so.
    let told = (act != Act::Populate).then_some(told);
    VolumePlan::new(act, told)
}

fn is_bound(claim: Option<&PersistentVolumeClaim>) -> bool {
    claim.and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound")
}

fn is_ours(volume: &DataVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.metadata.uid.as_deref().is_some_and(|uid| is_controlled_by(&claim.metadata, uid))
}

/// Whether a claim has its data, as far as anybody says.
pub(crate) fn is_complete(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().get(POPULATED).is_none_or(|value| value != "false")
}

/// Whether volume and claim say that the claim has had the data from the beginning, as a restored one.
fn is_prepopulated(volume: &DataVolume, claim: &PersistentVolumeClaim) -> bool {
    let says = |annotations: &std::collections::BTreeMap<String, String>, key: &str, name: &str| {
        annotations.get(key).is_some_and(|value| value == name)
    };
    says(claim.annotations(), POPULATED_FOR, &volume.name_any())
        || says(volume.annotations(), PREPOPULATED, &claim.name_any())
}

impl Told {
    fn of(phase: Phase) -> Self {
        Self { phase, is_bound: false, is_running: None, message: String::new(), progress: None, restarts: None }
    }
}

#[cfg(test)]
mod tests;
