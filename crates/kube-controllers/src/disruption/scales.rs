//! How many pods the controllers of pods want: by the caches where a kind is known, by its scale subresource otherwise.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use manager::claim::controller_of;

use super::Scale;

/// The kinds that caches know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    Deployment,
    ReplicaSet,
    ReplicationController,
    StatefulSet,
}

impl Workload {
    fn of(reference: &OwnerReference) -> Option<Self> {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        match (group, reference.kind.as_str()) {
            ("", "ReplicationController") => Some(Self::ReplicationController),
            ("apps" | "extensions", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps" | "extensions", "Deployment") => Some(Self::Deployment),
            ("apps", "StatefulSet") => Some(Self::StatefulSet),
            _ => None,
        }
    }
}

/// What a cache knows of an object of such a kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Owner {
    uid: String,
    replicas: i32,
    controller: Option<OwnerReference>,
}

impl Owner {
    /// From an object. A server that leaves the number out means one.
    pub(super) fn new(metadata: &ObjectMeta, replicas: Option<i32>) -> Self {
        let uid = metadata.uid.clone().unwrap_or_default();
        Self { uid, replicas: replicas.unwrap_or(1), controller: controller_of(metadata).cloned() }
    }
}

/// The scale of a pod's controller, if the caches know it, by kind and name. A replica set of a deployment has the scale of the
/// deployment. Otherwise the scale subresource has to be asked, which tells, too, whether there is such a controller at all.
pub(super) fn cached(reference: &OwnerReference, find: impl Fn(Workload, &str) -> Option<Owner>) -> Option<Scale> {
    let named = |reference: &OwnerReference| {
        let kind = Workload::of(reference)?;
        find(kind, &reference.name).filter(|found| found.uid == reference.uid)
    };
    // Kubernetes has a finder for each kind that makes pods; a deployment is found by its replica sets alone.
    let makes_pods = Workload::of(reference).is_some_and(|kind| kind != Workload::Deployment);
    let owner = named(reference).filter(|_| makes_pods)?;
    let deployment = owner.controller.as_ref().filter(|one| one.kind == "Deployment" && reference.kind == "ReplicaSet");
    let counted = match deployment {
        Some(deployment) => named(deployment)?,
        None => owner,
    };
    Some(Scale::Known { owner: counted.uid, replicas: counted.replicas })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(api_version: &str, kind: &str, uid: &str) -> OwnerReference {
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        OwnerReference { api_version, kind, name: "web".to_owned(), uid: uid.to_owned(), ..OwnerReference::default() }
    }

    fn owner(uid: &str, replicas: i32, controller: Option<OwnerReference>) -> Owner {
        Owner { uid: uid.to_owned(), replicas, controller }
    }

    fn scale(owner: &str, replicas: i32) -> Option<Scale> {
        Some(Scale::Known { owner: owner.to_owned(), replicas })
    }

    #[test]
    fn a_replica_set_counts_as_its_deployment() {
        let deployment = reference("apps/v1", "Deployment", "d");
        let caches = |kind: Workload, _: &str| match kind {
            Workload::ReplicaSet => Some(owner("rs", 2, Some(deployment.clone()))),
            Workload::Deployment => Some(owner("d", 5, None)),
            _ => None,
        };
        assert_eq!(cached(&reference("apps/v1", "ReplicaSet", "rs"), caches), scale("d", 5));
        assert_eq!(cached(&reference("apps/v1", "ReplicaSet", "before"), caches), None);
        // Its deployment is gone, or not known yet: its own scale has to be asked for.
        let alone = |kind: Workload, name: &str| caches(kind, name).filter(|one| one.uid == "rs");
        assert_eq!(cached(&reference("apps/v1", "ReplicaSet", "rs"), alone), None);
    }

    #[test]
    fn every_kind_that_makes_pods_is_found_and_no_other() {
        let caches =
            |kind: Workload, _: &str| Some(owner("u", if kind == Workload::StatefulSet { 3 } else { 1 }, None));
        for (api_version, kind, found) in [
            ("v1", "ReplicationController", scale("u", 1)),
            ("apps/v1", "StatefulSet", scale("u", 3)),
            ("apps/v1", "ReplicaSet", scale("u", 1)),
            ("example.com/v1", "ReplicaSet", None),
            ("example.com/v1", "Fleet", None),
            ("apps/v1", "ReplicationController", None),
        ] {
            assert_eq!(cached(&reference(api_version, kind, "u"), caches), found, "{api_version} {kind}");
        }
    }
}
