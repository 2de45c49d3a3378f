//! Whether an instance's volumes are there, and if not, who has to do what first.

use std::collections::{BTreeMap, BTreeSet};

use api::conditions::{self, ConditionStatus};
use api::data_volume::{DataVolume, DataVolumePhase};
use api::names::{HAS_ROOM, annotation};
use api::vmi::VirtualMachineInstance;
use api::volumes::Volume;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::render::Claim;

/// What is known of the volumes of one instance.
#[derive(Clone, Debug, Default)]
pub struct Known<'a> {
    /// Claims of its namespace, by name; at least those that it names.
    pub claims: BTreeMap<&'a str, &'a PersistentVolumeClaim>,
    /// Data volumes of its namespace, by name; none where the cluster has no such kind.
    pub data_volumes: Option<BTreeMap<&'a str, &'a DataVolume>>,
    /// Storage classes whose claims are bound when a pod uses them.
    pub late_binding: BTreeSet<&'a str>,
    /// The storage class of claims that name none.
    pub default_class: Option<&'a str>,
}

/// Whether a pod can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It can.
    Ready,
    /// A claim is filled only after a pod has used it.
    NeedsConsumer {
        /// Which.
        message: String,
    },
    /// Somebody is at work, or will be.
    Waits {
        /// Which, and on what.
        message: String,
    },
    /// A claim is not there.
    Missing {
        /// Which.
        message: String,
    },
    /// A volume will never be ready.
    Failed {
        /// A word.
        reason: &'static str,
        /// Which, and why.
        message: String,
    },
}

impl Readiness {
    /// What is to be told when several volumes are not ready: what needs somebody before what only needs time.
    fn rank(&self) -> u8 {
        match self {
            Self::Failed { .. } => 0,
            Self::Missing { .. } => 1,
            Self::Waits { .. } => 2,
            Self::NeedsConsumer { .. } => 3,
            Self::Ready => 4,
        }
    }
}

impl Known<'_> {
    /// What rendering needs to know.
    #[must_use]
    pub fn claims_by_mode(&self) -> BTreeMap<String, Claim> {
        let block = |claim: &PersistentVolumeClaim| {
            claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block")
        };
        self.claims.iter().map(|(name, claim)| ((*name).to_owned(), Claim { block: block(claim) })).collect()
    }

    fn binds_late(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).or(self.default_class);
        class.is_some_and(|class| self.late_binding.contains(class))
    }
}

/// The claim that a volume stands for, if it is one.
pub(super) fn claim_name(volume: &Volume, known: &Known<'_>) -> Option<String> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.clone());
    }
    if let Some(source) = &volume.ephemeral {
        return source.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.clone());
    }
    let name = volume.data_volume.as_ref().map(|source| source.name.clone())?;
    let made = known.data_volumes.as_ref().and_then(|volumes| volumes.get(name.as_str()));
    let claim = made.and_then(|volume| volume.status.as_ref()?.claim_name.clone()).filter(|claim| !claim.is_empty());
    Some(claim.unwrap_or(name))
}

/// Whether all volumes of an instance are there. If several are not, what needs somebody most is told.
#[must_use]
pub fn readiness(vmi: &VirtualMachineInstance, known: &Known<'_>) -> Readiness {
    let volumes = vmi.spec.volumes.iter().flatten();
    volumes.map(|volume| readiness_of(volume, known)).min_by_key(Readiness::rank).unwrap_or(Readiness::Ready)
}

/// Whether one volume is there.
pub(crate) fn readiness_of(volume: &Volume, known: &Known<'_>) -> Readiness {
    let Some(name) = claim_name(volume, known) else { return Readiness::Ready };
    let source = volume.data_volume.as_ref().map(|source| source.name.as_str());
    // A claim may be a data volume's even where the instance does not say so.
    let made = known.data_volumes.as_ref().and_then(|volumes| volumes.get(source.unwrap_or(&name)));
    let claim = known.claims.get(name.as_str());
    if let Some(made) = made {
        match made.status.as_ref().and_then(|status| status.phase.as_ref()).unwrap_or(&DataVolumePhase::Unset) {
            DataVolumePhase::Succeeded => {}
            DataVolumePhase::Failed => {
                let message = format!("the DataVolume {name} failed; see its conditions");
                return Readiness::Failed { reason: "FailedDataVolumeImport", message };
            }
            DataVolumePhase::WaitForFirstConsumer | DataVolumePhase::PendingPopulation if claim.is_some() => {
                return Readiness::NeedsConsumer {
                    message: format!("the DataVolume {name} is waiting for its first consumer"),
                };
            }
            _ => return Readiness::Waits { message: filling(&name, made, claim.copied()) },
        }
    }
    let Some(claim) = claim else {
        let message = match source {
            Some(source) => format!("neither DataVolume {source} nor PersistentVolumeClaim {name} exists"),
            None => format!("PersistentVolumeClaim {name} does not exist"),
        };
        return Readiness::Missing { message };
    };
    // Whoever used it now would get an empty disk, and its import would be lost. The claim itself says so from its first moment,
    // whatever is known of its DataVolume.
    let annotations = claim.metadata.annotations.as_ref();
    let is_empty = annotations.and_then(|all| all.get(annotation::POPULATED)).is_some_and(|value| value == "false");
    if is_empty {
        return Readiness::Waits { message: format!("the PersistentVolumeClaim {name} does not have its data yet") };
    }
    match claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending") {
        "Bound" => Readiness::Ready,
        "Lost" => {
            let message = format!("the PersistentVolumeClaim {name} has lost its volume");
            Readiness::Failed { reason: "PVCNotReady", message }
        }
        // The launcher's own pod is the first that uses it.
        _ if known.binds_late(claim) => Readiness::Ready,
        _ => {
            let why = lacks_room(claim).map(|why| format!(": {why}")).unwrap_or_default();
            Readiness::Waits { message: format!("the PersistentVolumeClaim {name} is not bound yet{why}") }
        }
    }
}

/// How far a data volume is, or what it waits for.
fn filling(name: &str, volume: &DataVolume, claim: Option<&PersistentVolumeClaim>) -> String {
    let goes = format!("the DataVolume {name} is being imported");
    if let Some(why) = claim.and_then(lacks_room) {
        return format!("the DataVolume {name} waits for its claim: {why}");
    }
    let status = volume.status.as_ref();
    let running = conditions::find(status.and_then(|status| status.conditions.as_deref()), "Running");
    let failed = running.filter(|one| one.status == ConditionStatus::False && one.reason.as_deref() == Some("Error"));
    // An importer that was not started yet has the reason of one that failed; only the latter was started again.
    let again = status.and_then(|status| status.restart_count).is_some_and(|count| count > 0);
    if let Some(why) = failed.filter(|_| again).and_then(|one| one.message.as_deref()) {
        return format!("{goes}; the last attempt failed: {why}");
    }
    // Whole numbers: every change is written to the status of the VM.
    let progress = status.and_then(|status| status.progress.as_deref()?.strip_suffix('%')?.split('.').next());
    match progress.filter(|whole| !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit())) {
        Some(percent) => format!("{goes}: {percent}%"),
        None => goes,
    }
}

/// What a claim was told that does not fit.
fn lacks_room(claim: &PersistentVolumeClaim) -> Option<&str> {
    let told = claim.status.as_ref()?.conditions.as_ref()?;
    told.iter().find(|one| one.type_ == HAS_ROOM && one.status == "False")?.message.as_deref()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
    fn waits(volume: Value, claim: Value) -> String {
        let volume: DataVolume = serde_json::from_value(json!({ "spec": {}, "status": volume })).unwrap();
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({ "status": claim })).unwrap();
        let known = Known {
            claims: BTreeMap::from([("d", &claim)]),
            data_volumes: Some(BTreeMap::from([("d", &volume)])),
            ..Known::default()
        };
        let volume = serde_json::from_value(json!({ "name": "v", "dataVolume": { "name": "d" } })).unwrap();
        match readiness_of(&volume, &known) {
            Readiness::Waits { message } => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_import_says_how_far_it_is() {
        let goes = |progress: &str| waits(json!({ "phase": "ImportInProgress", "progress": progress }), json!({}));
        assert_eq!(goes("42.37%"), "the DataVolume d is being imported: 42%");
        assert_eq!(goes("100.0%"), "the DataVolume d is being imported: 100%");
        for unknown in ["N/A", "", "%", "x.1%"] {
            assert_eq!(goes(unknown), "the DataVolume d is being imported");
        }
    }

    #[test]
    fn an_import_that_is_tried_again_says_why() {
        let running = json!({ "type": "Running", "status": "False", "reason": "Error", "message": "404" });
        let status = |restarts| json!({ "phase": "ImportInProgress", "progress": "3.1%", "restartCount": restarts, "conditions": [running] });
        assert_eq!(waits(status(1), json!({})), "the DataVolume d is being imported; the last attempt failed: 404");
        assert_eq!(waits(status(0), json!({})), "the DataVolume d is being imported: 3%");
    }

    #[test]
    fn a_claim_that_does_not_fit_says_how_much_there_is() {
        let condition = json!({ "type": HAS_ROOM, "status": "False", "message": "1Gi are left" });
        let claim = json!({ "phase": "Pending", "conditions": [condition] });
        assert_eq!(
            waits(json!({ "phase": "Pending" }), claim.clone()),
            "the DataVolume d waits for its claim: 1Gi are left"
        );
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({ "status": claim })).unwrap();
        let known = Known { claims: BTreeMap::from([("c", &claim)]), ..Known::default() };
        let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": "c" } });
        let message = "the PersistentVolumeClaim c is not bound yet: 1Gi are left".to_owned();
        assert_eq!(readiness_of(&serde_json::from_value(volume).unwrap(), &known), Readiness::Waits { message });
    }

    #[test]
    fn nobody_uses_a_claim_before_it_has_its_data_whatever_is_known_of_its_data_volume() {
        let volume: Volume =
            serde_json::from_value(json!({ "name": "d", "persistentVolumeClaim": { "claimName": "c" } })).unwrap();
        // As a cache has it that is behind: of an earlier DataVolume of that name.
        let made: DataVolume = serde_json::from_value(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": { "name": "c" },
            "spec": {}, "status": { "phase": "Succeeded" },
        }))
        .unwrap();
        let claim = |phase: &str, annotations: Value| -> PersistentVolumeClaim {
            let metadata = json!({ "name": "c", "annotations": annotations });
            serde_json::from_value(json!({ "metadata": metadata, "status": { "phase": phase } })).unwrap()
        };
        let ready = |claim: &PersistentVolumeClaim, made: Option<&DataVolume>, late: bool| {
            let known = Known {
                claims: BTreeMap::from([("c", claim)]),
                data_volumes: Some(made.map(|made| ("c", made)).into_iter().collect()),
                late_binding: late.then_some("k").into_iter().collect(),
                default_class: Some("k"),
            };
            readiness_of(&volume, &known) == Readiness::Ready
        };
        for made in [None, Some(&made)] {
            assert!(!ready(&claim("Bound", json!({ annotation::POPULATED: "false" })), made, false));
            assert!(!ready(&claim("Pending", json!({ annotation::POPULATED: "false" })), made, true));
            assert!(ready(&claim("Bound", json!({ annotation::POPULATED: "true" })), made, false));
            // A user's own claim: empty is what it is to be.
            assert!(ready(&claim("Bound", json!({})), made, false));
        }
    }
}
