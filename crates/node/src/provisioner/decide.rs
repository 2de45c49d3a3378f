//! What is to be done about one claim, and about one volume. Pure.

pub(super) mod origin;
pub(super) mod snapshot;

use std::str::FromStr as _;

use api::names::annotation::POPULATED;
use api::quantity::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Told;
use kube::ResourceExt as _;

use origin::Origin;

/// Keeps a claim that pods use.
pub(super) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Keeps a volume that is bound.
pub(super) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// What to do about a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClaimPlan {
    Nothing,
    /// A volume is to be made for it, with these bytes.
    Provision(Origin),
    /// It is told which volume is its own.
    Bind {
        volume: String,
    },
    /// Its volume is to be of this size.
    Grow {
        volume: String,
        size: u64,
    },
    /// What it waits for.
    Waits(String),
    /// It cannot be had, for this reason.
    Refuse(String),
    /// Nobody uses it any more: it may go.
    Release,
}

/// What is known of a claim's surroundings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around<'a> {
    /// The class it asks for, or the default, is ours.
    pub(super) ours: bool,
    /// The volume that was made for it, or that it names.
    pub(super) volume: Option<&'a PersistentVolume>,
    /// A pod that has not ended uses it.
    pub(super) used: bool,
    /// Its class makes volumes only for pods that use them.
    pub(super) late: bool,
    /// Its class lets volumes grow.
    pub(super) grows: bool,
    /// Where its bytes come from.
    pub(super) origin: &'a Origin,
}

/// How many bytes a quantity is; 0 if it is none.
pub(super) fn bytes(told: &Told) -> u64 {
    Quantity::from_str(&told.0).map_or(0, |quantity| u64::try_from(quantity.amount().units()).unwrap_or_default())
}

/// How many bytes a claim asks for.
pub(super) fn requested(claim: &PersistentVolumeClaim) -> u64 {
    let storage = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage"));
    storage.map_or(0, bytes)
}

pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Whether a claim has its data, as far as anybody says. What is being imported is not to be copied.
pub(super) fn is_complete(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().get(POPULATED).is_none_or(|value| value != "false")
}

/// Whether a claim is complete from the beginning, as that of a blank DataVolume: its disk is there although nobody wrote to it.
pub(super) fn is_blank(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().get(POPULATED).is_some_and(|value| value == "true")
}

pub(super) fn claim(claim: &PersistentVolumeClaim, around: Around<'_>) -> ClaimPlan {
    if claim.metadata.deletion_timestamp.is_some() {
        let held = claim.finalizers().iter().any(|one| one == CLAIM_PROTECTION);
        return if held && !around.used { ClaimPlan::Release } else { ClaimPlan::Nothing };
    }
    if is_bound(claim) {
        return grown(claim, around);
    }
    let spec = claim.spec.as_ref();
    match around.volume {
        Some(volume) if is_free_for(volume, claim) => ClaimPlan::Bind { volume: volume.name_any() },
        // It names a volume of another; that one may be freed.
        Some(_) => ClaimPlan::Nothing,
        None if !around.ours || spec.is_some_and(|spec| spec.volume_name.is_some()) => ClaimPlan::Nothing,
        None if spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block") => {
            let why = "spec.volumeMode: Block is not supported; use Filesystem, where a VM's disk is a file";
            ClaimPlan::Refuse(why.to_owned())
        }
        None => match around.origin {
            Origin::Refused(why) => ClaimPlan::Refuse(why.clone()),
            Origin::Waits(why) => ClaimPlan::Waits(why.clone()),
            _ if around.late && !around.used => ClaimPlan::Waits("waiting for the first pod that uses it".to_owned()),
            origin => ClaimPlan::Provision(origin.clone()),
        },
    }
}

/// A claim that asks for more than it has gets it when no pod uses it.
fn grown(claim: &PersistentVolumeClaim, around: Around<'_>) -> ClaimPlan {
    let Some(volume) = around.volume.filter(|_| around.ours) else { return ClaimPlan::Nothing };
    let has = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage")).map_or(0, bytes);
    let size = requested(claim);
    match size > has {
        false => ClaimPlan::Nothing,
        true if !around.grows => ClaimPlan::Refuse(
            "spec.resources.requests.storage: the storage class does not allow volumes to grow".to_owned(),
        ),
        true if around.used => ClaimPlan::Waits("the volume grows when no pod uses it".to_owned()),
        true => ClaimPlan::Grow { volume: volume.name_any(), size },
    }
}

fn is_free_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let owner = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    owner.is_none_or(|owner| {
        let same = owner.name == claim.metadata.name && owner.namespace == claim.metadata.namespace;
        same && owner.uid.as_ref().is_none_or(|uid| Some(uid) == claim.metadata.uid.as_ref())
    })
}

/// What to do about a volume.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum VolumePlan {
    Nothing,
    /// This is its phase now.
    Phase(&'static str),
    /// Its claim is gone: the bytes go, then the volume.
    Reclaim,
    /// It may go.
    Release,
}

/// `claim` is the claim that it is bound to, if that is still there.
pub(super) fn volume(volume: &PersistentVolume, ours: bool, claim: Option<&PersistentVolumeClaim>) -> VolumePlan {
    let spec = volume.spec.as_ref();
    let owned = spec.is_some_and(|spec| spec.claim_ref.is_some());
    if volume.metadata.deletion_timestamp.is_some() {
        let held = volume.finalizers().iter().any(|one| one == VOLUME_PROTECTION);
        return if held && claim.is_none() { VolumePlan::Release } else { VolumePlan::Nothing };
    }
    let deletes = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) == Some("Delete");
    if owned && claim.is_none() && deletes && ours {
        return VolumePlan::Reclaim;
    }
    let phase = match (owned, claim) {
        (true, Some(_)) => "Bound",
        (true, None) => "Released",
        (false, _) => "Available",
    };
    let told = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    if told == Some(phase) { VolumePlan::Nothing } else { VolumePlan::Phase(phase) }
}

#[cfg(test)]
mod tests {
    use json_patch::merge;
    use serde_json::{Value, json};

    use super::*;

    const NOTHING: Around<'static> =
        Around { ours: false, volume: None, used: false, late: false, grows: false, origin: &Origin::Empty };

    #[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
    fn pvc(spec: &Value, rest: Value) -> PersistentVolumeClaim {
        let mut whole = json!({ "metadata": { "name": "c", "namespace": "n", "uid": "u" }, "spec": spec });
        merge(&mut whole, &rest);
        serde_json::from_value(whole).unwrap()
    }

    #[expect(clippy::needless_pass_by_value, reason = "what is written where it is used needs no borrow")]
    fn pv(rest: Value) -> PersistentVolume {
        let spec = json!({ "persistentVolumeReclaimPolicy": "Delete" });
        let mut whole = json!({ "metadata": { "name": "v" }, "spec": spec });
        merge(&mut whole, &rest);
        serde_json::from_value(whole).unwrap()
    }

    fn owner(uid: &str) -> Value {
        json!({ "spec": { "claimRef": { "name": "c", "namespace": "n", "uid": uid } } })
    }

    #[test]
    fn a_claim_of_our_class_gets_a_volume_and_is_bound_to_it() {
        let open = pvc(&json!({}), json!({}));
        let ours = Around { ours: true, ..NOTHING };
        assert_eq!(claim(&open, ours), ClaimPlan::Provision(Origin::Empty));
        assert_eq!(claim(&open, NOTHING), ClaimPlan::Nothing);
        let (own, other) = (pv(owner("u")), pv(owner("x")));
        let bind = ClaimPlan::Bind { volume: "v".to_owned() };
        assert_eq!(claim(&open, Around { volume: Some(&own), ..ours }), bind);
        assert_eq!(claim(&open, Around { volume: Some(&other), ..ours }), ClaimPlan::Nothing);
        let bound = pvc(&json!({ "volumeName": "v" }), json!({ "status": { "phase": "Bound" } }));
        assert_eq!(claim(&bound, Around { volume: Some(&own), ..ours }), ClaimPlan::Nothing);
    }

    #[test]
    fn a_claim_that_is_complete_from_the_beginning_has_a_disk() {
        for (annotations, blank) in
            [(json!({ POPULATED: "true" }), true), (json!({ POPULATED: "false" }), false), (json!({}), false)]
        {
            let claim = pvc(&json!({}), json!({ "metadata": { "annotations": annotations } }));
            assert_eq!(is_blank(&claim), blank, "{annotations}");
        }
    }

    #[test]
    fn a_claim_of_a_class_that_binds_late_waits_for_its_first_pod() {
        let open = pvc(&json!({}), json!({}));
        let late = Around { ours: true, late: true, ..NOTHING };
        assert!(matches!(claim(&open, late), ClaimPlan::Waits(_)));
        assert_eq!(claim(&open, Around { used: true, ..late }), ClaimPlan::Provision(Origin::Empty));
        let named = pv(owner("u"));
        assert!(matches!(claim(&open, Around { volume: Some(&named), ..late }), ClaimPlan::Bind { .. }));
    }

    #[test]
    fn a_claim_grows_when_no_pod_uses_it_and_never_shrinks() {
        let of = |asked: &str| {
            let status = json!({ "status": { "phase": "Bound", "capacity": { "storage": "2Gi" } } });
            pvc(&json!({ "resources": { "requests": { "storage": asked } } }), status)
        };
        let own = pv(owner("u"));
        let grows = Around { ours: true, volume: Some(&own), grows: true, ..NOTHING };
        let larger = of("3Gi");
        assert_eq!(claim(&larger, grows), ClaimPlan::Grow { volume: "v".to_owned(), size: 3 << 30 });
        assert!(matches!(claim(&larger, Around { used: true, ..grows }), ClaimPlan::Waits(_)));
        assert!(matches!(claim(&larger, Around { grows: false, ..grows }), ClaimPlan::Refuse(_)));
        assert_eq!(claim(&larger, Around { ours: false, ..grows }), ClaimPlan::Nothing);
        for asked in ["2Gi", "1Gi"] {
            assert_eq!(claim(&of(asked), grows), ClaimPlan::Nothing, "{asked}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused_by_name() {
        let ours = Around { ours: true, ..NOTHING };
        assert!(matches!(claim(&pvc(&json!({ "volumeMode": "Block" }), json!({})), ours), ClaimPlan::Refuse(_)));
        let refused = Origin::Refused("why".to_owned());
        let from = Around { origin: &refused, ..ours };
        assert_eq!(claim(&pvc(&json!({}), json!({})), from), ClaimPlan::Refuse("why".to_owned()));
        assert_eq!(claim(&pvc(&json!({ "volumeName": "later" }), json!({})), ours), ClaimPlan::Nothing);
    }

    #[test]
    fn a_claim_goes_when_nobody_uses_it() {
        let going =
            json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [CLAIM_PROTECTION] } });
        let going = pvc(&json!({}), going);
        assert_eq!(claim(&going, Around { used: true, ..NOTHING }), ClaimPlan::Nothing);
        assert_eq!(claim(&going, NOTHING), ClaimPlan::Release);
    }

    #[test]
    fn a_volume_follows_its_claim() {
        let mine = pvc(&json!({}), json!({}));
        assert_eq!(volume(&pv(owner("u")), true, Some(&mine)), VolumePlan::Phase("Bound"));
        assert_eq!(volume(&pv(owner("u")), true, None), VolumePlan::Reclaim);
        assert_eq!(volume(&pv(owner("u")), false, None), VolumePlan::Phase("Released"));
        assert_eq!(volume(&pv(json!({})), false, None), VolumePlan::Phase("Available"));
        let mut kept = owner("u");
        kept["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
        assert_eq!(volume(&pv(kept), true, None), VolumePlan::Phase("Released"));
        let mut going = owner("u");
        going["metadata"] = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [VOLUME_PROTECTION] });
        assert_eq!(volume(&pv(going.clone()), true, Some(&mine)), VolumePlan::Nothing);
        assert_eq!(volume(&pv(going), true, None), VolumePlan::Release);
    }
}
