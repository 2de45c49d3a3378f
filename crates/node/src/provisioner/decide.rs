//! What is to be done about one claim, and about one volume. Pure.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;

/// Keeps a claim that pods use.
pub(super) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Keeps a volume that is bound.
pub(super) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// What to do about a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ClaimPlan {
    Nothing,
    /// A directory and a volume are to be made for it.
    Provision,
    /// It is told which volume is its own.
    Bind {
        volume: String,
    },
    /// It cannot be had, for this reason.
    Refuse(&'static str),
    /// Nobody uses it any more: it may go.
    Release,
}

/// What is known of a claim's surroundings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Around<'a> {
    /// The class it asks for, or the default, is ours.
    pub(super) ours: bool,
    /// The volume that was made for it, or that it names.
    pub(super) volume: Option<&'a PersistentVolume>,
    /// A pod that has not ended uses it.
    pub(super) used: bool,
}

pub(super) fn claim(claim: &PersistentVolumeClaim, around: Around<'_>) -> ClaimPlan {
    if claim.metadata.deletion_timestamp.is_some() {
        let held = claim.finalizers().iter().any(|one| one == CLAIM_PROTECTION);
        return if held && !around.used { ClaimPlan::Release } else { ClaimPlan::Nothing };
    }
    if claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound") {
        return ClaimPlan::Nothing;
    }
    let spec = claim.spec.as_ref();
    match around.volume {
        Some(volume) if is_free_for(volume, claim) => ClaimPlan::Bind { volume: volume.name_any() },
        // It names a volume of another; that one may be freed.
        Some(_) => ClaimPlan::Nothing,
        None if !around.ours || spec.is_some_and(|spec| spec.volume_name.is_some()) => ClaimPlan::Nothing,
        None if spec.and_then(|spec| spec.volume_mode.as_deref()) == Some("Block") => {
            ClaimPlan::Refuse("volumeMode Block is not supported; use Filesystem, where a VM's disk is a file")
        }
        None if spec.is_some_and(|spec| spec.data_source.is_some() || spec.data_source_ref.is_some()) => {
            ClaimPlan::Refuse("dataSource is not supported; create an empty claim")
        }
        None => ClaimPlan::Provision,
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
        let ours = Around { ours: true, ..Around::default() };
        assert_eq!(claim(&open, ours), ClaimPlan::Provision);
        assert_eq!(claim(&open, Around::default()), ClaimPlan::Nothing);
        let (own, other) = (pv(owner("u")), pv(owner("x")));
        let bind = ClaimPlan::Bind { volume: "v".to_owned() };
        assert_eq!(claim(&open, Around { volume: Some(&own), ..ours }), bind);
        assert_eq!(claim(&open, Around { volume: Some(&other), ..ours }), ClaimPlan::Nothing);
        let bound = pvc(&json!({ "volumeName": "v" }), json!({ "status": { "phase": "Bound" } }));
        assert_eq!(claim(&bound, Around { volume: Some(&own), ..ours }), ClaimPlan::Nothing);
    }

    #[test]
    fn what_cannot_be_had_is_refused_by_name() {
        let ours = Around { ours: true, ..Around::default() };
        assert!(matches!(claim(&pvc(&json!({ "volumeMode": "Block" }), json!({})), ours), ClaimPlan::Refuse(_)));
        let clone = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "x" } });
        assert!(matches!(claim(&pvc(&clone, json!({})), ours), ClaimPlan::Refuse(_)));
        assert_eq!(claim(&pvc(&json!({ "volumeName": "later" }), json!({})), ours), ClaimPlan::Nothing);
    }

    #[test]
    fn a_claim_goes_when_nobody_uses_it() {
        let going =
            json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [CLAIM_PROTECTION] } });
        let going = pvc(&json!({}), going);
        assert_eq!(claim(&going, Around { used: true, ..Around::default() }), ClaimPlan::Nothing);
        assert_eq!(claim(&going, Around::default()), ClaimPlan::Release);
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
