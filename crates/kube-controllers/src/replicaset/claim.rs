//! Who controls what: owner references, and the patches that set and clear them.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use super::selector::Selector;

pub(crate) const REPLICA_SET: &str = "ReplicaSet";
pub(crate) const DEPLOYMENT: &str = "Deployment";
const API_VERSION: &str = "apps/v1";

/// One object, named such that no namesake is hit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its UID, to be sent as a precondition.
    pub uid: String,
}

impl Target {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self { name: metadata.name.clone().unwrap_or_default(), uid: metadata.uid.clone().unwrap_or_default() }
    }
}

/// A change of an object's owner references.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerPatch {
    /// Whose references to change.
    pub target: Target,
    /// A strategic merge patch; it carries the UID, so that a namesake refuses it.
    pub patch: Value,
}

/// An object that a controller may claim.
pub(crate) trait Claimable {
    fn metadata(&self) -> &ObjectMeta;
}

impl Claimable for Pod {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Claimable for ReplicaSet {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// The outcome of claiming: what is ours from now on, and the patches that make it so.
pub(crate) struct Claims<'a, T> {
    pub(crate) mine: Vec<&'a T>,
    pub(crate) adopt: Vec<OwnerPatch>,
    pub(crate) release: Vec<OwnerPatch>,
}

/// Sorts `candidates` into ours, to be adopted (ours from now on) and to be released.
///
/// An owner that is being deleted neither adopts nor releases: the garbage collector decides about its dependents.
pub(crate) fn claim<'a, T: Claimable>(
    owner: &ObjectMeta,
    owner_kind: &str,
    selector: &Selector<'_>,
    candidates: impl Iterator<Item = &'a T>,
) -> Claims<'a, T> {
    let mut claims = Claims { mine: Vec::new(), adopt: Vec::new(), release: Vec::new() };
    let owner_stays = owner.deletion_timestamp.is_none();
    for candidate in candidates {
        let metadata = candidate.metadata();
        let matches = selector.matches(metadata.labels.as_ref());
        match controller_of(metadata) {
            Some(reference) if Some(&reference.uid) == owner.uid.as_ref() => {
                if matches {
                    claims.mine.push(candidate);
                } else if owner_stays {
                    claims.release.push(release(owner, metadata));
                }
            }
            Some(_another) => {}
            None => {
                if matches && owner_stays && metadata.deletion_timestamp.is_none() {
                    claims.adopt.push(adopt(owner, owner_kind, metadata));
                    claims.mine.push(candidate);
                }
            }
        }
    }
    claims
}

pub(crate) fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

pub(crate) fn is_controlled_by(metadata: &ObjectMeta, owner: &ObjectMeta) -> bool {
    controller_of(metadata).is_some_and(|reference| Some(&reference.uid) == owner.uid.as_ref())
}

/// The reference that a child of `owner` carries.
pub(crate) fn reference(owner: &ObjectMeta, kind: &str) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: kind.to_owned(),
        name: owner.name.clone().unwrap_or_default(),
        uid: owner.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn adopt(owner: &ObjectMeta, owner_kind: &str, child: &ObjectMeta) -> OwnerPatch {
    let target = Target::of(child);
    let patch = json!({ "metadata": { "uid": target.uid, "ownerReferences": [reference(owner, owner_kind)] } });
    OwnerPatch { target, patch }
}

fn release(owner: &ObjectMeta, child: &ObjectMeta) -> OwnerPatch {
    let target = Target::of(child);
    let gone = json!({ "$patch": "delete", "uid": owner.uid });
    let patch = json!({ "metadata": { "uid": target.uid, "ownerReferences": [gone] } });
    OwnerPatch { target, patch }
}
