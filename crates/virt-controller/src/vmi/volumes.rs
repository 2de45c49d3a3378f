//! Whether an instance's volumes are there, and if not, who has to do what first.

use std::collections::{BTreeMap, BTreeSet};

use api::conditions::{self, ConditionStatus};
use api::data_volume::{DataVolume, DataVolumePhase};
use api::names::{HAS_ROOM, annotation};
use api::owner::controller_of;
use api::vmi::VirtualMachineInstance;
use api::volumes::Volume;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

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
    NeedsConsumer { message: String },
    /// Somebody is at work, or will be.
    Waits {
        /// Which, and on what.
        message: String,
    },
    /// A claim is not there.
    Missing { message: String },
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
    let vm = controller_of(&vmi.metadata);
    volumes.map(|volume| readiness_of(volume, known, vm)).min_by_key(Readiness::rank).unwrap_or(Readiness::Ready)
}

/// Why the data volume or the claim of this name is not to be used by the instance of this VM: it goes. Whoever started on it now
/// would lose the disk under the guest.
///
/// What was made for an earlier VM of the same name goes as soon as the garbage collector has seen that its VM is gone, and so does the
/// claim of an earlier data volume.
pub(crate) fn doomed(name: &str, known: &Known<'_>, vm: Option<&OwnerReference>) -> Option<String> {
    let volumes = known.data_volumes.as_ref();
    let volume = volumes.and_then(|volumes| volumes.get(name)).map(|volume| ("DataVolume", &volume.metadata));
    let claim = known.claims.get(name).map(|claim| ("PersistentVolumeClaim", &claim.metadata));
    volume.into_iter().chain(claim).find_map(|(kind, metadata)| {
        if metadata.deletion_timestamp.is_some() {
            return Some(format!("the {kind} {name} is being deleted"));
        }
        let owner = controller_of(metadata)?;
        let is_earlier = match owner.kind.as_str() {
            "VirtualMachine" => vm.is_some_and(|vm| {
                (vm.kind.as_str(), vm.name.as_str()) == (owner.kind.as_str(), owner.name.as_str())
                    && vm.uid != owner.uid
            }),
            "DataVolume" if owner.name == name => volumes.is_some_and(|volumes| {
                let current = volumes.get(name).and_then(|volume| volume.metadata.uid.as_ref());
                current != Some(&owner.uid)
            }),
            _ => false,
        };
        is_earlier.then(|| {
            format!(
                "the {kind} {name} belongs to an earlier {} named {} and is about to be deleted",
                owner.kind, owner.name
            )
        })
    })
}

/// Whether one volume is there, for the instance of this VM.
pub(crate) fn readiness_of(volume: &Volume, known: &Known<'_>, vm: Option<&OwnerReference>) -> Readiness {
    let Some(name) = claim_name(volume, known) else { return Readiness::Ready };
    let source = volume.data_volume.as_ref().map(|source| source.name.as_str());
    let names = [source.unwrap_or(&name), name.as_str()];
    if let Some(message) = names.into_iter().find_map(|name| doomed(name, known, vm)) {
        return Readiness::Waits { message };
    }
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
        match readiness_of(&volume, &known, None) {
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
        let told = readiness_of(&serde_json::from_value(volume).unwrap(), &known, None);
        assert_eq!(told, Readiness::Waits { message });
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
            readiness_of(&volume, &known, None) == Readiness::Ready
        };
        for made in [None, Some(&made)] {
            assert!(!ready(&claim("Bound", json!({ annotation::POPULATED: "false" })), made, false));
            assert!(!ready(&claim("Pending", json!({ annotation::POPULATED: "false" })), made, true));
            assert!(ready(&claim("Bound", json!({ annotation::POPULATED: "true" })), made, false));
            // A user's own claim: empty is what it is to be.
            assert!(ready(&claim("Bound", json!({})), made, false));
        }
    }

    /// An object of this name that says who controls it.
    fn of<T: serde::de::DeserializeOwned>(owner: Option<(&str, &str, &str)>, metadata: &Value, rest: &Value) -> T {
        let mut object = json!({ "metadata": { "name": "d" } });
        if let Some((kind, name, uid)) = owner {
            object["metadata"]["ownerReferences"] =
                json!([{ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": true }]);
        }
        json_patch::merge(&mut object, &json!({ "metadata": metadata }));
        json_patch::merge(&mut object, rest);
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn nobody_starts_on_a_disk_that_goes() {
        let (going, stays) = (json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }), json!({}));
        let bound = json!({ "status": { "phase": "Bound" } });
        let filled = json!({ "spec": {}, "status": { "phase": "Succeeded" } });
        let volume = |metadata: &Value, uid: &str, owner| -> DataVolume {
            let mut volume: DataVolume = of(owner, metadata, &filled);
            volume.metadata.uid = Some(uid.to_owned());
            volume
        };
        let claim = |metadata: &Value, owner| -> PersistentVolumeClaim { of(owner, metadata, &bound) };
        let (old, new) = (Some(("VirtualMachine", "farm-0", "u-old")), Some(("VirtualMachine", "farm-0", "u-new")));
        let stranger = Some(("VirtualMachine", "other", "u-other"));
        let of_volume = |uid| Some(("DataVolume", "d", uid));
        // The data volume, the claim, and what is to be waited for. Where the kind is not served there are none.
        let table = [
            (Some(Some(volume(&stays, "d-new", new))), claim(&stays, of_volume("d-new")), None),
            (Some(Some(volume(&stays, "d-new", None))), claim(&stays, of_volume("d-new")), None),
            (Some(None), claim(&stays, None), None),
            (Some(None), claim(&stays, new), None),
            (Some(None), claim(&stays, stranger), None),
            (None, claim(&stays, of_volume("d-old")), None),
            (
                Some(Some(volume(&stays, "d-old", old))),
                claim(&stays, of_volume("d-old")),
                Some("the DataVolume d belongs to an earlier VirtualMachine named farm-0 and is about to be deleted"),
            ),
            (
                Some(Some(volume(&going, "d-old", new))),
                claim(&stays, of_volume("d-old")),
                Some("the DataVolume d is being deleted"),
            ),
            (
                Some(Some(volume(&stays, "d-new", new))),
                claim(&stays, of_volume("d-old")),
                Some("the PersistentVolumeClaim d belongs to an earlier DataVolume named d and is about to be deleted"),
            ),
            (
                Some(None),
                claim(&stays, of_volume("d-old")),
                Some("the PersistentVolumeClaim d belongs to an earlier DataVolume named d and is about to be deleted"),
            ),
            (
                Some(None),
                claim(&stays, old),
                Some(
                    "the PersistentVolumeClaim d belongs to an earlier VirtualMachine named farm-0 and is about to be deleted",
                ),
            ),
            (None, claim(&going, None), Some("the PersistentVolumeClaim d is being deleted")),
        ];
        for (volume, claim, wanted) in &table {
            let known = Known {
                claims: BTreeMap::from([("d", claim)]),
                data_volumes: volume.as_ref().map(|one| one.iter().map(|one| ("d", one)).collect()),
                ..Known::default()
            };
            for source in
                [json!({ "dataVolume": { "name": "d" } }), json!({ "persistentVolumeClaim": { "claimName": "d" } })]
            {
                let mut vmi: Value =
                    json!({ "metadata": { "name": "farm-0" }, "spec": { "domain": { "devices": {} } } });
                vmi["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "farm-0", "uid": "u-new", "controller": true,
                }]);
                let mut volume = source.clone();
                volume["name"] = json!("v");
                vmi["spec"]["volumes"] = json!([volume]);
                let told = match readiness(&serde_json::from_value(vmi).unwrap(), &known) {
                    Readiness::Ready => None,
                    Readiness::Waits { message } => Some(message),
                    other => panic!("{other:?}"),
                };
                assert_eq!(told.as_deref(), *wanted, "{source}");
            }
        }
    }
}
